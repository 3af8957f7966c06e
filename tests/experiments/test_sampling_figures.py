"""Figures D and E: what they measure, and that their text says what rows say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import experiments.samplings
from experiments import folders
from experiments.figures import d_importance as d
from experiments.figures import e_blocks as e
from experiments.theory import rates
from skdp.descent import bounds, rule, samplings, smoothness
from skdp.schema import Categorical, Numeric, Schema

SAMPLINGS = sorted(folders.modules("samplings"))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Made up tables of few rows, so that runs take few steps."""
    monkeypatch.setattr(d, "MADE_ROWS", 300)
    monkeypatch.setattr(d, "MADE_COLUMNS", 4)
    monkeypatch.setattr(e, "MADE_ROWS", 300)
    monkeypatch.setattr(e, "MADE_COLUMNS", 3)
    monkeypatch.setattr(e, "MADE_LEVELS", 4)
    d.raw.cache_clear()
    e.objective.cache_clear()
    yield
    d.raw.cache_clear()
    e.objective.cache_clear()


def place(sampling: str, source: str) -> dict[str, Any]:
    where = {"table": "equal weights", "epsilon": 1.0, "spread": 1e4, "seed": 0}
    return where | {"sampling": sampling, "M": source}


@pytest.mark.parametrize("source", d.SOURCES)
def test_all_samplings_spend_the_same_budget(small: None, source: str) -> None:
    for sampling in SAMPLINGS:
        (row,) = d.measure(place(sampling, source))
        assert row["excess"] > 0
        assert 0.999 < row["spent"] <= 1


def test_units_change_importance_alone(small: None) -> None:
    """Ranges spread M over 1e4; importance hardly visits the flattest column."""
    (row,) = d.measure(place("importance", "public"))
    assert row["M_spread"] == pytest.approx(1e4)
    assert row["p_min"] < 1e-4 < 0.1 < d.measure(place("uniform", "public"))[0]["p_min"]


def test_private_smoothness_is_near_the_exact_one(small: None) -> None:
    problem = d.raw("equal effects", 1e2).problem
    run = d.open_run(problem, epsilon=5000.0, delta=d.DELTA, random_state=0)
    exact = d.mean_squares(problem, "exact", run)
    assert np.allclose(exact[:-1], 1 / 3, atol=0.1)  # uniform on [0, 1]
    assert exact[-1] == 1
    released = d.mean_squares(problem, "private", run)
    assert np.allclose(released, exact, atol=0.01)
    assert not np.array_equal(released, exact)
    assert np.array_equal(d.mean_squares(problem, "public", run), np.ones(len(exact)))


def test_a_new_sampling_appears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    folder = tmp_path / "samplings"
    folder.mkdir()
    (folder / "twice.py").write_text(
        "from skdp.descent.samplings import Blocks\n"
        "NAME = 'twice the first'\n"
        "def make(facts):\n"
        "    q = [2.0] + [1.0] * (len(facts.blocks) - 1)\n"
        "    return Blocks(facts.blocks, [p / sum(q) for p in q])\n"
    )
    both = [*experiments.samplings.__path__, str(folder)]
    monkeypatch.setattr(experiments.samplings, "__path__", both)
    monkeypatch.setattr(folders, "HERE", tmp_path)
    folders.modules.cache_clear()
    try:
        assert {cell["sampling"] for cell in d.cells()} == {"twice"}
        assert d.measure(place("twice", "public"))[0]["p_min"] == pytest.approx(1 / 6)
        assert d.name("twice") == "twice the first"
    finally:
        folders.modules.cache_clear()


def importance_rows(factor: float) -> list[dict[str, Any]]:
    """Importance has `factor` times the excess of uniform, private M half of public."""
    return [
        cell | {"excess": excess, "n_steps": 7, "M_spread": 10.0, "spent": 1.0}
        for cell in d.cells()
        if cell["sampling"] in ("importance", "uniform")
        for excess in [
            (1 + cell["seed"])
            * (factor if cell["sampling"] == "importance" else 1.0)
            * {"public": 1.0, "private": 0.5, "exact": 0.25}[cell["M"]]
        ]
    ]


def test_importance_text_says_what_the_rows_say() -> None:
    n = len(d.places()) * len(d.SOURCES)
    text = d.text(importance_rows(3.0))
    assert f"importance, q ∝ M: better in 0, worse in {n}, neither in 0." in text
    assert "| importance, q ∝ M | exact (not private) | 3 [3, 3] |" in text
    assert "bank 2 [2, 2] and 2 [2, 2];" in text
    assert "Made up, equal weights, M public: least mean excess with uniform" in text
    assert len(d.losses(importance_rows(3.0))) == 1
    text = d.text(importance_rows(0.5))
    assert f"importance, q ∝ M: better in {n}, worse in 0, neither in 0." in text
    assert "Made up, equal weights, M public: least mean excess with importance" in text
    assert d.losses(importance_rows(0.5)) == []
    assert d.draw(importance_rows(0.5)).axes


def schema() -> Schema:
    levels = Categorical(list(range(5)))
    columns = {"a": levels, "b": Numeric(0, 1), "c": levels}
    return Schema(columns, target=Categorical([0, 1]))


@pytest.mark.parametrize("b", range(1, 13))
def test_partitions_keep_to_columns(b: int) -> None:
    layout = schema().layout()
    blocks = e.partition(layout, b)
    assert len(blocks) == b
    assert sorted(np.concatenate(blocks)) == list(range(layout.n_features))
    touched = [len(set(layout.group_of[block])) for block in blocks]
    assert sum(touched) == max(b, 4)  # no column is cut while there are enough
    other = e.shuffled(blocks, np.random.default_rng(0))
    assert [len(x) for x in other] == [len(x) for x in blocks]
    assert sorted(np.concatenate(other)) == list(range(layout.n_features))


@pytest.mark.parametrize("kind", e.KINDS)
def test_the_bound_is_that_of_the_steps_taken(small: None, kind: str) -> None:
    cell = {"table": "made up", "kind": kind, "b": 4, "epsilon": 1.0, "seed": 3}
    (row,) = e.measure(cell)
    goal = e.objective("made up")
    layout = goal.problem.layout
    blocks = e.partition(layout, 4)
    if kind == "random":
        blocks = e.shuffled(blocks, np.random.default_rng([3, 4]))
    law = samplings.Blocks.uniform(blocks)
    M = smoothness.from_bounds(law, layout.blocks, 0.25)
    budget = bounds.Budget(
        n_rows=300, epsilon=1.0, delta=e.DELTA, neighbours="zero-out"
    )
    nu = rule.find_presence(budget, law, layout, row["n_steps"]).noise_scale
    norms = [float(np.sqrt(layout.squared_norm(block))) for block in blocks]
    noise = nu**2 * row["n_steps"] * bounds.sigma_squared(law, M, norms)
    bound = rates.eso_bound(
        row["n_steps"],
        distance_squared=bounds.distance_squared(
            M, law.probabilities, goal.minimiser[:, 0]
        ),
        excess=goal.excess(goal.problem.start),
        noise=noise,
        step_noise=noise / 4,
        smallest_probability=0.25,
    )
    assert row["bound"] == pytest.approx(bound)
    assert row["passes"] == pytest.approx(row["n_steps"] * row["touched"] / 4)
    assert 0 < row["excess"] < row["bound"]
    assert (row["touched"] == 1) == (kind == "columns")


def block_rows(random: float, power: float, bound: float) -> list[dict[str, Any]]:
    """Excess b^power, `random` times that of random blocks, and bounds."""
    rows = []
    for cell in e.cells():
        factor = random if cell["kind"] == "random" else 1.0
        excess = factor * cell["b"] ** power * (1 + 0.1 * cell["seed"])
        n_columns = {"adult": 13, "made up": 11}[cell["table"]]
        numbers = {"n_steps": 60, "passes": 60 / cell["b"], "n_columns": n_columns}
        rows.append(
            cell
            | numbers
            | {"excess": excess, "bound": bound * excess, "planned": 2 * excess}
            | {"start": 9.0}
        )
    return rows


def test_block_text_says_what_the_rows_say() -> None:
    text = e.text(block_rows(2.0, 0.5, 4.0))
    means = len(e.cells()) // len(e.SEEDS)
    assert f"Of {means} measured means 0 are above it; they are 0.25 to 0.25" in text
    assert "The least mean excess, 1.45, is at b = 1." in text
    assert "(b = 13) has 3.61 [3.61, 3.61] times the excess of full" in text
    assert "for 5 passes over the table instead of 60." in text
    assert "same sizes have 2 [2, 2] times the excess of columns" in text
    assert "the ratio of the bounds is 2.00." in text
    assert "| 1 | 60 | 60 | 1.45 [1.23, 1.67] | the same |" in text
    assert (
        "| 2 | 60 | 30 | 2.05 [1.74, 2.36] | 4.1 [3.49, 4.71] | 2 [2, 2] | 2.00 |"
        in (text)
    )
    assert "its bound as b to the power 0.50." in text
    points = e.losses(block_rows(2.0, 0.5, 4.0))
    assert len(points) == len(e.COUNTS) * len(e.EPSILONS)
    assert all("full gradients" in point for point in points)
    text = e.text(block_rows(0.5, -1.0, 0.5))
    assert f"Of {means} measured means {means} are above it" in text
    assert "is at b = 92." in text
    points = e.losses(block_rows(0.5, -1.0, 0.5))
    assert points
    assert all("random blocks" in point for point in points)
    assert len(e.draw(block_rows(0.5, -1.0, 0.5)).axes) == 4
