"""The compiled engine's own tests; `tests/conformance` has those of all engines."""

import re
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest

from skdp.datasets import make_hospital
from skdp.engines import compiled, kernels, matrix_kernels
from skdp.engines.compiled import CompiledEngine, Ranges
from skdp.engines.formula import FORMULAS
from skdp.engines.reference import ReferenceEngine
from skdp.models import losses
from skdp.privacy import queries
from skdp.privacy.encoding import Batch, Coded, Records, encode
from skdp.privacy.grid import WeightGrid
from skdp.privacy.persons import divide_slopes
from skdp.schema import Categorical, Numeric, Schema


def hospital(n: int) -> Records:
    """A small table of numbers and categories."""
    table = make_hospital(n, 2)
    return encode([table.batch], table.schema)


@pytest.mark.parametrize(
    "operation",
    [*kernels.SLOPES.values(), kernels.round_slopes, matrix_kernels.cap_rows],
    ids=lambda one: one.function.__name__,
)
def test_slopes_are_compiled_without_fused_or_reordered_arithmetic(
    operation: kernels.Operation,
) -> None:
    assert not operation.integers
    fresh = numba.njit("void(i8, i8, i8, i8, i8, i8)", error_model="numpy")(
        operation.function
    )
    assembly = fresh.inspect_asm(fresh.signatures[0])
    assert not re.findall(r"\bv?fn?m(?:add|sub|la|ls)\w*", assembly)
    code = fresh.inspect_llvm(fresh.signatures[0])
    assert not re.findall(r"\bf(?:add|sub|mul|div) (?:fast|reassoc|contract)", code)


def test_an_interrupted_sweep_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    records = hospital(4099)
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
    expected = ReferenceEngine(records).gradient(3 * units, at, slopes)
    assert (again == expected).all()


def test_every_loss_has_a_formula() -> None:
    formulas = [made().formula for made in losses.LOSSES.values()]
    known = {(one.kind, one.table is not None) for one in formulas}
    assert known <= set(FORMULAS)


def test_a_loss_without_a_formula_is_refused() -> None:
    class Other(losses.Logistic):
        """Its slope may be anything: the name says nothing."""

        def slope(self, margin, target):
            return margin

    records = hospital(10)
    slopes = queries.Slopes(loss=Other())
    units = np.zeros((records.layout.n_features, 1))
    with pytest.raises(ValueError, match="no formula for Other"):
        CompiledEngine(records).gradient(units, np.array([0]), slopes)


def test_what_would_read_beyond_an_array_is_refused() -> None:
    records = hospital(10)
    d, chunk = records.layout.n_features, records.chunks[0]
    slopes = queries.Slopes(loss=losses.Logistic(), caps=[np.ones(9)])
    engine, at = CompiledEngine(records), np.arange(d)
    with pytest.raises(ValueError, match="one cap per row"):
        engine.gradient(np.zeros((d, 1)), at, slopes)
    with pytest.raises(ValueError, match="must have shape"):
        engine.gradient(np.zeros((d, 2)), at, replace(slopes, caps=None))
    short = replace(records, chunks=(replace(chunk, weight=chunk.weight[:9]),))
    with pytest.raises(ValueError, match="same length"):
        CompiledEngine(short)


def test_a_number_of_threads_is_at_least_one() -> None:
    with pytest.raises(ValueError, match="n_threads must be at least 1"):
        CompiledEngine(hospital(10), 0)


def test_caps_are_kept_as_small_integers() -> None:
    records = hospital(10)
    metric = queries.Metric.of(np.eye(records.layout.n_features), 1.0)
    slopes = queries.Slopes(loss=losses.Logistic())
    for caps in CompiledEngine(records).caps(metric, slopes):
        assert caps.dtype == np.int32


def test_weights_and_caps_that_all_rows_share_are_stored_once() -> None:
    records = hospital(2 * kernels.TILE + 3)
    chunk, d = records.chunks[0], records.layout.n_features
    half = np.broadcast_to(np.float32(0.5), len(chunk.target))
    shared = replace(records, chunks=(replace(chunk, weight=half),))
    copied = replace(records, chunks=(replace(chunk, weight=half.copy()),))
    only_intercept = np.zeros((1, d))
    only_intercept[0, -1] = 1.0
    metric = queries.Metric.of(only_intercept, 0.1)
    slopes, at = queries.Slopes(loss=losses.Logistic()), np.arange(d)
    units = WeightGrid.of(records.layout).units(np.ones((d, 1)))
    engine, reference = CompiledEngine(shared, 2), ReferenceEngine(copied)
    capped = queries.cap_slopes(engine, slopes, metric)
    expected = queries.cap_slopes(reference, slopes, metric)
    assert capped.caps is not None
    assert expected.caps is not None
    assert (capped.caps[0] == expected.caps[0]).all()
    assert capped.caps[0].strides == (0,)
    for own, others in ((slopes, slopes), (capped, expected)):
        total = engine.gradient(units, at, own)
        assert (total == reference.gradient(units, at, others)).all()
    assert (engine.counts(2) == reference.counts(2)).all()


def test_levels_of_a_category_are_no_work_for_more_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row has one entry of them, so a sweep takes less time than waking a thread."""
    levels = [f"{level:02}" for level in range(60)]
    columns = {name: Coded(np.arange(60) % 60, levels) for name in "abc"}
    batch = Batch(columns=columns, target=np.zeros(60))
    described = {name: Categorical(levels) for name in "abc"}
    records = encode([batch], Schema(described, target=("y", Numeric(0, 1))))
    engine, d = CompiledEngine(records, 2), records.layout.n_features
    counted: list[int] = []
    monkeypatch.setattr(engine._threads, "sweep", lambda job, n: counted.append(n))
    units = WeightGrid.of(records.layout).units(np.ones((d, 1)))
    engine.gradient(units, np.arange(d), queries.Slopes(loss=losses.Squared()))
    assert d == 181
    assert counted[0] < 30


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_many_combinations_of_codes(
    monkeypatch: pytest.MonkeyPatch, n_outputs: int
) -> None:
    monkeypatch.setattr(compiled, "LONG_TABLE", 1)
    rng, n, levels = np.random.default_rng(0), 5000, [9, 16, 7, 2]
    columns = {f"c{i}": Categorical(range(w)) for i, w in enumerate(levels)}
    classes = tuple(range(max(2, n_outputs)))
    batch = Batch(
        columns={
            f"c{i}": Coded(rng.integers(-1, w, n), tuple(range(w)))
            for i, w in enumerate(levels)
        },
        target=Coded(rng.integers(0, len(classes), n), classes),
    )
    records = encode([batch], Schema(columns, target=Categorical(classes)))
    loss = losses.Logistic() if n_outputs == 1 else losses.Softmax(n_outputs)
    engine, reference = CompiledEngine(records, 2), ReferenceEngine(records)
    (combined,) = engine._slots.combined
    assert combined.size == 10 * 17 * 8 * 3
    d, slopes = records.layout.n_features, queries.Slopes(loss=loss)
    weights = rng.normal(size=(d, n_outputs))
    units = WeightGrid.of(records.layout).units(weights)
    for at in (np.arange(d), np.arange(3)):
        total = engine.gradient(units, at, slopes)
        assert (total == reference.gradient(units, at, slopes)).all()


def test_more_rows_than_float64_adds_up_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A product of odd numbers near 2³⁴, added up 2²⁰ times, is above 2⁵³."""
    n, times = (1 << 16) - 1, 18
    schema = Schema({"a": Numeric(0, 1)}, target=Categorical([0, 1]), unit="id")
    batch = Batch(
        columns={"a": np.full(n, 1 - 2.0**-14)},
        target=Coded(np.zeros(n, np.int64), (0, 1)),
        divisor=np.ones(n, np.int64),
    )
    records = encode([batch], schema)
    slopes = divide_slopes(records, queries.Slopes(losses.Logistic()))
    units = WeightGrid.of(records.layout).units(np.full((2, 1), 3.7))
    once = CompiledEngine(records, 1).gradient(units, np.arange(2), slopes)
    many = Ranges(np.array([(0, 0, n)] * times))
    engine = CompiledEngine(records, 1)
    monkeypatch.setattr(engine._threads, "n_rows", n * times)
    monkeypatch.setattr(engine._threads, "run", lambda work, *_: [work(many)])
    slopes = replace(slopes)  # not those of the last step
    total = engine.gradient(units, np.arange(2), slopes)
    assert total.max() > 1 << 53
    assert (once // n % 2 == 1).any()
    assert (total == once * times).all()


def test_sums_over_2_to_the_29_persons_do_not_wrap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Adding one person to 2²⁹ would turn the sum's sign, if it had 64 bits."""
    n, times = 1 << 18, (1 << 11) + 1
    schema = Schema({"a": Numeric(0, 1)}, target=Categorical([0, 1]), unit="id")
    batch = Batch(
        columns={"a": np.ones(n)},
        target=Coded(np.zeros(n, np.int64), (0, 1)),
        divisor=np.ones(n, np.int64),
    )
    engine = CompiledEngine(encode([batch], schema), 1)
    slopes = divide_slopes(engine.records, queries.Slopes(losses.Logistic()))
    units = np.full((2, 1), 8.0) * 2.0 ** WeightGrid.of(engine.records.layout).bits
    once = engine.gradient(units, np.arange(2), slopes)
    many = Ranges(np.array([(0, 0, n)] * times))
    monkeypatch.setattr(engine._threads, "n_rows", n * times)
    monkeypatch.setattr(engine._threads, "run", lambda work, *_: [work(many)])
    slopes = replace(slopes)  # not those of the last step
    total = engine.gradient(units, np.arange(2), slopes)
    assert (total == once * times).all()
    assert total.max() > 1 << 63
