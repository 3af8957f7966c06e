"""Output perturbation: how far one record moves a minimiser."""

import importlib
import math

import numpy as np
import pytest
from cases import problem_of, rows

from skdp.models.penalties import ridge as ridge_penalty
from skdp.solvers import certified, output_perturbation
from skdp.solvers.certified import Objective, minimise, tolerance_of

module = importlib.import_module("skdp.solvers.output_perturbation")


def minimiser(problem, quadratic):
    tolerance = tolerance_of(problem, quadratic)
    found = minimise(Objective(problem, quadratic), tolerance)
    return found.weights * np.sqrt(quadratic), tolerance


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", ["logistic", "huber", "squared", "hinge", "poisson"])
def test_no_neighbour_moves_a_minimiser_beyond_the_bound(loss, relation):
    """Tables of few rows, little and much penalty: the worst come near the bound."""
    rng, largest = np.random.default_rng(4), 0.0
    for trial in range(24):
        n_rows = int(rng.integers(1, 4))
        columns, target, weight = rows(loss, 4)
        columns = {key: column[:n_rows].copy() for key, column in columns.items()}
        target, weight = target[:n_rows].copy(), weight[:n_rows].copy()
        columns["x"][0] = columns["z"][0] = 1.0
        target[0] = trial % 2
        other, label, gone = dict(columns), target.copy(), weight.copy()
        if relation == "zero-out":
            gone[0] = 0.0
        else:
            label[0] = 1 - target[0]
        one = problem_of(loss, relation, (columns, target, weight))
        two = problem_of(loss, relation, (other, label, gone))
        quadratic = np.exp(rng.uniform(-1, 6, size=one.layout.n_features))
        first, tolerance = minimiser(one, quadratic)
        second, _ = minimiser(two, quadratic)
        bound = module.sensitivity(one, quadratic, tolerance)
        largest = max(largest, float(np.linalg.norm(first - second)) / bound)
    assert largest <= 1
    assert largest > (0.9 if loss == "huber" else 0.3)


def test_the_bound_is_the_papers_where_the_penalty_is_the_same_everywhere():
    problem = problem_of("logistic", "replace-one", penalty=ridge_penalty(0.1))
    found = output_perturbation(problem, epsilon=1.0, ridge=0.0, seed=0)
    n, norm = problem.n_rows, problem.row_norm
    in_weights = found.settings["sensitivity"] / math.sqrt(n * 0.1)
    assert in_weights == pytest.approx(2 * norm / (n * 0.1), rel=1e-6)


def test_the_tolerance_is_paid_for(monkeypatch):
    problem = problem_of()
    exact = output_perturbation(problem, epsilon=1.0, seed=0).settings
    real = certified.tolerance_of
    monkeypatch.setattr(
        module, "tolerance_of", lambda *a: real(*a) + 0.5
    )  # a solver that stops early
    early = output_perturbation(problem, epsilon=1.0, seed=0).settings
    least = problem.n_rows * exact["ridge"]
    added = 2 * 0.5 / math.sqrt(least)
    assert early["sensitivity"] - exact["sensitivity"] == pytest.approx(added, rel=1e-6)


def test_every_coordinate_must_be_penalised():
    with pytest.raises(ValueError, match="every coordinate"):
        output_perturbation(problem_of(), epsilon=1.0, ridge=0.0, seed=0)
    with pytest.raises(ValueError, match="one output"):
        output_perturbation(problem_of("softmax"), epsilon=1.0, seed=0)
    with pytest.raises(ValueError, match="ridge must be"):
        output_perturbation(problem_of(), epsilon=1.0, ridge=-1.0, seed=0)
