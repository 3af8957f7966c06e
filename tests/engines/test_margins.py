"""Margins are kept where that saves reading, and change no sum either way."""

import numpy as np
import pytest

from skdp.datasets import make_hospital
from skdp.engines import kernels
from skdp.engines.compiled import CompiledEngine
from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Logistic
from skdp.privacy.encoding import encode
from skdp.privacy.grid import WeightGrid
from skdp.privacy.queries import Slopes

TABLES = [make_hospital(300 + seed, seed) for seed in range(3)]
RECORDS = encode([table.batch for table in TABLES], TABLES[0].schema)
SLOPES = Slopes(loss=Logistic(), max_weight=1.0)
D = RECORDS.layout.n_features


def steps(*which, seed=0):
    """Weights on the grid that change at all coordinates ("full") or at one."""
    rng = np.random.default_rng(seed)
    grid, weights = WeightGrid.of(RECORDS.layout), np.zeros((D, 1))
    for kind in which:
        at = np.arange(D) if kind == "full" else [int(rng.integers(D))]
        weights = weights.copy()
        weights[at] += rng.normal(size=(len(at), 1))
        yield grid.units(weights)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize(
    ("kinds", "kept"),
    [
        (["full"] * 4, [False] * 4),
        (["full", "one", "one", "full", "one"], [False, True, True, True, True]),
        (["one", "one", "one", "full"], [False, True, True, True]),
    ],
)
def test_sums_are_those_of_the_reference(n_threads, kinds, kept):
    engine, reference = CompiledEngine(RECORDS, n_threads), ReferenceEngine(RECORDS)
    at = np.arange(D)
    for seed, (units, keeps) in enumerate(zip(steps(*kinds), kept, strict=True)):
        found = engine.gradient(units, at, SLOPES)
        assert (found == reference.gradient(units, at, SLOPES)).all(), seed
        assert bool(engine._margins) == keeps, seed


@pytest.mark.parametrize(
    ("owner", "name"), [(kernels, "sweep"), (CompiledEngine, "_make_programs")]
)
def test_an_interrupted_step_leaves_no_half_moved_margins(monkeypatch, owner, name):
    at = np.arange(D)
    first, second, third, fourth = steps("full", "one", "one", "one")
    engine, work = CompiledEngine(RECORDS, 1), getattr(owner, name)
    for units in (first, second):
        engine.gradient(units, at, SLOPES)
    assert engine._margins

    def interrupted(*arguments):
        work(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.gradient(third, at, SLOPES)
    found = engine.gradient(fourth, at, SLOPES)
    assert (found == ReferenceEngine(RECORDS).gradient(fourth, at, SLOPES)).all()
