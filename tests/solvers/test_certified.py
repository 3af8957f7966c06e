"""Minimisers are as near as they claim, whatever the table."""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from cases import features, neighbouring_tables, problem_of, rows

from skdp.models.losses import LOSSES as LOSSES_BY_NAME
from skdp.models.losses import Logistic, SmoothedHinge, Squared, sigmoid_table
from skdp.models.penalties import lasso
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.schema import Categorical, Schema, Vector
from skdp.solvers import certified
from skdp.solvers.certified import (
    Bounds,
    Objective,
    bound_reach,
    find_least_ridge,
    locate_minimiser,
    minimise,
    read_ridge,
    refuse_steep,
)
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
        if problem.loss.kind == "squared":
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
    quadratic = read_ridge(problem) + 0.7
    linear = rng.normal(size=len(quadratic)) * 5
    objective = Objective(problem, quadratic, linear)
    for w in (rng.normal(size=len(quadratic)), 300 * rng.normal(size=len(quadratic))):
        exact = exact_gradient(problem, quadratic, linear, w)
        lost = [
            Fraction(a) - b for a, b in zip(objective.gradient(w), exact, strict=True)
        ]
        assert length(lost, quadratic) <= objective.error(w)
    w = minimise(objective)
    exact = exact_gradient(problem, quadratic, linear, w)
    assert length(exact, quadratic) <= 4 * objective.error(w) < 1e-8


def length(gradient, quadratic):
    """‖g‖_{1/q} of fractions."""
    parts = zip(gradient, quadratic, strict=True)
    return math.sqrt(sum(v * v / Fraction(q) for v, q in parts))


def certain(objective, w):
    return objective.norm(objective.gradient(w)) <= 3 * objective.error(w)


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
        for ridge in (find_least_ridge(problem), 100.0 / 60):
            quadratic = np.full(problem.layout.n_features, 60 * ridge)
            refuse_steep(problem, quadratic)
            objective = Objective(problem, quadratic)
            assert certain(objective, minimise(objective))


@pytest.mark.parametrize(
    "direction",
    [
        lambda self, w, gradient, step: -gradient,
        lambda self, w, gradient, step: gradient,
        lambda self, w, gradient, step: np.full(len(w), np.nan),
        lambda self, w, gradient, step: np.full(len(w), 1e200),
    ],
)
def test_no_direction_is_trusted(monkeypatch, direction):
    """Plain steps find the minimum of every table, even from a bad proposal."""
    problem = small("logistic")
    quadratic = np.full(problem.layout.n_features, 30.0)
    monkeypatch.setattr(Objective, "newton", direction)
    objective = Objective(problem, quadratic)
    assert certain(objective, minimise(objective))


def test_a_hessian_that_cannot_be_factorised_raises_no_error(monkeypatch):
    def refuse(*_):
        raise np.linalg.LinAlgError

    problem = small("hinge")
    objective = Objective(problem, np.full(problem.layout.n_features, 30.0))
    monkeypatch.setattr(np.linalg, "solve", refuse)
    assert certain(objective, minimise(objective))


def test_a_step_that_raises_the_objective_is_not_taken():
    problem = small("logistic")
    objective = Objective(problem, np.full(problem.layout.n_features, 1.0))
    best, rng = minimise(objective), np.random.default_rng(0)

    def value(w):
        loss = problem.loss.value((features(problem) @ w)[:, None], codes)
        return loss.sum() + (w**2).sum() / 2

    codes = problem.records.chunks[0].target
    seen = set()
    for size in np.geomspace(1e-2, 1e2, 60):
        step = size * rng.normal(size=len(best))
        moved = best + rng.normal(size=len(best)) + step
        falls = objective.falls(moved, step, objective.gradient(moved))
        assert not falls or value(moved) <= value(moved - step) + 1e-4
        seen.add(falls)
    assert seen == {True, False}


def test_how_rows_come_in_batches_does_not_matter():
    """Blocks are as few as the bound on their sum says, whatever a reader's are."""
    columns, target, _ = rows("logistic", 600)
    whole = problem_of("logistic", table=(columns, target, np.ones(600)))
    (chunk,) = whole.records.chunks
    single = [
        replace_rows(chunk, slice(i, i + size))
        for i, size in zip(range(0, 600, 3), [3] * 200, strict=True)
    ]
    records = type(whole.records)(whole.records.layout, tuple(single))
    quadratic = np.full(whole.layout.n_features, 2.0)
    one = Objective(whole, quadratic)
    many = Objective(replace(whole, records=records), quadratic)
    assert len(many._blocks) == 1
    w = np.linspace(-1, 1, len(quadratic))
    assert np.array_equal(one.gradient(w), many.gradient(w))


def replace_rows(chunk, at):
    parts = tuple(part[at] for part in chunk.parts)
    return type(chunk)(parts, chunk.target[at], chunk.weight[at])


@pytest.mark.parametrize("weight", [1.0, 1e30, math.inf, math.nan, -5.0])
def test_weights_are_bounded_where_their_bound_is_used(weight):
    """Records that nobody encoded: slope and curvature keep to `max_weight`."""
    problem = small("logistic")
    (chunk,) = problem.records.chunks
    weights = np.full(len(chunk.weight), weight, np.float32)
    wild = type(chunk)(chunk.parts, chunk.target, weights)
    records = type(problem.records)(problem.layout, (wild,), max_weight=1e-3)
    bounded = replace(problem, records=records)
    quadratic = np.full(problem.layout.n_features, 1.0)
    objective = Objective(bounded, quadratic)
    most = len(chunk.weight) * bounded.slope_bound * bounded.row_norm
    assert np.linalg.norm(objective.gradient(np.zeros(len(quadratic)))) <= most
    assert most < 1


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one", "add-remove"])
@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_bounds_are_the_same_for_neighbours(loss, neighbours):
    for _, *tables in neighbouring_tables(loss):
        one, other = (problem_of(loss, neighbours, table) for table in tables)
        if neighbours == "add-remove":
            table = tables[1]
            fewer = {key: column[1:] for key, column in table[0].items()}
            other = problem_of(loss, neighbours, (fewer, table[1][1:], table[2][1:]))
            other = replace(other, n_rows=one.n_rows)
        quadratic = read_ridge(one) + 1.0
        assert Bounds.of(one, quadratic) == Bounds.of(other, quadratic)


def test_tables_beyond_the_rows_that_are_covered_fade_out(monkeypatch):
    """Under add-remove one row more never moves a result by more than the slack."""
    monkeypatch.setattr(certified, "LEAST_ROWS", 8)
    quadratic, seen = None, []
    for n_rows in range(1, 40):
        problem = problem_of("logistic", "add-remove", rows("logistic", n_rows))
        problem = replace(problem, n_rows=3)
        if quadratic is None:
            quadratic = np.full(problem.layout.n_features, 1.0)
            bounds = Bounds.of(problem, quadratic)
        assert Bounds.of(problem, quadratic) == bounds
        seen.append(
            locate_minimiser(Objective(problem, quadratic), bounds, proved=True)
        )
    assert certified.count_covered_rows(problem) == (12, 24)
    reach = bound_reach(problem, quadratic) * problem.slope_bound
    for one, other in pairwise(seen):
        assert np.linalg.norm(one - other) <= reach + bounds.slack
    assert not seen[23].any()
    assert seen[22].any()
    ratio = np.linalg.norm(seen[22]) / np.linalg.norm(seen[10])
    assert ratio < 0.2


def test_results_are_within_the_slack_however_long_the_tilt_is():
    """Same minimiser, tilts of any length: what is found differs by the slack."""
    problem = small("logistic")
    rng = np.random.default_rng(3)
    d = problem.layout.n_features
    quadratic = np.exp(rng.uniform(-1, 3, size=d))
    bounds = Bounds.of(problem, quadratic, 5.0)
    for size in (0.1, 1.0, 10.0, 1e4, 1e9, 1e15):
        w = rng.normal(size=d)
        w *= size * bounds.radius / Objective(problem, quadratic).length(w)
        found = []
        for rows_of in (slice(0, 40), slice(1, 40)):  # a record more, a record less
            chunk = replace_rows(problem.records.chunks[0], rows_of)
            records = type(problem.records)(problem.layout, (chunk,))
            other = replace(problem, records=records, neighbours="add-remove")
            tilt = -Objective(other, quadratic).gradient(w)
            objective = Objective(other, quadratic, tilt)
            found.append(locate_minimiser(objective, bounds, proved=True))
        apart = objective.length(found[0] - found[1])
        assert apart <= bounds.slack
        assert objective.length(found[0]) <= bounds.radius * (1 + 1e-9)


def test_a_ridge_too_small_for_every_table_is_refused_from_public_facts():
    problem = small("hinge")
    d, n = problem.layout.n_features, problem.n_rows
    for neighbours in ("zero-out", "add-remove"):
        own = replace(problem, neighbours=neighbours)
        least = find_least_ridge(own)
        refuse_steep(own, np.full(d, n * least))
        with pytest.raises(ValueError, match="ridge must be at least"):
            refuse_steep(own, np.full(d, n * least / 1.1))
    with pytest.raises(ValueError, match="too large for this solver"):
        refuse_steep(replace(small("squared"), loss=Squared(1e99)), np.ones(d))
    with pytest.raises(ValueError, match="Rounding errors could be"):
        Bounds.of(replace(small("squared"), loss=Squared(1e60)), np.ones(d))


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
    objective = Objective(problem, np.full(701, 0.5))
    assert certain(objective, minimise(objective))
    empty = replace(problem, records=encode([], schema), neighbours="add-remove")
    objective = Objective(empty, np.full(701, 0.5), np.ones(701))
    assert np.allclose(minimise(objective), -2.0)


def test_refusals():
    problem = problem_of("logistic", penalty=lasso(0.1))
    with pytest.raises(ValueError, match="ridge penalty or none"):
        read_ridge(problem)
    with pytest.raises(ValueError, match="one output"):
        Objective(problem_of("softmax"), np.ones(9))
