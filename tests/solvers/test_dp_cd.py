"""DP-CD: step sizes, private or public, coordinate-wise clips, the proximal map."""

import math

import numpy as np
import pytest
from cases import features, objective, optimum, problem_of, watched

from skdp.descent.bounds import paper_noise_multiplier
from skdp.models.penalties import ElasticNet
from skdp.solvers import dp_cd
from skdp.solvers.dp_cd import compute_clips, release_squares
from skdp.solvers.problem import open_run

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def test_squares_are_the_columns_mean_squares():
    problem = problem_of()
    run = open_run(problem, epsilon=1e6, delta=1e-6, random_state=0)
    found = release_squares(problem, run)
    exact = (features(problem) ** 2).mean(axis=0)
    assert np.allclose(found, exact, atol=1e-3)


@pytest.mark.parametrize(
    ("neighbours", "each"), [("zero-out", 1.0), ("replace-one", 2.0)]
)
def test_squares_share_their_budget_and_have_equal_noise(neighbours, each):
    problem = problem_of(neighbours=neighbours)
    exact = (features(problem) ** 2).mean(axis=0)
    noise = []
    for seed in range(150):
        run = open_run(problem, **BUDGET, random_state=seed).share(0.1)
        noise.append((release_squares(problem, run) - exact)[:-1] * problem.n_rows)
    # Four columns: a record moves the vector of sums by at most √4.
    std = each * math.sqrt(4) / run.mu
    found = np.std(noise, axis=0)
    assert np.allclose(found, std, rtol=0.3)
    assert np.sqrt(np.mean(np.square(noise))) == pytest.approx(std, rel=0.06)
    assert run.record.spent == pytest.approx(run.budget, rel=1e-9)


def test_private_smoothness_is_released_and_floored(monkeypatch):
    seen = watched(monkeypatch)
    solved = dp_cd(problem_of(), random_state=0, floor=0.2, n_steps=10, **BUDGET)
    M = solved.settings["smoothness"]
    assert (M >= 0.25 * 0.2).all()
    assert (M <= 0.25).all()
    assert len(seen) == 3 + 10  # all categories, two numbers, ten steps
    share = sum(1 / one.noise_multiplier**2 for one in seen[:3])
    assert share == pytest.approx(0.1 * solved.record.spent, rel=1e-6)


@pytest.mark.parametrize("smoothness", ["public", np.linspace(0.1, 0.25, 9)])
def test_public_smoothness_costs_nothing(monkeypatch, smoothness):
    seen = watched(monkeypatch)
    solved = dp_cd(
        problem_of(), random_state=0, smoothness=smoothness, n_steps=10, **BUDGET
    )
    assert len(seen) == 10
    assert solved.settings["smoothness_share"] == 0.0
    assert solved.record.spent_epsilon == pytest.approx(1.0, rel=1e-6)


def test_clips_follow_smoothness():
    M = np.array([0.25, 0.01, 0.04])
    assert compute_clips(M, 2.0) == pytest.approx(2.0 * np.sqrt(M / 0.3))
    assert np.linalg.norm(compute_clips(M, 2.0)) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("neighbours", "each"), [("zero-out", 1.0), ("replace-one", 2.0)]
)
def test_each_coordinate_is_clipped_to_its_own_bound(monkeypatch, neighbours, each):
    seen = watched(monkeypatch)
    M = np.linspace(0.02, 0.25, 9)
    steps = []
    dp_cd(
        problem_of(neighbours=neighbours),
        random_state=0,
        smoothness=M,
        clip=1.5,
        n_steps=60,
        callback=steps.append,
        **BUDGET,
    )
    bounds = np.minimum(compute_clips(M, 1.5), 1.0)
    for one, step in zip(seen, steps, strict=True):
        assert len(step.at) == 1
        expected = each * bounds[step.at[0]]
        assert one.total.sensitivity == pytest.approx(expected, rel=1e-4)
        assert one.total.sensitivity <= expected * (1 + 1e-12)


def test_printed_noise_is_the_theorems(monkeypatch):
    """σ_j² = 12 L_j² T K log(1/δ)/(nε)², L_j = 1 here, by replacement."""
    problem = problem_of(neighbours="replace-one")
    seen = watched(monkeypatch)
    solved = dp_cd(
        problem,
        random_state=0,
        smoothness="public",
        calibration="paper",
        n_steps=20,
        n_restarts=3,
        **BUDGET,
    )
    sigma2 = 12 * 60 * math.log(1e6) / problem.n_rows**2
    for one in seen:
        std = one.noise_multiplier * one.total.sensitivity / problem.n_rows
        assert std**2 == pytest.approx(sigma2, rel=1e-6)
    assert solved.settings["noise_multiplier"] == paper_noise_multiplier(1.0, 1e-6, 60)
    # Exact accounting, and no row takes part in all steps.
    assert 0.4 < solved.record.spent_epsilon < 0.7


def test_inner_loops_end_in_their_average():
    problem, steps = problem_of(), []
    solved = dp_cd(
        problem,
        random_state=0,
        smoothness="public",
        n_steps=7,
        n_restarts=3,
        callback=steps.append,
        **BUDGET,
    )
    assert [(s.restart, s.index) for s in steps] == [
        (t, k) for t in range(3) for k in range(7)
    ]
    last = np.mean([s.weights for s in steps[14:]], axis=0)
    assert np.allclose(solved.weights, last)
    assert solved.n_steps == 21


def test_lasso_is_solved_by_the_proximal_map():
    start = problem_of()
    penalty = ElasticNet(l1=0.02, penalised=start.layout.penalised)
    problem = problem_of(penalty=penalty)
    solved = dp_cd(problem, epsilon=math.inf, random_state=0)
    assert (solved.weights[:-1] == 0).any(), "exact zeros"
    assert (solved.weights[:-1] != 0).any()
    assert objective(problem, solved.weights) - optimum(problem) < 1e-5


def test_refusals():
    problem = problem_of()
    with pytest.raises(ValueError, match="smoothness must be 'private'"):
        dp_cd(problem, smoothness="other", **BUDGET)
    with pytest.raises(ValueError, match="each of 9 coordinates"):
        dp_cd(problem, smoothness=np.zeros(9), **BUDGET)
    with pytest.raises(ValueError, match="smoothness_share"):
        dp_cd(problem, smoothness_share=0.0, **BUDGET)
    with pytest.raises(ValueError, match="clip must be positive"):
        dp_cd(problem, clip=-1.0, **BUDGET)
