"""Figure H: its systems run and keep their bounds, and its text says what rows say."""

from typing import Any

import pytest

from experiments.figures import h_sketches as h
from experiments.problems import Objective, make_problem
from skdp.datasets import make_hospital
from tables import Table


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Objective:
    """A short table in place of the named ones."""
    made = make_hospital(300)
    columns, target = made.batch.columns, made.batch.target
    rows = {
        name: column if not hasattr(column, "codes") else _levels(column)
        for name, column in columns.items()
    }
    goal = Objective(make_problem(Table(rows, _levels(target), made.schema)))
    monkeypatch.setattr(h, "objective_of", lambda name: goal)
    return goal


def _levels(column: Any) -> list[Any]:
    return [column.values[code] for code in column.codes]


@pytest.mark.parametrize("system", h.SYSTEMS)
def test_every_system_runs(small: Objective, system: str) -> None:
    cell = {"table": "any", "system": system, "epsilon": 1.0, "sweeps": 1, "seed": 0}
    (row,) = h.measure(cell)
    whole = system == "all eigenvectors"
    n_columns = len(small.problem.layout.groups)
    assert row["n_steps"] == (1 if whole else n_columns)
    assert row["excess"] > 0
    apart = system.startswith("columns")
    assert row["passes"] == pytest.approx(1.0 if apart or whole else n_columns)
    if "bound" in row:
        assert row["excess"] < row["bound"]
    assert ("bound" in row) == (system in ("columns", "rotation"))


def made_rows(factor: float) -> list[dict[str, Any]]:
    """A rotation has `factor` times the excess of columns; all others have one."""
    return [
        cell
        | {
            "excess": (factor if cell["system"] == "rotation" else 1.0)
            / cell["sweeps"],
            "n_steps": 7,
            "passes": 3.0,
            "start": 9.0,
        }
        for cell in h.cells()
    ]


def test_text_says_what_the_rows_say() -> None:
    rows, n = made_rows(3.0), 12
    assert f"| 3 [3, 3] | 3.00 to 3.00 | 0 of {n} | costs |" in h.text(rows)
    assert len(h.compared(rows, "rotation", "columns")) == n
    (point,) = h.losses(rows)
    assert point.startswith("rotation (a random rotation instead of columns")
    assert point.endswith(f"in {n} of {n} settings, up to 3.00 times as much.")
    assert h.losses(made_rows(1.0)) == []
    assert f"| 0.5 [0.5, 0.5] | 0.50 to 0.50 | {n} of {n} | pays |" in h.text(
        made_rows(0.5)
    )
    assert len(h.draw(rows).axes) == n
