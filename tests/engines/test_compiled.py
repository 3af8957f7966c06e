"""The compiled engine equals the reference with ==, on every table."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skdp.descent import samplings
from skdp.descent.matrix import Matrix
from skdp.engines import compiled, kernels
from skdp.engines.compiled import FORMULAS, CompiledEngine
from skdp.engines.reference import ReferenceEngine
from skdp.models import formulas, losses
from skdp.planning.plan import Plan, run
from skdp.planning.presets import preset
from skdp.privacy import queries
from skdp.privacy.encoding import Batch, Chunk, Coded, Records, encode
from skdp.privacy.grid import WeightGrid
from skdp.schema import Categorical, Layout, Numeric, Schema, Vector

HOSTILE = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 0.0, 1.0, -1.0]
ROWS = [0, 1, 3, 4, 61, 2047, 2048, 2049, 5003]
#: A width on the grid for which a product with 1/width differs from the quotient.
HINGE = 49 / 128
LOSSES: dict[str, losses.Loss] = {
    **{name: make() for name, make in losses.LOSSES.items()},
    "softmax-5": losses.Softmax(5),
    "squared-narrow": losses.Squared(slope_bound=0.3),
    "hinge-narrow": losses.SmoothedHinge(width=HINGE),
    "poisson-wide": losses.Poisson(slope_bound=7.0),
}


@pytest.fixture(autouse=True, scope="module")
def many_tasks() -> Iterator[None]:
    """Cut small tables into many tasks, as large ones are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled, "TASK_ENTRIES", 1)
        patch.setattr(compiled, "PIECE", 1)
        yield


def target_of(loss: losses.Loss) -> Numeric | Categorical:
    """A target that the loss is meant for."""
    if loss.name in ("logistic", "hinge", "softmax"):
        return Categorical(list(range(max(2, loss.n_outputs))))
    return Numeric(-1.0, 1.0)


def random_schema(rng: np.random.Generator, loss: losses.Loss) -> Schema:
    """Columns of all kinds, in any order and number."""
    kinds = [
        Numeric(0.0, 1.0),
        Numeric(-3.0, 2.0, scale="log"),
        Numeric(0.0, 1.0, indicator=True),
        Numeric(0.0, 1.0, bins=5, indicator=True),
        Categorical(list(range(4))),
        Categorical(list(range(3)), other=2),
        Categorical(list(range(300))),
        Vector([f"u{j}" for j in range(3)], norm=2.0),
        Vector([f"v{j}" for j in range(11)]),
    ]
    picked = rng.permutation(len(kinds))[: rng.integers(1, len(kinds) + 1)]
    columns: dict[str, Any] = {f"k{i}": kinds[i] for i in picked}
    columns |= {f"n{j}": Numeric(0.0, 1.0) for j in range(rng.integers(0, 10))}
    row_norm = 3.3 if rng.random() < 0.2 else None
    return Schema(columns, target=target_of(loss), row_norm=row_norm)


def random_floats(rng: np.random.Generator, shape: Any) -> np.ndarray:
    values = rng.normal(0.3, 0.7, shape)
    return np.where(rng.random(shape) < 0.1, rng.choice(HOSTILE, shape), values)


def random_batch(rng: np.random.Generator, schema: Schema, n: int) -> Batch:
    def cells(column: Any) -> Any:
        if isinstance(column, Vector):
            return random_floats(rng, (n, len(column.names)))
        if isinstance(column, Categorical):
            width = len(column.levels)
            return Coded(rng.integers(-1, width + 1, n), column.levels)
        return random_floats(rng, n)

    return Batch(
        columns={name: cells(column) for name, column in schema.columns.items()},
        target=cells(schema.target_column),
        weight=random_floats(rng, n) if rng.random() < 0.5 else None,
    )


def random_records(rng: np.random.Generator, loss: losses.Loss) -> Records:
    schema = random_schema(rng, loss)
    batches = [
        random_batch(rng, schema, int(rng.choice(ROWS)))
        for _ in range(rng.integers(0, 4))
    ]
    most = float(rng.choice([1.0, 3.7]))
    intercept = bool(rng.random() < 0.8)
    records = encode(batches, schema, intercept=intercept, max_weight=most)
    return replace(records, chunks=tuple(stored(rng, c) for c in records.chunks))


def stored(rng: np.random.Generator, chunk: Chunk) -> Chunk:
    """The same rows, their arrays by rows, by columns or neither, or read-only."""

    def rearranged(part: np.ndarray) -> np.ndarray:
        kind = rng.integers(4)
        if kind == 0 and part.ndim == 2:
            return np.asfortranarray(part)
        if kind == 1:
            return np.repeat(part, 2, axis=-1)[..., ::2]
        if kind == 2:
            return np.repeat(part, 2, axis=0)[::2]
        part = part.copy()
        part.setflags(write=False)
        return part

    arrays = [rearranged(a) for a in (*chunk.parts, chunk.target, chunk.weight)]
    *parts, target, weight = arrays
    return replace(chunk, parts=tuple(parts), target=target, weight=weight)


def random_set(rng: np.random.Generator, layout: Layout) -> np.ndarray:
    """All coordinates, a column's, one, or some in any order, even twice."""
    d = layout.n_features
    kind = rng.integers(4)
    if kind == 0:
        return np.arange(d)
    if kind == 1:
        return layout.blocks[rng.integers(len(layout.blocks))]
    if kind == 2:
        return rng.integers(0, d, 1)
    return rng.integers(0, d, rng.integers(1, d + 2))


def random_slopes(
    rng: np.random.Generator, records: Records, loss: Any
) -> queries.Slopes:
    caps = None
    kind = rng.integers(4)
    if kind:
        caps = [rng.integers(0, 1 << 17, len(c.target)) for c in records.chunks]
        caps = [c.astype([np.float64, np.int32, np.int64][kind - 1]) for c in caps]
    return queries.Slopes(loss=loss, max_weight=records.max_weight, caps=caps)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal shapes and entries, and Python integers throughout."""
    kinds = {type(value) for value in left.ravel()}
    return left.shape == right.shape and bool((left == right).all()) and kinds <= {int}


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=16, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), n_threads=st.integers(1, 3))
def test_gradients_equal_the_reference(name: str, seed: int, n_threads: int) -> None:
    rng, loss = np.random.default_rng(seed), LOSSES[name]
    records = random_records(rng, loss)
    layout = records.layout
    grid = WeightGrid.of(layout)
    ours, reference = CompiledEngine(records, n_threads), ReferenceEngine(records)
    weights = np.zeros((layout.n_features, loss.n_outputs))
    for _ in range(5):
        at = random_set(rng, layout)
        slopes = random_slopes(rng, records, loss)
        units = grid.units(weights)
        assert same(
            ours.gradient(units, at, slopes), reference.gradient(units, at, slopes)
        )
        moved = random_set(rng, layout)
        step = rng.normal(0.0, rng.choice([1e-3, 1.0, 1e4]), (len(moved), 1))
        weights[moved] += step * rng.normal(size=loss.n_outputs)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), n_threads=st.integers(1, 3))
def test_pairs_counts_and_caps_equal_the_reference(seed: int, n_threads: int) -> None:
    rng, loss = np.random.default_rng(seed), losses.Softmax(5)
    records = random_records(rng, loss)
    ours, reference = CompiledEngine(records, n_threads), ReferenceEngine(records)
    assert same(ours.gram(), reference.gram())
    for n_classes in (1, 3, 5):
        assert same(ours.counts(n_classes), reference.counts(n_classes))
    matrix = rng.normal(size=(rng.integers(1, 9), records.layout.n_features))
    metric = queries.Metric.of(matrix, float(rng.choice([1e-3, 1.0, 30.0])))
    slopes = queries.Slopes(loss=loss, max_weight=records.max_weight)
    for left, right in zip(
        ours.caps(metric, slopes), reference.caps(metric, slopes), strict=True
    ):
        assert left.dtype == np.int32
        assert (left == right).all()


def row_numbers(n: int, loss: losses.Loss, seed: int = 0) -> Records:
    """A table with one category a row: a gradient then lists the rows' slopes."""
    rng = np.random.default_rng(seed)
    schema = Schema({"row": Categorical(list(range(n)))}, target=target_of(loss))
    target = random_batch(rng, schema, n).target
    columns = {"row": Coded(np.arange(n), range(n))}
    return encode([Batch(columns=columns, target=target)], schema, intercept=False)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_each_row_has_the_slope_of_the_reference(name: str, n_threads: int) -> None:
    n, loss, rng = 2111, LOSSES[name], np.random.default_rng(1)
    records = row_numbers(n, loss)
    unit = queries.Slopes(loss=loss).grid.unit
    ends = np.array([-16.0, 0.0, 16.0, 1.0, -1.0, 1024.0, -1024.0, 2.0, 0.5, 0.3])
    ties = (rng.integers(-(2**16), 2**16, n) + 0.5) * unit
    choices = [
        rng.normal(0.0, 3.0, n),
        rng.choice(ends, n) + rng.integers(-2, 3, n) * 2.0**-27,
        rng.choice([-1.0, 0.0, 1.0], n) + ties,
        rng.integers(-2048, 2048, n) / formulas.TABLE_STEPS,
        rng.choice([-1.0, 1.0], n) * (1.0 - HINGE * ties),
    ]
    margins = np.choose(rng.integers(0, 5, (loss.n_outputs, n)), choices).T
    units = WeightGrid.of(records.layout).units(margins)
    at = np.arange(n)
    caps = [rng.integers(0, 1 << 17, n)]
    for slopes in (queries.Slopes(loss=loss), queries.Slopes(loss=loss, caps=caps)):
        ours = CompiledEngine(records, n_threads).gradient(units, at, slopes)
        assert same(ours, ReferenceEngine(records).gradient(units, at, slopes))


def test_ties_are_rounded_up() -> None:
    """Half a unit goes up, on both sides of zero: not to even, not away from zero."""
    loss = losses.Squared(slope_bound=1.0)
    schema = Schema({"row": Categorical(range(4))}, target=Numeric(-1.0, 1.0))
    columns = {"row": Coded(np.arange(4), range(4))}
    batch = Batch(columns=columns, target=np.zeros(4))
    records = encode([batch], schema, intercept=False)
    unit = queries.Slopes(loss=loss).grid.unit
    margins = np.array([[0.5], [1.5], [-0.5], [-1.5]]) * unit
    units = WeightGrid.of(records.layout).units(margins)
    slopes = queries.Slopes(loss=loss)
    ours = CompiledEngine(records).gradient(units, np.arange(4), slopes)
    assert [value >> 14 for value in ours[:, 0]] == [1, 2, 0, -1]


@pytest.mark.parametrize("name", ["_slopes", "_round", "_interpolate"])
def test_slopes_are_compiled_without_fused_or_reordered_arithmetic(name: str) -> None:
    made = getattr(kernels, name)
    flags = made.targetoptions["fastmath"]
    assert not flags
    signatures = {
        "_slopes": "(i8, f8[::1], f8[::1], f8[:,::1], i8, u2[::1], f8[:,::1], "
        "f8[:,::1], i4[::1])",
        "_round": "(f8[:,::1], f4[::1], i4[::1], f8, f8)",
        "_interpolate": "(f8[::1], f8, f8, f8[::1], i4[::1])",
    }
    fresh = numba.njit(signatures[name], fastmath=flags, error_model="numpy")(
        made.py_func
    )
    assembly = fresh.inspect_asm(fresh.signatures[0])
    assert not re.findall(r"\bv?fn?m(?:add|sub|la|ls)\w*", assembly)
    code = fresh.inspect_llvm(fresh.signatures[0])
    assert not re.findall(r"\bf(?:add|sub|mul|div) (?:fast|reassoc|contract)", code)


def test_sums_do_not_depend_on_the_order_or_the_chunks_of_rows() -> None:
    rng = np.random.default_rng(5)
    loss = losses.Softmax(3)
    schema = random_schema(rng, loss)
    batch = random_batch(rng, schema, 4999)

    def rows(cells: Any, at: Any) -> Any:
        if isinstance(cells, Coded):
            return Coded(cells.codes[at], cells.values)
        return cells[at]

    def records(sets: list[Any]) -> Records:
        batches = [
            Batch(
                columns={name: rows(c, at) for name, c in batch.columns.items()},
                target=rows(batch.target, at),
            )
            for at in sets
        ]
        return encode(batches, schema)

    tables = [
        records([np.arange(4999)]),
        records([rng.permutation(4999)]),
        records(np.array_split(rng.permutation(4999), 7)),
    ]
    layout, slopes = tables[0].layout, queries.Slopes(loss=loss)
    d = layout.n_features
    units = WeightGrid.of(layout).units(rng.normal(size=(d, 3)))
    made = [CompiledEngine(t, n) for n, t in enumerate(tables, start=1)]
    for left, right in pairwise(made):
        at = np.arange(d)
        assert same(left.gradient(units, at, slopes), right.gradient(units, at, slopes))
        assert same(left.gram(), right.gram())


def census(n: int) -> Records:
    """A small table of numbers and categories, with something to learn."""
    rng = np.random.default_rng(2)
    schema = Schema(
        {
            "age": Numeric(0.0, 1.0),
            "gain": Numeric(0.0, 1.0, indicator=True),
            "job": Categorical(list("abcde")),
            "text": Vector([f"t{j}" for j in range(4)]),
        },
        target=Categorical([0, 1]),
    )
    job, text = rng.integers(0, 5, n), rng.normal(size=(n, 4))
    chance = 1.0 / (1.0 + np.exp(job - 2.0 - text[:, 0]))
    columns = {
        "age": rng.random(n),
        "gain": np.where(rng.random(n) < 0.2, np.nan, rng.random(n)),
        "job": Coded(job, list("abcde")),
        "text": text,
    }
    target = Coded((rng.random(n) < chance).astype(np.intp), [0, 1])
    return encode([Batch(columns=columns, target=target)], schema)


def plans(layout: Layout, n: int) -> dict[str, Plan]:
    loss = losses.Logistic()
    chosen = {
        name: preset(name, layout, loss, n_rows=n, epsilon=1.0, n_steps=30)
        for name in ("dp_skgd", "dp_gd", "dp_cd")
    }
    chosen["matrix"] = Plan(
        layout=layout,
        loss=loss,
        n_rows=n,
        epsilon=1.0,
        delta=1e-6,
        sampling=samplings.Full(layout.n_features),
        geometry=Matrix(radius=2.0, floor=0.1),
        n_steps=10,
    )
    return chosen


@pytest.mark.parametrize("name", ["dp_skgd", "dp_gd", "dp_cd", "matrix"])
def test_a_run_gives_the_same_weights_bit_for_bit(name: str) -> None:
    records = census(4099)
    plan = plans(records.layout, 4099)[name]
    reference = run(plan, records, engine=ReferenceEngine, seed=7)
    for n_threads in (1, 2):
        ours = run(
            plan, records, engine=lambda r, n=n_threads: CompiledEngine(r, n), seed=7
        )
        assert (ours.weights == reference.weights).all()
        assert ours.weights.any()


def test_an_interrupted_sweep_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    records = census(4099)
    d, slopes = records.layout.n_features, queries.Slopes(loss=losses.Logistic())
    at = np.arange(d)
    engine, sweep = CompiledEngine(records, 1), kernels.sweep
    units = WeightGrid.of(records.layout).units(np.ones((d, 1)))
    engine.gradient(units, at, slopes)

    def interrupted(*arguments: Any) -> None:
        sweep(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "sweep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.gradient(2 * units, at, slopes)
    again = engine.gradient(3 * units, at, slopes)
    assert same(again, ReferenceEngine(records).gradient(3 * units, at, slopes))


def test_every_loss_has_a_formula() -> None:
    formulas = [made().formula for made in losses.LOSSES.values()]
    known = {(one.kind, one.table is not None) for one in formulas}
    assert known <= set(FORMULAS)


def test_an_unknown_loss_is_sent_to_the_reference_engine() -> None:
    class Other(losses.Logistic):
        """Its slope may be anything: the name says nothing."""

        def slope(self, margin, target):
            return margin

    records = census(10)
    slopes = queries.Slopes(loss=Other())
    units = np.zeros((records.layout.n_features, 1))
    with pytest.raises(ValueError, match="no formula for Other: use the reference"):
        CompiledEngine(records).gradient(units, np.array([0]), slopes)


def test_what_would_read_beyond_an_array_is_refused() -> None:
    records = census(10)
    d, chunk = records.layout.n_features, records.chunks[0]
    slopes = queries.Slopes(loss=losses.Logistic(), caps=[np.ones(9)])
    engine, at = CompiledEngine(records), np.arange(d)
    with pytest.raises(ValueError, match="one a row"):
        engine.gradient(np.zeros((d, 1)), at, slopes)
    with pytest.raises(ValueError, match="must have shape"):
        engine.gradient(np.zeros((d, 2)), at, slopes)
    short = replace(records, chunks=(replace(chunk, weight=chunk.weight[:9]),))
    with pytest.raises(ValueError, match="one length"):
        CompiledEngine(short)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_codes_that_no_level_has_touch_nothing(dtype: Any) -> None:
    records = census(100)
    chunk, rng = records.chunks[0], np.random.default_rng(3)
    parts = list(chunk.parts)
    parts[2] = rng.integers(0, 255, 100).astype(dtype) - dtype(40)
    odd = replace(records, chunks=(replace(chunk, parts=tuple(parts)),))
    d, slopes = records.layout.n_features, queries.Slopes(loss=losses.Logistic())
    units = WeightGrid.of(records.layout).units(rng.normal(size=(d, 1)))
    ours, reference = CompiledEngine(odd), ReferenceEngine(odd)
    at = np.arange(d)
    assert same(ours.gradient(units, at, slopes), reference.gradient(units, at, slopes))
    assert same(ours.gram(), reference.gram())


def test_a_number_of_threads_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="n_threads must be at least 1"):
        CompiledEngine(census(10), 0)
