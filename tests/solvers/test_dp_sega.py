"""DP-SEGA: the estimate, its memory, what a step releases, and any penalty."""

import math

import numpy as np
import pytest
from cases import objective, optimum, problem_of, rows, watched

from skdp.descent.geometry import make_sega_update
from skdp.descent.samplings import Blocks, Full, Nice
from skdp.descent.sega_bounds import choose_metric
from skdp.models.penalties import (
    ElasticNet,
    GroupLasso,
    NuclearNorm,
    Simplex,
    TotalVariation,
)
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import Kind
from skdp.solvers import dp_cd, dp_gcd, dp_sega

BUDGET = {"epsilon": 1.0, "delta": 1e-6, "random_state": 0}


def test_steps_follow_from_released_values_alone(monkeypatch):
    """Repeat the run from what was released, by the formulas of the module's head."""
    seen, steps = watched(monkeypatch), []
    problem = problem_of(penalty=ElasticNet(l1=0.01))
    solved = dp_sega(problem, damping=0.3, n_steps=30, callback=steps.append, **BUDGET)
    p = 1 / len(problem.layout.blocks)
    Q = solved.settings["metric"][:, None]
    h, theta, total = (np.zeros((9, 1)) for _ in range(3))
    for one, step in zip(seen, steps, strict=True):
        said = np.zeros((9, 1))
        said[step.at] = one.released.values / problem.n_rows
        inside = np.isin(np.arange(9), step.at)[:, None]
        g = h + inside * (said - h) / p
        h = h + 0.3 * inside * (said - h)
        moved = theta - g / Q
        theta = np.sign(moved) * np.maximum(np.abs(moved) - 0.01 / Q, 0.0)
        total += theta / 30
        assert step.weights == pytest.approx(theta, abs=1e-12)
    assert solved.weights == pytest.approx(total, abs=1e-12)


def test_the_estimate_is_unbiased():
    """Over all sets, the mean of g is the released gradient, whatever h is."""
    law = Blocks([[0, 1], [2]], [0.3, 0.7])
    target, weights = np.array([[1.0], [-2.0], [0.5]]), np.zeros((3, 1))

    def released(at):
        return Released(
            values=target[at], noise_std=np.zeros(1), kind=Kind.GRADIENT, query="g"
        )

    mean = np.zeros((3, 1))
    for at, q in zip(law.support, law.set_probabilities, strict=True):
        update = make_sega_update(
            np.ones(3), law.probabilities, 0.4, ElasticNet(), n_rows=1
        )
        update(weights, released(np.array([0, 1])), np.array([0, 1]))  # fills h
        mean += q * update(weights, released(at), at)
    assert -mean == pytest.approx(target)


def test_an_update_takes_only_released_values():
    update = make_sega_update(np.ones(2), np.ones(2), 0.5, ElasticNet(), 10)
    with pytest.raises(TypeError, match="only released values"):
        update(np.zeros((2, 1)), np.zeros((2, 1)), np.arange(2))


@pytest.mark.parametrize("damping", [None, 0.0, 1.0])
def test_a_step_costs_what_a_step_of_algorithm_1_costs(damping):
    record = dp_sega(problem_of(), damping=damping, n_steps=17, **BUDGET).record
    assert sum(record.events.values()) == 17
    assert record.spent_epsilon == pytest.approx(1.0, rel=1e-6)
    for event in record.events:
        assert event.kind == Kind.GRADIENT
        assert event.mu_squared == pytest.approx(record.budget / 17, rel=1e-9)


@pytest.mark.parametrize("law", [Full(9), Nice(9, 3)])
def test_other_samplings(law):
    problem = problem_of()
    solved = dp_sega(
        problem, epsilon=math.inf, sampling=law, random_state=0, n_steps=1000
    )
    assert objective(problem, solved.weights) - optimum(problem) < 1e-4


@pytest.mark.parametrize(("damping", "exact"), [(1.0, True), (0.3, True), (0.0, False)])
def test_without_memory_a_sketch_does_not_converge(damping, exact):
    """The gradient is not zero where a penalty holds it, so its sketch is noisy.

    f is ½ ‖w - a‖², and the solution is the projection of a to the simplex.
    """
    aim, law = np.array([[0.9], [0.6], [-0.5]]), Blocks.uniform([[0], [1], [2]])
    p, rng = law.probabilities, np.random.default_rng(0)
    metric = choose_metric(np.ones(3), p, damping or 0.3)
    update = make_sega_update(metric, p, damping, Simplex([range(3)]), n_rows=1)
    weights = np.zeros((3, 1))
    for at in law.sets(400, rng):
        said = Released(
            values=(weights - aim)[at],
            noise_std=np.zeros(1),
            kind=Kind.GRADIENT,
            query="g",
        )
        weights = update(weights, said, at)
    away = np.abs(weights[:, 0] - [0.65, 0.35, 0.0]).max()
    assert (away < 1e-6) == exact
    assert exact or away > 1e-2


@pytest.mark.parametrize("solver", [dp_cd, dp_gcd])
def test_solvers_of_single_coordinates_name_dp_sega(solver):
    parts = problem_of().layout.list_columns()
    problem = problem_of(penalty=GroupLasso(0.01, parts))
    with pytest.raises(ValueError, match="dp_sega"):
        solver(problem, **BUDGET)


def test_outputs_are_coupled_too():
    parts = problem_of("softmax").layout.list_columns()
    penalty = NuclearNorm(0.1, [np.concatenate(parts)])
    problem = problem_of("softmax", penalty=penalty)
    solved = dp_sega(problem, epsilon=math.inf, random_state=0, n_steps=1000)
    values = np.linalg.svd(solved.weights[:-1], compute_uv=False)
    assert values[0] > 0.1
    assert (values[1:] < 1e-9).all(), "one direction is left"
    uneven = dp_sega(
        problem, metric=np.linspace(30.0, 40.0, 9), n_steps=5, **BUDGET
    ).settings["metric"]
    assert (uneven[:-1] == 38.75).all(), "one number for all rows of the part"


def test_curves_are_fused():
    layout = problem_of().layout
    penalty = TotalVariation(0.05, layout.list_columns(["job"], ordered=True))
    problem = problem_of(penalty=penalty)
    solved = dp_sega(problem, epsilon=math.inf, random_state=0, n_steps=700)
    job = solved.weights[list(penalty.parts[0]), 0]
    assert len(np.unique(job)) < len(job)


def test_weights_of_the_average():
    steps = []
    solved = dp_sega(
        problem_of(), decay=0.1, n_steps=9, callback=steps.append, **BUDGET
    )
    shares = 0.9 ** -np.arange(9.0)
    expected = sum(s * step.weights for s, step in zip(shares, steps, strict=True))
    assert solved.weights == pytest.approx(expected / shares.sum())


def test_defaults_are_public():
    """Two tables with the same public facts have the same settings."""
    one, two = problem_of(), problem_of(table=flipped())
    settings = [dp_sega(p, **BUDGET).settings for p in (one, two)]
    for name in settings[0]:
        assert np.array_equal(settings[0][name], settings[1][name]), name
    p = np.full(9, 1 / 5)
    M = np.full(9, 0.25 * 5)
    assert settings[0]["metric"] == pytest.approx(
        choose_metric(M, p, settings[0]["damping"])
    )


def flipped():
    columns, target, weight = rows()
    return columns, 1 - target, weight


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"damping": 1.5}, "damping must be in"),
        ({"damping": -0.1}, "damping must be in"),
        ({"decay": 1.0}, "decay must be at least 0 and below 1"),
        ({"metric": np.zeros(9)}, "each of 9 coordinates"),
        ({"metric": np.ones(3)}, "each of 9 coordinates"),
        ({"sampling": Full(3)}, "sampling must have 9 coordinates"),
        ({"n_steps": 2.5}, "n_steps must be an integer"),
    ],
)
def test_refusals(options, said):
    with pytest.raises(ValueError, match=said):
        dp_sega(problem_of(), **options, **BUDGET)
