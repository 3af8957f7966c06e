"""Any registered engine equals the reference with ==, on every table.

An entry of `skdp.engines.choice.ENGINES` is tested by being there.
"""

import importlib.util
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import cuda_on_processor
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, issparse

from skdp.descent import samplings
from skdp.descent.matrix import Matrix
from skdp.descent.plan import Plan, run
from skdp.descent.rule import preset
from skdp.descent.sketches import Sketched, randomised_hadamard
from skdp.engines.choice import ENGINES, EngineEntry, choose_engine
from skdp.engines.reference import ReferenceEngine
from skdp.models import losses
from skdp.privacy import queries
from skdp.privacy.encoding import SPARSE_WIDTH, Batch, Chunk, Coded, Records, encode
from skdp.privacy.grid import SLOPE_BITS, UNIT_BITS, WeightGrid
from skdp.schema import Categorical, Layout, Numeric, Pair, Schema, Vector

HOSTILE = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 0.0, 1.0, -1.0]
#: Chunks of uneven size, empty ones too, around the edges of tiles of 2048 rows.
ROWS = [0, 1, 3, 4, 61, 2047, 2048, 2049, 5003]
#: How many rows the person of a row has; a row of divisor 0 counts for nothing.
DIVISORS = [0, 1, 2, 3, 1000, 10**6, 10**7]
#: A width on the grid for which a product with 1/width differs from the quotient.
HINGE = 49 / 128
LOSSES: dict[str, losses.Loss] = {
    **{name: make() for name, make in losses.LOSSES.items()},
    "softmax-5": losses.Softmax(5),
    "squared-narrow": losses.Squared(slope_bound=0.3),
    "hinge-narrow": losses.SmoothedHinge(width=HINGE),
    "poisson-wide": losses.Poisson(slope_bound=7.0),
}
NO_CUDA = cuda_on_processor.install()
#: Engines that run here. The reference is slow, so some tests compare all with one.
RUNNING = [name for name in ENGINES if name != "cuda" or not NO_CUDA]
every_engine = pytest.mark.parametrize(
    "engine",
    [
        pytest.param(name, marks=pytest.mark.skipif(bool(NO_CUDA), reason=str(NO_CUDA)))
        if name == "cuda"
        else name
        for name in ENGINES
    ],
)


@pytest.fixture(autouse=True, scope="module")
def small_tasks() -> Iterator[None]:
    """Let engines that cut large tables into tasks cut small ones as well."""
    with pytest.MonkeyPatch.context() as patch:
        for entry in ENGINES.values():
            if not entry.is_installed():
                continue
            name = entry.location.split(":")[0]
            for place in (name, f"{name}_rows", "skdp.engines.threads"):
                if importlib.util.find_spec(place) is None:
                    continue
                module = importlib.import_module(place)
                for constant in ("TASK_ENTRIES", "PIECE", "MANY_ROWS"):
                    if hasattr(module, constant):
                        patch.setattr(module, constant, 1)
        yield


def make(engine: str, records: Records, n_threads: int = 2) -> queries.Engine:
    """An engine of the registry."""
    return choose_engine(engine, n_threads)(records)


def equals_reference(
    ours: queries.Engine, units: np.ndarray, at: np.ndarray, slopes: queries.Slopes
) -> bool:
    """Whether a gradient is that of a reference engine that has done nothing before."""
    expected = ReferenceEngine(ours.records).gradient(units, at, slopes)
    return same(ours.gradient(units, at, slopes), expected)


def target_of(loss: losses.Loss) -> Numeric | Categorical:
    """A target that the loss is meant for."""
    if loss.kind in ("logistic", "hinge", "softmax"):
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
        Numeric(0.0, 1.0, knots=2),
        Numeric(-1.0, 1.0, knots=9, indicator=True),
    ]
    picked = rng.permutation(len(kinds))[: rng.integers(1, len(kinds) + 1)]
    columns: dict[str, Any] = {f"k{i}": kinds[i] for i in picked}
    single = [n for n, c in columns.items() if not isinstance(c, Vector)]
    for first, second in pairwise(single):
        if rng.random() < 0.3:
            columns[f"{first}:{second}"] = Pair(first, second, knots=3)
    fills = [None, (0.2, 0.7)]  # of which every other number has one
    columns |= {
        f"n{j}": Numeric(0.0, 1.0, fill=fills[j % 2])
        for j in range(rng.integers(0, 10))
    }
    unit = "id" if rng.random() < 0.4 else None
    schema = Schema(columns, target=target_of(loss), unit=unit)
    if rng.random() < 0.2:
        whole = {
            name: column.narrow() if isinstance(column, Numeric) else column
            for name, column in columns.items()
        }
        schema = replace(schema, columns=whole)
        fixed = sum(group.kind != "dense" for group in schema.layout().groups)
        return replace(schema, row_norm=(fixed + 2.0) ** 0.5)
    return schema


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
        columns={
            name: cells(column)
            for name, column in schema.columns.items()
            if not isinstance(column, Pair)
        },
        target=cells(schema.target_column),
        weight=random_floats(rng, n) if rng.random() < 0.5 else None,
        divisor=rng.choice(DIVISORS, n) if schema.unit else None,
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

    def rearranged(part: Any) -> Any:
        if issparse(part):
            return part
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
        caps = [rng.integers(0, 1 << 21, len(c.target)) for c in records.chunks]
        caps = [c.astype([np.float64, np.int32, np.int64][kind - 1]) for c in caps]
    bits = SLOPE_BITS if records.layout.unit is None else UNIT_BITS
    return queries.Slopes(loss, records.max_weight, caps=caps, bits=bits)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Equal shapes and entries, and Python integers throughout."""
    kinds = {type(value) for value in left.ravel()}
    return left.shape == right.shape and bool((left == right).all()) and kinds <= {int}


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), n_threads=st.integers(1, 3))
def test_gradients(name: str, seed: int, n_threads: int) -> None:
    """All kinds of columns, weights, caps and sets, as the weights move."""
    rng, loss = np.random.default_rng(seed), LOSSES[name]
    records = random_records(rng, loss)
    layout = records.layout
    ours = {engine: make(engine, records, n_threads) for engine in RUNNING}
    weights = np.zeros((layout.n_features, loss.n_outputs))
    for _ in range(5):
        at, slopes = random_set(rng, layout), random_slopes(rng, records, loss)
        units = WeightGrid.of(layout).units(weights)
        expected = ReferenceEngine(records).gradient(units, at, slopes)
        for engine, own in ours.items():
            assert same(own.gradient(units, at, slopes), expected), engine
        moved = random_set(rng, layout)
        step = rng.normal(0.0, rng.choice([1e-3, 1.0, 1e4]), (len(moved), 1))
        weights[moved] += step * rng.normal(size=loss.n_outputs)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), n_threads=st.integers(1, 3))
def test_pairs_counts_and_caps(seed: int, n_threads: int) -> None:
    """The reference is the definition: it remembers nothing from call to call here."""
    rng, loss = np.random.default_rng(seed), losses.Softmax(5)
    records = random_records(rng, loss)
    matrix = rng.normal(size=(rng.integers(1, 9), records.layout.n_features))
    metric = queries.Metric.of(matrix, float(rng.choice([1e-3, 1.0, 30.0])))
    slopes = queries.Slopes(loss=loss, max_weight=records.max_weight)

    def answers(own: queries.Engine) -> list[np.ndarray]:
        return [own.gram(), *(own.counts(n_classes) for n_classes in (1, 3, 5))]

    reference = ReferenceEngine(records)
    expected, caps = answers(reference), list(reference.caps(metric, slopes))
    for engine in RUNNING:
        if engine == "reference":
            continue
        own = make(engine, records, n_threads)
        for left, right in zip(answers(own), expected, strict=True):
            assert same(left, right), engine
        for left, right in zip(own.caps(metric, slopes), caps, strict=True):
            assert (left == right).all(), engine


@every_engine
@pytest.mark.parametrize(("intercept", "filled"), [(True, False), (False, True)])
@pytest.mark.parametrize(
    ("numbers", "levels"),
    [(0, (2,)), (3, ()), (10, (4, 9, 2)), (11, (5,)), (2, (300, 3)), (1, (40,) * 5)],
)
def test_numbers_and_categories_of_all_sizes(
    engine: str, numbers: int, levels: tuple[int, ...], intercept: bool, filled: bool
) -> None:
    """Engines have faster ways for such tables, up to some number of each."""
    rng, loss = np.random.default_rng(2), losses.Logistic()
    columns: dict[str, Any] = {f"x{j}": Numeric(0, 1) for j in range(numbers)}
    if filled and numbers:
        columns["x0"] = Numeric(0, 1, fill=(0.25, 0.9))
    columns |= {f"c{g}": Categorical(range(width)) for g, width in enumerate(levels)}
    schema = Schema(columns, target=target_of(loss))
    batches = [random_batch(rng, schema, n) for n in (70, 501)]
    records = encode(batches, schema, intercept=intercept)
    ours, reference = make(engine, records), ReferenceEngine(records)
    assert same(ours.gram(), reference.gram())
    metric = queries.Metric.of(rng.normal(size=(5, records.layout.n_features)), 0.7)
    slopes = queries.Slopes(loss=loss)
    caps = zip(ours.caps(metric, slopes), reference.caps(metric, slopes), strict=True)
    assert all((left == right).all() for left, right in caps)


@every_engine
def test_pairs_of_more_rows_than_fit_into_32_bits(engine: str) -> None:
    n, schema = (
        400_000,
        Schema(
            {"x": Numeric(0, 1), "c": Categorical(["a"])},
            target=target_of(losses.Logistic()),
        ),
    )
    parts = (np.full((n, 1), 2**14, np.int16), np.zeros(n, np.uint8))
    ones = np.empty((n, 0), np.int16)
    chunk = Chunk((*parts, ones), np.zeros(n, np.uint8), np.ones(n, np.float32))
    records = Records(schema.layout(), (chunk,))
    assert (make(engine, records).gram() == n * 2**28).all()


@every_engine
@pytest.mark.parametrize("sizes", [(), (0,), (0, 0, 3), (5, 0, 700, 1)])
def test_tables_that_are_empty_or_have_empty_chunks(
    engine: str, sizes: tuple[int, ...]
) -> None:
    rng, loss = np.random.default_rng(4), losses.Logistic()
    schema = random_schema(rng, loss)
    records = encode([random_batch(rng, schema, n) for n in sizes], schema)
    ours, reference = make(engine, records), ReferenceEngine(records)
    d = records.layout.n_features
    units = WeightGrid.of(records.layout).units(rng.normal(size=(d, 1)))
    assert equals_reference(ours, units, np.arange(d), queries.Slopes(loss=loss))
    assert same(ours.gram(), reference.gram())
    assert same(ours.counts(2), reference.counts(2))


@every_engine
@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Softmax(3)])
def test_sparse_groups(engine: str, loss: losses.Loss) -> None:
    rng, wide = np.random.default_rng(1), SPARSE_WIDTH + 40
    names = [f"t{j}" for j in range(wide)]
    age = Numeric(0, 1, fill=(0.1, 0.6))
    columns = {"age": age, "text": Vector(names, norm=2.0)}
    schema = Schema(columns, target=target_of(loss))

    def batch(n: int) -> Batch:
        kept = rng.random((n, wide)) < 0.03
        text = csr_array(3 * rng.random((n, wide)) * kept).toarray()
        text[rng.random(n) < 0.1] = 0.0
        text.flat[:3] = [np.nan, np.inf, 1e308]
        levels = schema.target_column.levels
        target = Coded(rng.integers(0, len(levels), n), levels)
        return Batch(columns={"age": rng.random(n), "text": text}, target=target)

    records = encode([batch(n) for n in (5, 700, 2100)], schema)
    assert all(issparse(chunk.parts[1]) for chunk in records.chunks)
    layout, slopes = records.layout, queries.Slopes(loss=loss)
    ours, reference = make(engine, records), ReferenceEngine(records)
    weights = np.zeros((layout.n_features, loss.n_outputs))
    every = np.arange(layout.n_features)
    for at in (every, np.array([0, 3, wide]), every[5:60], every[-1:], every):
        weights[at] += rng.normal(size=(len(at), loss.n_outputs))
        assert equals_reference(ours, WeightGrid.of(layout).units(weights), at, slopes)
    assert same(ours.gram(), reference.gram())
    metric = queries.Metric.of(rng.normal(size=(4, layout.n_features)), 2.0)
    caps = zip(ours.caps(metric, slopes), reference.caps(metric, slopes), strict=True)
    assert all((left == right).all() for left, right in caps)


def row_numbers(n: int, loss: losses.Loss, seed: int = 0) -> Records:
    """A table with one category per row. A gradient then lists the rows' slopes."""
    rng = np.random.default_rng(seed)
    schema = Schema({"row": Categorical(list(range(n)))}, target=target_of(loss))
    target = random_batch(rng, schema, n).target
    columns = {"row": Coded(np.arange(n), range(n))}
    return encode([Batch(columns=columns, target=target)], schema, intercept=False)


@pytest.mark.parametrize("name", LOSSES)
def test_the_slope_of_each_row(name: str) -> None:
    """At the ends of tables, at ties between two units, and anywhere."""
    n, loss, rng = 2111, LOSSES[name], np.random.default_rng(1)
    records = row_numbers(n, loss)
    unit = queries.Slopes(loss=loss).grid.unit
    ends = np.array([-16.0, 0.0, 16.0, 1.0, -1.0, 1024.0, -1024.0, 2.0, 0.5, 0.3])
    ties = (rng.integers(-(2**16), 2**16, n) + 0.5) * unit
    choices = [
        rng.normal(0.0, 3.0, n),
        rng.choice(ends, n) + rng.integers(-2, 3, n) * 2.0**-27,
        rng.choice([-1.0, 0.0, 1.0], n) + ties,
        rng.integers(-2048, 2048, n) / losses.TABLE_STEPS,
        rng.choice([-1.0, 1.0], n) * (1.0 - HINGE * ties),
    ]
    margins = np.choose(rng.integers(0, 5, (loss.n_outputs, n)), choices).T
    units = WeightGrid.of(records.layout).units(margins)
    at = np.arange(n)
    caps = [rng.integers(0, 1 << 17, n)]
    for slopes in (queries.Slopes(loss=loss), queries.Slopes(loss=loss, caps=caps)):
        expected = ReferenceEngine(records).gradient(units, at, slopes)
        for engine in RUNNING:
            ours = make(engine, records).gradient(units, at, slopes)
            assert same(ours, expected), engine


@every_engine
def test_ties_are_rounded_up(engine: str) -> None:
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
    ours = make(engine, records).gradient(units, np.arange(4), slopes)
    assert [value >> 14 for value in ours[:, 0]] == [1, 2, 0, -1]


@every_engine
def test_sums_do_not_depend_on_the_order_or_the_chunks_of_rows(engine: str) -> None:
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
                divisor=None if batch.divisor is None else batch.divisor[at],
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
    made = [make(engine, t, n) for n, t in enumerate(tables, start=1)]
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
    found = {
        name: preset(name, layout, loss, n_rows=n, epsilon=1.0, n_steps=30)
        for name in ("dp_skgd", "dp_gd", "dp_cd")
    }
    found["matrix"] = Plan(
        layout=layout,
        loss=loss,
        n_rows=n,
        epsilon=1.0,
        delta=1e-6,
        sampling=samplings.Full(layout.n_features),
        geometry=Matrix(radius=2.0, floor=0.1),
        n_steps=10,
    )
    rotation = randomised_hadamard(layout.n_features)
    thirds = np.array_split(np.arange(len(rotation)), 3)
    found["rotation"] = replace(
        found["matrix"],
        sampling=samplings.Blocks.uniform(thirds),
        geometry=Sketched(directions=rotation, cap=0.5, law="norms"),
    )
    found["eigenvectors"] = replace(
        found["matrix"],
        sampling=samplings.Nice(layout.n_features, 4),
        geometry=Sketched(gram_share=0.2, floor=0.1, cap=0.3),
    )
    return found


@every_engine
@pytest.mark.parametrize(
    "name", ["dp_skgd", "dp_gd", "dp_cd", "matrix", "rotation", "eigenvectors"]
)
def test_a_run_gives_the_same_weights_bit_for_bit(engine: str, name: str) -> None:
    records = census(4099)
    plan = plans(records.layout, 4099)[name]
    reference = run(plan, records, engine=ReferenceEngine, random_state=7)
    for n_threads in (1, 2):
        ours = run(
            plan, records, engine=choose_engine(engine, n_threads), random_state=7
        )
        assert (ours.weights == reference.weights).all()
        assert ours.weights.any()


@every_engine
@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_codes_that_no_level_has_touch_nothing(engine: str, dtype: Any) -> None:
    records = census(100)
    chunk, rng = records.chunks[0], np.random.default_rng(3)
    parts = list(chunk.parts)
    parts[2] = rng.integers(0, 255, 100).astype(dtype) - dtype(40)
    odd = replace(records, chunks=(replace(chunk, parts=tuple(parts)),))
    d, slopes = records.layout.n_features, queries.Slopes(loss=losses.Logistic())
    units = WeightGrid.of(records.layout).units(rng.normal(size=(d, 1)))
    ours, reference = make(engine, odd), ReferenceEngine(odd)
    at = np.arange(d)
    assert equals_reference(ours, units, at, slopes)
    assert same(ours.gram(), reference.gram())


@every_engine
def test_small_negative_codes_of_a_column_with_many_levels(engine: str) -> None:
    """The number of levels does not fit the type of these codes."""
    schema = Schema({"c": Categorical(list(range(200)))}, target=Categorical([0, 1]))
    rng = np.random.default_rng(0)
    codes = rng.integers(-128, 128, 300).astype(np.int8)
    target = rng.integers(0, 2, 300).astype(np.uint8)
    ones = np.empty((300, 0), np.int16)
    chunk = Chunk((codes, ones), target, np.ones(300, np.float32))
    records = Records(schema.layout(), (chunk,))
    ours, reference = make(engine, records), ReferenceEngine(records)
    units = WeightGrid.of(records.layout).units(rng.normal(size=(201, 1)))
    slopes = queries.Slopes(loss=losses.Logistic())
    assert equals_reference(ours, units, np.arange(201), slopes)
    assert same(ours.gram(), reference.gram())


def test_auto_is_the_first_engine_that_is_installed() -> None:
    records = census(10)
    first = next(name for name, entry in ENGINES.items() if entry.is_installed())
    assert type(make("auto", records)) is type(make(first, records))


def test_names_that_are_not_registered_are_refused() -> None:
    with pytest.raises(ValueError, match="engine must be one of") as info:
        choose_engine("other")
    assert all(repr(name) in str(info.value) for name in ("auto", *ENGINES))


def test_an_engine_without_its_package_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = EngineEntry(location="no_such_package:Engine", package="no_such_package")
    monkeypatch.setitem(ENGINES, "other", entry)
    with pytest.raises(ImportError, match="requires no_such_package"):
        choose_engine("other")
    records = random_records(np.random.default_rng(0), losses.Logistic())
    assert not isinstance(make("auto", records), ReferenceEngine)
    monkeypatch.setitem(ENGINES, "compiled", entry)
    assert isinstance(make("auto", records), ReferenceEngine)


def test_a_variable_chooses_the_engine_for_auto(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SKDP_ENGINE", "reference")
    records = random_records(np.random.default_rng(0), losses.Logistic())
    assert isinstance(make("auto", records), ReferenceEngine)
    assert choose_engine("compiled") is not ReferenceEngine
    monkeypatch.setenv("SKDP_ENGINE", "abacus")
    with pytest.raises(ValueError, match="got 'abacus'"):
        choose_engine("auto")


@pytest.mark.skipif(bool(NO_CUDA), reason=str(NO_CUDA))
def test_a_table_larger_than_the_gpu_is_streamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from skdp.engines import cuda

    monkeypatch.setattr(cuda, "MEMORY_SHARE", 0.0)
    monkeypatch.setattr(cuda, "SLAB_ROWS", 1000)
    monkeypatch.setattr(cuda, "TILE_ENTRIES", 400_000)
    rng, loss = np.random.default_rng(8), losses.Logistic()
    schema = replace(random_schema(rng, loss), unit=None)
    records = encode([random_batch(rng, schema, n) for n in (700, 0, 900, 61)], schema)
    ours, reference = cuda.CudaEngine(records), ReferenceEngine(records)
    assert len(ours._slabs) == 2
    assert isinstance(ours._slabs[0].numbers, np.ndarray)
    d, slopes = records.layout.n_features, queries.Slopes(loss=loss)
    grid, weights = WeightGrid.of(records.layout), rng.normal(size=(d, 1))
    for at in (np.arange(d), np.arange(2), np.arange(d)):
        weights[at] += rng.normal(size=(len(at), 1))
        assert equals_reference(ours, grid.units(weights), at, slopes)
    assert same(ours.gram(), reference.gram())
    metric = queries.Metric.of(rng.normal(size=(4, d)), 2.0)
    capped = queries.cap_slopes(ours, slopes, metric)
    expected = queries.cap_slopes(reference, slopes, metric)
    units = grid.units(weights)
    left = ours.gradient(units, np.arange(d), capped)
    assert same(left, reference.gradient(units, np.arange(d), expected))


@pytest.mark.skipif(bool(NO_CUDA), reason=str(NO_CUDA))
@pytest.mark.parametrize("most", [0, 3000, 30_000])
def test_a_gpu_with_little_shared_memory(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables too large for shared memory are computed by matrix products."""
    from skdp.engines import cuda

    monkeypatch.setattr(cuda, "MOST_SHARED", most)
    records, rng = census(300), np.random.default_rng(5)
    d, slopes = records.layout.n_features, queries.Slopes(loss=losses.Logistic())
    ours, reference = cuda.CudaEngine(records), ReferenceEngine(records)
    units = WeightGrid.of(records.layout).units(rng.normal(size=(d, 1)))
    assert equals_reference(ours, units, np.arange(d), slopes)
    assert same(ours.gram(), reference.gram())
    metric = queries.Metric.of(rng.normal(size=(9, d)), 0.7)
    caps = zip(ours.caps(metric, slopes), reference.caps(metric, slopes), strict=True)
    assert all((left == right).all() for left, right in caps)
