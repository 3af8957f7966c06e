"""Greedy coordinate descent: sparse, and charged for its choices."""

import importlib
import math
from fractions import Fraction

import numpy as np
import pytest
from cases import neighbouring_tables, problem_of, rows

from skdp.engines.reference import ReferenceEngine
from skdp.models.losses import Logistic
from skdp.models.penalties import ElasticNet
from skdp.privacy import profiles
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.queries import Kind
from skdp.schema import Categorical, Schema, Vector
from skdp.solvers import dp_gcd
from skdp.solvers.problem import Problem, open_run

module = importlib.import_module("skdp.solvers.dp_gcd")
OPTIONS = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}


def text(n_rows=400, width=40, neighbours="zero-out"):
    rng = np.random.default_rng(1)
    words = rng.random((n_rows, width)) * (rng.random((n_rows, width)) < 0.1)
    schema = Schema(
        {"t": Vector([f"w{j}" for j in range(width)])}, target=Categorical(["a", "b"])
    )
    target = Coded((words[:, 3] > 0).astype(int), ["a", "b"])
    records = encode([Batch(columns={"t": words}, target=target)], schema)
    return Problem(
        records=records, loss=Logistic(), n_rows=n_rows, neighbours=neighbours
    )


@pytest.mark.parametrize("selection", ["gaussian", "exponential"])
def test_as_many_weights_as_steps_at_most(selection):
    seen = []
    solved = dp_gcd(
        text(), n_steps=5, selection=selection, callback=seen.append, **OPTIONS
    )
    assert np.count_nonzero(solved.weights) <= 5
    assert [step.index for step in seen] == list(range(5))
    for before, step in zip([None, *seen], seen, strict=False):
        start = np.zeros_like(step.weights) if before is None else before.weights
        moved = np.flatnonzero((step.weights != start).any(axis=1))
        assert set(moved) <= set(step.at)
        assert len(step.at) == 1


@pytest.mark.parametrize("selection", ["gaussian", "exponential"])
def test_without_noise_the_largest_derivative_moves(selection):
    solved = dp_gcd(
        text(), n_steps=6, selection=selection, **(OPTIONS | {"epsilon": math.inf})
    )
    kept = np.flatnonzero(solved.weights[:, 0])
    assert 3 in kept  # the word that decides
    assert 40 in kept  # the intercept


@pytest.mark.parametrize("n_rows", [10**7, 10**9])
@pytest.mark.parametrize("penalty", [ElasticNet(), ElasticNet(l1=0.02, l2=0.1)])
def test_roundings_of_scores_are_within_their_sensitivity(n_rows, penalty):
    """Sums that are one record apart, weights as large as they may be."""
    rng = np.random.default_rng(0)
    records = text(neighbours="add-remove").records
    problem = Problem(
        records=records,
        loss=Logistic(),
        n_rows=n_rows,
        penalty=penalty,
        neighbours="add-remove",
    )
    d = problem.layout.n_features
    M, largest = np.full(d, problem.curvature), 0
    reach = module.bound_score(problem, M)
    for _ in range(2000):
        weights = rng.uniform(1000, 1024, size=(d, 1))
        total = rng.uniform(-1, 1, size=(d, 1)) * n_rows
        scores = [
            np.rint(module.score_coordinates(problem, M, weights, given, reach))
            for given in (total, total + problem.slope_bound)
        ]
        largest = max(largest, float(np.abs(scores[1] - scores[0]).max()))
    assert largest <= module.SCORE_UNITS + 2
    assert largest > 0.7 * module.SCORE_UNITS


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
@pytest.mark.parametrize("penalty", [ElasticNet(), ElasticNet(l1=0.02, l2=0.1)])
def test_no_neighbour_moves_a_score_beyond_its_sensitivity(
    neighbours, penalty, monkeypatch
):
    """On the same weights, for extreme records: compared in rounded units."""
    largest = 0
    for found, *tables in neighbouring_tables():
        if found != neighbours:
            continue
        seen = []
        for table in tables:
            scores = []

            def watch(given, rate, noise, scores=scores):
                scores.append(given)
                return 0

            problem = problem_of("logistic", neighbours, table, penalty)
            step = module._make_exponential_step(
                problem,
                open_run(problem, **OPTIONS),
                ReferenceEngine(problem.records),
                np.full(9, 0.25),
                (0.1, 10.0),
            )
            with monkeypatch.context() as patch:
                patch.setattr(module, "choose", watch)
                for at in (0.0, 0.7, -3.0):
                    step(np.full((9, 1), at))
            seen.append(scores)
        for one, other in zip(*seen, strict=True):
            apart = max(abs(a - b) for a, b in zip(one, other, strict=True))
            assert apart <= module.SCORE_UNITS + 2
            largest = max(largest, apart)
    assert largest > 0.3 * module.SCORE_UNITS


def test_a_replaced_record_moves_a_score_by_twice_the_bound(monkeypatch):
    """From slope 1 to slope -1 on the intercept, which all records share."""
    columns, target, weight = rows()
    weights = np.zeros((9, 1))
    weights[0], weights[-1] = 40.0, -20.0
    seen = []
    monkeypatch.setattr(module, "choose", lambda scores, *_: seen.append(scores) or 0)
    for value in (0, 1):
        columns["x"][0], target[0] = value, 1 - value
        problem = problem_of("logistic", "replace-one", (columns, target, weight))
        adder = ReferenceEngine(problem.records)
        run = open_run(problem, **OPTIONS)
        module._make_exponential_step(
            problem, run, adder, np.full(9, 0.25), (0.1, 10.0)
        )(weights)
    moved = abs(seen[0][-1] - seen[1][-1])
    assert 0.99 * module.SCORE_UNITS < moved <= module.SCORE_UNITS + 2


def test_choices_are_charged_for_the_rate_they_are_drawn_with(monkeypatch):
    rates, real = [], module.choose

    def watch(scores, rate, noise):
        rates.append(rate)
        return real(scores, rate, noise)

    monkeypatch.setattr(module, "choose", watch)
    solved = dp_gcd(problem_of(), selection="exponential", n_steps=7, **OPTIONS)
    (event,) = [e for e in solved.record.events if e.kind == Kind.CHOICE]
    assert solved.record.events[event] == len(rates) == 7
    width = float(2 * rates[0] * (module.SCORE_UNITS + 2))
    assert len(set(rates)) == 1
    assert profiles.bounded_range_mu(width) ** 2 <= event.mu_squared * (1 + 1e-9)
    assert profiles.bounded_range_mu(width) ** 2 == pytest.approx(event.mu_squared)
    assert solved.record.spent == pytest.approx(solved.record.budget, rel=1e-9)


def test_a_wrong_rate_would_be_caught():
    """Between tables whose scores differ by the bound, more is gained than charged."""
    width = 0.3
    mu = profiles.bounded_range_mu(width)
    units = module.SCORE_UNITS
    rate = float(Fraction(math.floor(width * 2.0**53), 2**54 * (units + 2)))
    scores = np.array([0.0, units]) + 1e6
    moved = np.array([units, 0.0]) + 1e6
    for factor, caught in ((1.0, False), (1.5, True)):
        one, other = (np.exp(factor * rate * (s - s.max())) for s in (scores, moved))
        one, other = one / one.sum(), other / other.sum()
        gained = max(
            float(np.maximum(one - math.exp(e) * other, 0).sum())
            - profiles.gdp_delta(e, mu)
            for e in (0.0, 0.05, 0.1)
        )
        assert (gained > 0) is caught


def test_printed_scales_cost_less_than_the_budget():
    problem = problem_of("logistic", "replace-one")
    solved = dp_gcd(
        problem, selection="exponential", calibration="paper", n_steps=9, **OPTIONS
    )
    root = math.sqrt(9 * math.log(1e6))
    scale = 8 * root / problem.n_rows  # λ of the paper, L = 1
    choice, value = solved.record.events
    exponent = 2 * (2 / problem.n_rows) / scale
    assert choice.mu_squared == pytest.approx(profiles.bounded_range_mu(exponent) ** 2)
    std = value.noise_multiplier * value.sensitivity / problem.n_rows
    assert std == pytest.approx(math.sqrt(2) * scale, rel=1e-6)
    assert math.sqrt(solved.record.spent) == pytest.approx(0.097, abs=0.003)


def test_smoothness_of_joint_columns_is_measured_and_paid_for():
    solved = dp_gcd(text(), n_steps=3, **OPTIONS)
    first = next(iter(solved.record.events))
    assert first.mu_squared == pytest.approx(0.1 * solved.record.budget, rel=1e-6)
    M = solved.settings["smoothness"]
    assert M[-1] == 0.25  # the intercept's
    assert (M <= 0.25).all()
    assert (M > 0).all()
    for problem, options in (
        (text(), {"smoothness": "public"}),
        (problem_of(), {}),
    ):
        solved = dp_gcd(problem, n_steps=3, **OPTIONS, **options)
        assert (solved.settings["smoothness"] == 0.25).all()
        assert solved.record.spent == pytest.approx(solved.record.budget, rel=1e-9)


def test_means_are_those_of_the_columns():
    problem = text()
    run = open_run(problem, epsilon=math.inf, delta=1e-6, random_state=0)
    means = module._release_means(problem, run, ReferenceEngine(problem.records))
    X = problem.records.chunks[0].parts[0]
    X = X.toarray() if hasattr(X, "toarray") else X
    assert means[:40] == pytest.approx(X.mean(axis=0) / 2**14)
    assert means[40] == pytest.approx(1.0)


def test_refusals():
    with pytest.raises(ValueError, match="selection"):
        dp_gcd(problem_of(), selection="laplace", **OPTIONS)
    with pytest.raises(ValueError, match="requires selection='exponential'"):
        dp_gcd(problem_of(), calibration="paper", **OPTIONS)
    with pytest.raises(ValueError, match="smoothness"):
        dp_gcd(problem_of(), smoothness="exact", **OPTIONS)
    with pytest.raises(ValueError, match="one output"):
        dp_gcd(problem_of("softmax"), selection="exponential", **OPTIONS)
