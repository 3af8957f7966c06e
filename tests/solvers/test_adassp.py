"""AdaSSP: its releases, its ridge, and what is printed of both."""

import importlib
import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from cases import distance, features, problem_of, rows, watched

from skdp.privacy import accountant
from skdp.privacy.queries import Kind
from skdp.solvers import adassp, certified

module = importlib.import_module("skdp.solvers.adassp")
OPTIONS = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}


def test_printed_noise_and_ridge():
    problem = problem_of("squared")
    solved = adassp(problem, calibration="paper", **OPTIONS)
    z = math.sqrt(math.log(6e6)) / (1 / 3)
    settings = solved.settings
    assert settings["gram_noise_multiplier"] == pytest.approx(z)
    assert settings["moment_noise_multiplier"] == pytest.approx(z)
    assert solved.record.spent == pytest.approx(3 / z**2)
    assert len(solved.record.events) == 3
    d = problem.layout.n_features
    squared = problem.row_norm**4 - 1  # the number of rows is known
    std = z * math.sqrt(squared)
    norm = std * math.sqrt(d * math.log(2 * d * d / 0.05))
    assert settings["noise_norm"] == pytest.approx(norm, rel=1e-9)
    assert 0 <= settings["ridge"] <= norm * (1 + 1e-9)


def test_a_third_of_the_budget_does_not_cover_the_printed_noise_but_all_of_it_does():
    for epsilon in (1.0, 3.0, 8.0):
        z = module.compute_wang_noise(epsilon, 1e-6)
        assert accountant.gdp_delta(epsilon / 3, 1 / z) > 1e-6 / 3
        assert accountant.gdp_delta(epsilon, math.sqrt(3) / z) < 1e-6
    z = module.compute_wang_noise(0.1, 1e-6)
    assert accountant.gdp_delta(0.1 / 3, 1 / z) < 1e-6 / 3


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one", "add-remove"])
def test_what_is_released(neighbours, monkeypatch):
    seen = watched(monkeypatch)
    problem = problem_of("squared", neighbours)
    adassp(problem, gram_share=0.4, **OPTIONS)
    gram, moment = seen
    X = features(problem)
    y = problem.records.chunks[0].target / 2**13 - 1
    sums = -moment.total.value.astype(float)[:, 0] * moment.total.unit
    assert sums == pytest.approx(X.T @ y, abs=1e-2)
    pattern = module.queries.GramPattern.of(problem.layout, neighbours)
    entries = gram.total.value.astype(float) * gram.total.unit
    filled = module._fill_gram(problem.layout, pattern, entries, problem.n_rows)
    assert filled == pytest.approx(X.T @ X, abs=1e-9)
    assert gram.noise_multiplier**-2 / moment.noise_multiplier**-2 == pytest.approx(
        2 / 3
    )
    times = 2 if neighbours == "replace-one" else 1
    assert moment.total.sensitivity == pytest.approx(times * problem.row_norm)


def spread(n_rows):
    """Columns with no coordinate that others determine: codes may be missing."""
    rng = np.random.default_rng(0)
    columns, _, _ = rows("squared", n_rows)
    columns["x"] = rng.integers(2, size=n_rows).astype(float)
    columns["z"] = rng.integers(2, size=n_rows).astype(float)
    columns["job"] = rng.choice(5, size=n_rows)
    columns["kin"] = rng.choice(3, size=n_rows)
    return columns, columns["x"] / 2, np.ones(n_rows)


def test_one_record_moves_the_least_eigenvalue_by_its_squared_norm(monkeypatch):
    values = []
    for value in (0.0, 1.0):
        columns, target, weight = spread(500)
        columns["x"][:] = 0.0
        columns["x"][0] = value  # the only record that has any x
        with monkeypatch.context() as patch:
            seen = watched(patch)
            problem = problem_of("squared", "replace-one", (columns, target, weight))
            adassp(problem, calibration="paper", **OPTIONS)
        values.append(seen[0].total)
    one, other = values
    assert one.kind == Kind.EIGENVALUE
    moved = abs(float(one.value[0] - other.value[0])) * one.unit
    assert 0.9 < moved <= 1.0  # the square of what was changed
    assert one.sensitivity >= problem.row_norm**2
    exact = np.linalg.eigvalsh(features(problem).T @ features(problem))[0]
    assert float(other.value[0]) * one.unit == pytest.approx(exact, abs=1e-6)


def test_one_row_more_moves_it_no_further_where_their_number_is_private(monkeypatch):
    """However many there are: rounding is bounded for tables that do not fade out."""
    monkeypatch.setattr(certified, "LEAST_ROWS", 40)
    columns, target, weight = spread(100)
    values = []
    for n_rows in range(4, 100):
        part = {key: column[:n_rows] for key, column in columns.items()}
        problem = problem_of(
            "squared", "add-remove", (part, target[:n_rows], weight[:n_rows])
        )
        with monkeypatch.context() as patch:
            seen = watched(patch)
            known = replace(problem, n_rows=12)
            adassp(known, calibration="paper", **OPTIONS)
        values.append(seen[0].total)
    # Weyl's bound, and what fading takes off the largest value: 12 R² over 48 rows.
    stated = (1 + 12 / 48) * known.row_norm**2
    assert stated <= values[0].sensitivity <= 1.001 * stated
    for one, other in pairwise(values):
        assert one.sensitivity == other.sensitivity
        assert distance(one, other) <= one.sensitivity
    assert float(values[-1].value[0]) == 0
    assert max(float(one.value[0]) for one in values) > 0


def test_the_ridge_adapts():
    """Much data and a good condition need no ridge; little data all of it."""
    ridges = []
    for n_rows in (300, 400_000):
        problem = problem_of("squared", table=spread(n_rows))
        solved = adassp(problem, **(OPTIONS | {"epsilon": 8.0, "delta": 1e-7}))
        ridges.append(solved.settings["ridge"] / solved.settings["noise_norm"])
    assert ridges == [1, 0]


def test_the_exact_bound_covers_the_noise_and_the_printed_one_is_twice_as_large():
    d, rng = 100, np.random.default_rng(1)
    exact = math.sqrt(2 * d) + math.sqrt(2 * math.log(1 / module.RHO))
    printed = math.sqrt(d * math.log(2 * d * d / module.RHO))
    assert printed / exact == pytest.approx(2.2, abs=0.15)
    norms = []
    for _ in range(40):
        noise = np.triu(rng.normal(size=(d, d)) / math.sqrt(2), 1)
        noise = noise + noise.T + np.diag(rng.normal(size=d))
        norms.append(np.linalg.eigvalsh(noise)[-1])
    assert np.mean(np.array(norms) > exact) <= module.RHO
    assert max(norms) > 0.8 * exact


def test_refusals():
    with pytest.raises(ValueError, match="squared loss"):
        adassp(problem_of("huber"), **OPTIONS)
    with pytest.raises(ValueError, match="squared loss"):
        adassp(problem_of("logistic"), **OPTIONS)
    with pytest.raises(ValueError, match="gram_share"):
        adassp(problem_of("squared"), gram_share=1.0, **OPTIONS)
