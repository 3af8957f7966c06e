"""Minimisers are as near as they claim, whatever the table."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from cases import neighbours, problem_of, rows

from skdp.models.losses import LOSSES as LOSSES_BY_NAME
from skdp.models.losses import Logistic, SmoothedHinge, Squared, sigmoid_table
from skdp.models.penalties import lasso
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.schema import Categorical, Schema, Vector
from skdp.solvers import certified
from skdp.solvers.certified import Objective, minimise, ridge_of, tolerance_of
from skdp.solvers.problem import Problem

LOSSES = ("logistic", "hinge", "squared", "huber", "poisson")


def small(loss, n_rows=40):
    return problem_of(loss, table=rows(loss, n_rows))


def exact_gradient(problem, quadratic, linear, w):
    """∇F(w) in rational numbers: squared loss, or the logistic one as its table."""
    chunk = problem.records.chunks[0]
    total = [Fraction(q) * Fraction(v) for q, v in zip(quadratic, w, strict=True)]
    total = [a + Fraction(b) for a, b in zip(total, linear, strict=True)]
    table = [Fraction(v) for v in sigmoid_table().tolist()]
    for i in range(len(chunk.target)):
        x = []
        for group, part in zip(problem.layout.groups, chunk.parts, strict=True):
            if group.kind == "ones":
                x.append(Fraction(1))
            elif group.kind == "code":
                x += [Fraction(int(part[i] == j)) for j in range(group.width)]
            else:
                x += [Fraction(int(v), 1 << 14) for v in part[i]]
        margin = sum(a * Fraction(b) for a, b in zip(x, w, strict=True))
        if problem.loss.name == "squared":
            y = Fraction(2 * int(chunk.target[i]), 1 << 14) - 1
            slope = max(-2, min(2, margin - y))
        else:
            place = (max(margin, Fraction(-16)) + 16) * 128
            place = min(place, Fraction(len(table) - 1))
            below = min(math.floor(place), len(table) - 2)
            share = place - below
            slope = table[below] + share * (table[below + 1] - table[below])
            slope -= int(chunk.target[i])
        slope *= Fraction(float(chunk.weight[i]))
        total = [a + slope * v for a, v in zip(total, x, strict=True)]
    return total


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_the_gradient_is_as_small_as_certified_in_rational_numbers(loss):
    problem = small(loss)
    rng = np.random.default_rng(1)
    quadratic = ridge_of(problem) + 0.7
    linear = rng.normal(size=len(quadratic)) * 5
    objective = Objective(problem, quadratic, linear)
    for w in (rng.normal(size=len(quadratic)), 300 * rng.normal(size=len(quadratic))):
        exact = exact_gradient(problem, quadratic, linear, w)
        lost = [
            Fraction(a) - b for a, b in zip(objective.gradient(w), exact, strict=True)
        ]
        assert math.sqrt(sum(v * v for v in lost)) <= objective.error(w)
    tolerance = tolerance_of(problem, quadratic, float(np.linalg.norm(linear)))
    assert tolerance < 1e-7
    found = minimise(objective, tolerance)
    exact = exact_gradient(problem, quadratic, linear, found.weights)
    norm = math.sqrt(sum(v * v for v in exact))
    assert norm <= found.gradient_bound <= tolerance


@pytest.mark.parametrize("loss", LOSSES)
def test_hostile_tables_are_solved(loss):
    """All alike, all of one class, nearly no penalty, kinks: none fails to certify."""
    columns, target, weight = rows(loss, 60)
    for change in ("none", "one class", "constant", "weightless"):
        changed = {key: column.copy() for key, column in columns.items()}
        labels, weights = target.copy(), weight.copy()
        if change == "one class":
            labels[:] = 1
        if change == "constant":
            changed["x"][:] = changed["z"][:] = 1
        if change == "weightless":
            weights[:] = 0
        problem = problem_of(loss, table=(changed, labels, weights))
        if loss == "hinge":
            problem = replace(problem, loss=SmoothedHinge(0.01))
        if loss == "squared":
            problem = replace(problem, loss=Squared(0.01))
        for ridge in (1e-3, 100.0):
            quadratic = np.full(problem.layout.n_features, ridge)
            tolerance = tolerance_of(problem, quadratic)
            found = minimise(Objective(problem, quadratic), tolerance)
            assert found.gradient_bound <= tolerance


def test_any_direction_of_descent_will_do(monkeypatch):
    """How the minimiser is found is not trusted: here by steepest descent."""
    problem = small("logistic")
    quadratic = np.full(problem.layout.n_features, 30.0)
    monkeypatch.setattr(Objective, "newton", lambda self, w, gradient, step: -gradient)
    found = minimise(Objective(problem, quadratic), 1e-6)
    assert found.gradient_bound <= 1e-6


def test_what_cannot_be_certified_is_not_returned(monkeypatch):
    monkeypatch.setattr(certified, "ROUNDS", 20)
    problem = small("logistic")
    quadratic = np.full(problem.layout.n_features, 1.0)
    with pytest.raises(certified.NotCertifiedError):
        minimise(Objective(problem, quadratic), 0.0)


@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_the_tolerance_is_the_same_for_neighbours(loss):
    for relation, *tables in neighbours(loss):
        one, other = (problem_of(loss, relation, table) for table in tables)
        quadratic = ridge_of(one) + 1.0
        assert tolerance_of(one, quadratic) == tolerance_of(other, quadratic)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_classes_beyond_the_second_keep_slope_and_curvature_bounded(loss):
    """A target of three classes and a loss of two: bounds hold for every code."""
    problem = replace(problem_of("softmax"), loss=LOSSES_BY_NAME[loss]())
    objective = Objective(problem, np.ones(problem.layout.n_features))
    margin = np.linspace(-4, 4, 4001)[:, None]
    for code in (0, 1, 2, 200):
        slope = objective._slope(margin, np.full(4001, code))[:, 0]
        assert np.abs(slope).max() <= problem.loss.slope_bound
        steep = np.diff(slope) / np.diff(margin[:, 0])
        assert steep.min() >= -1e-9
        assert steep.max() <= 1.01 * problem.loss.curvature
        assert (slope >= 0).all() or (slope <= 0).all()  # one sign


def test_wide_sparse_tables():
    rng = np.random.default_rng(2)
    words = rng.random((200, 700)) * (rng.random((200, 700)) < 0.02)
    schema = Schema(
        {"t": Vector([f"w{j}" for j in range(700)])}, target=Categorical(["a", "b"])
    )
    target = Coded((words[:, 0] > 0).astype(int), ["a", "b"])
    records = encode([Batch(columns={"t": words}, target=target)], schema)
    problem = Problem(records=records, loss=Logistic(), n_rows=200)
    quadratic = np.full(701, 0.5)
    tolerance = tolerance_of(problem, quadratic)
    assert (
        minimise(Objective(problem, quadratic), tolerance).gradient_bound <= tolerance
    )


def test_refusals():
    problem = problem_of("logistic", penalty=lasso(0.1))
    with pytest.raises(ValueError, match="ridge penalty or none"):
        ridge_of(problem)
    with pytest.raises(ValueError, match="one output"):
        Objective(problem_of("softmax"), np.ones(9))
