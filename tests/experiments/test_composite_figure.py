"""Figure I: what it measures, and that its text says what rows say."""

from collections.abc import Iterator

import numpy as np
import pytest

from experiments.figures import i_composite as i
from experiments.statistics import Rows

LEVELS, MIXTURE = list(i.CASES)[:2]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Made up tables of few rows, so that runs take few steps."""
    monkeypatch.setattr(i, "MADE_ROWS", 300)
    i.objective.cache_clear()
    yield
    i.objective.cache_clear()


@pytest.mark.parametrize("case", [LEVELS, MIXTURE])
def test_the_minimum_is_one(small: None, case: str) -> None:
    """Neither nearby points nor other seeds of the search are better."""
    goal = i.objective(case)
    rng, problem = np.random.default_rng(0), goal.problem
    metric = np.ones(len(goal.minimiser))
    for size in (1e-3, 0.1, 1.0):
        for _ in range(20):
            there = goal.minimiser + size * rng.normal(size=goal.minimiser.shape)
            there = problem.penalty.prox(there, metric, problem.all)
            assert goal.excess(there) > -1e-9


@pytest.mark.parametrize("method", i.METHODS)
def test_methods_run_and_bounds_hold(small: None, method: str) -> None:
    cell = {"table": LEVELS, "epsilon": 1.0, "method": method, "seed": 0}
    (row,) = i.measure(cell)
    assert row["excess"] > 0
    assert row["n_steps"] >= 1
    assert row["passes"] > 0
    if method in ("sega", "published"):
        assert row["excess"] < row["bound"]


def test_all_couple_and_one_cannot_be_split() -> None:
    cells = i.cells()
    assert all(cell in cells for cell in i.quick(cells))
    assert not [c for c in cells if c["table"] == MIXTURE and c["method"] == "columns"]


def made_rows() -> Rows:
    rows = []
    for cell in i.cells():
        excess = {"full": 0.1, "columns": 0.2, "sega": 0.3}.get(cell["method"], 0.4)
        row = cell | {"excess": excess, "start": 1.0, "n_steps": 9, "passes": 5.0}
        if cell["method"] in ("sega", "published") and cell["epsilon"] < np.inf:
            row |= {"damping": 0.5, "bound": 0.6}
        rows.append(row)
    return rows


def test_the_text_says_what_rows_say() -> None:
    rows = made_rows()
    text = i.text(rows)
    assert "ε = 0.3: 3 [3, 3]" in text
    assert "0 exceed it" in text
    assert "DP-SEGA 0.3, DP-SEGA, α = 1 0.4, sketch without memory 0.4" in text
    assert "not right" in text
    pairs = {
        (row["table"], row["epsilon"], row["method"])
        for row in i.private(rows)
        if row["method"] in ("full", "columns")
    }
    assert len(i.losses(rows)) == len(pairs)
    assert i.draw(rows).axes
