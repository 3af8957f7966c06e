"""DP-SVRG: its corrections, their sensitivity and both calibrations."""

import math

import numpy as np
import pytest
from cases import features, problem_of, watched
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from skdp.models.losses import LOSSES
from skdp.privacy.budget import BudgetError
from skdp.solvers import dp_svrg
from skdp.solvers.dp_svrg import Difference, bound_margin, compute_paper_noises

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


def spent(full, n_full, z, rate, n_steps, delta=1e-6):
    """ε of full gradients and batches together, by dp-accounting."""
    exact = pld.from_gaussian_mechanism(full, value_discretization_interval=1e-4)
    batch = pld.from_gaussian_mechanism(
        z, sampling_prob=rate, value_discretization_interval=1e-4
    )
    both = exact.self_compose(n_full).compose(batch.self_compose(n_steps))
    return both.get_epsilon_for_delta(delta)


@pytest.mark.parametrize(("n_epochs", "n_inner", "rate"), [(5, 8, 0.2), (3, 30, 0.5)])
def test_dp_accounting_finds_the_same_epsilon(n_epochs, n_inner, rate):
    solved = dp_svrg(
        problem_of(),
        random_state=0,
        n_epochs=n_epochs,
        n_inner=n_inner,
        rate=rate,
        **BUDGET,
    )
    used = solved.settings
    n_corrections = n_epochs * (n_inner - 1)
    z = used["noise_multiplier"]
    found = spent(
        used["full_noise_multiplier"], n_epochs, z, used["rate"], n_corrections
    )
    assert 0.96 < found <= 1.0
    assert solved.record.spent_epsilon == pytest.approx(1.0, rel=1e-3)


def test_full_gradients_are_charged_one_by_one_and_corrections_together(monkeypatch):
    seen = watched(monkeypatch)
    solved = dp_svrg(
        problem_of(), random_state=0, n_epochs=4, n_inner=6, rate=0.3, **BUDGET
    )
    known = [one for one in seen if one.known]
    assert len(known) == 4
    assert len(seen) == 4 * 6, "the first correction of an epoch is known to be zero"
    events = {event.query: times for event, times in solved.record.events.items()}
    assert len(events) == 2
    assert sum(1 / one.noise_multiplier**2 for one in known) == pytest.approx(
        0.8 * solved.record.spent, rel=1e-9
    )


def test_corrections_need_less_noise_near_the_anchor(monkeypatch):
    seen = watched(monkeypatch)
    problem = problem_of()
    dp_svrg(
        problem,
        random_state=0,
        n_epochs=1,
        n_inner=20,
        rate=0.3,
        learning_rate=0.01,
        **BUDGET,
    )
    bounds = [one.total.sensitivity for one in seen if not one.known]
    assert bounds[0] < bounds[-1] < 0.5 * problem.row_norm
    assert all(one.total.value[:, 1].astype(bool).sum() == 0 for one in seen[1:])


@pytest.mark.parametrize("step", [0.3, 20.0])
@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_without_noise_and_drawing_it_is_gradient_descent(step, calibration):
    """Corrections are clipped nowhere: with the longer step slopes differ by one."""
    problem = problem_of()
    found = []
    dp_svrg(
        problem,
        epsilon=math.inf,
        rate=1.0,
        n_epochs=1,
        n_inner=6,
        calibration=calibration,
        learning_rate=step,
        callback=lambda s: found.append(s.weights),
    )
    X, y = features(problem), problem.records.chunks[0].target
    w, metric = problem.start, np.full(X.shape[1], 1 / step)
    for weights in found:
        gradient = X.T @ (1 / (1 + np.exp(-X @ w)) - y[:, None]) / len(y)
        w = problem.penalty.prox(w - step * gradient, metric, problem.all)
        assert np.allclose(weights, w, atol=1e-3 * step)


def test_one_step_an_epoch_is_gradient_descent_that_spends_all():
    solved = dp_svrg(
        problem_of(), random_state=0, n_epochs=20, n_inner=1, rate=1.0, **BUDGET
    )
    z = solved.settings["full_noise_multiplier"]
    assert solved.record.spent == pytest.approx(20 / z**2)
    assert solved.record.spent_epsilon == pytest.approx(1.0, rel=1e-6)


finite = st.floats(-5, 5, width=32)


@given(arrays(float, (9, 1), elements=finite))
def test_margins_move_by_no_more_than_their_bound(move):
    problem = problem_of()
    reach = bound_margin(problem.layout, move)
    assert np.abs(features(problem) @ move).max() <= reach * (1 + 1e-9) + 1e-12
    if (move >= 0).all():  # attained where numbers are one and the worst categories
        total = sum(move[g.coordinates].max() for g in problem.layout.groups)
        assert reach <= total * (1 + 1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_slopes_differ_by_no_more_than_curvature_times_margins(name):
    """So that clipping a correction at that bound changes nothing."""
    loss = LOSSES[name]()
    rng = np.random.default_rng(0)
    margins = rng.uniform(-3, 3, size=(500, 2 * loss.n_outputs))
    target = rng.integers(0, 2, size=500)
    k = loss.n_outputs
    difference = Difference(loss, 1.0).slope(margins, target)
    assert not difference[:, k:].any()
    moved = np.linalg.norm(margins[:, :k] - margins[:, k:], axis=1)
    sizes = np.linalg.norm(difference, axis=1)
    assert (sizes <= loss.curvature * moved * 1.001 + 1e-4).all()


# ---- as printed


def test_printed_noise_is_the_theorems():
    """σ² = c G² T m log(1/δ)/(nε)²: ṽ's and the correction's variances add up to it."""
    c, G, n, steps, rate, delta, epsilon = 5.0, 2.0, 1000, 50, 0.1, 1e-6, 0.5
    full, correction = compute_paper_noises(
        c, epsilon=epsilon, delta=delta, n_steps=steps, replace=False
    )
    of_full = full * G / n
    of_correction = correction * rate * 2 * G / (rate * n)
    sigma2 = c * G**2 * steps * math.log(1 / delta) / (n * epsilon) ** 2
    assert of_full**2 + of_correction**2 == pytest.approx(sigma2, rel=1e-12)
    replaced, _ = compute_paper_noises(
        c, epsilon=epsilon, delta=delta, n_steps=steps, replace=True
    )
    assert replaced * 2 * G / n == pytest.approx(of_full)


@pytest.mark.parametrize("neighbours", ["zero-out", "replace-one"])
def test_printed_constant_is_enough_or_refused(neighbours, monkeypatch):
    problem = problem_of(neighbours=neighbours)
    options = {"random_state": 0, "n_epochs": 5, "n_inner": 20, "calibration": "paper"}
    seen = watched(monkeypatch)
    solved = dp_svrg(problem, **options, **BUDGET)
    assert 0.5 < solved.record.spent_epsilon < 1.0
    assert len([one for one in seen if one.known]) == 100, "fresh noise every step"
    seen.clear()
    with pytest.raises(BudgetError, match="which the paper leaves open"):
        dp_svrg(problem, constant=1.0, **options, **BUDGET)
    assert not seen, "refused before anything is drawn"


def test_refusals():
    problem = problem_of()
    with pytest.raises(ValueError, match="full_share"):
        dp_svrg(problem, full_share=1.0, **BUDGET)
    with pytest.raises(ValueError, match="n_inner must be"):
        dp_svrg(problem, n_inner=-2, **BUDGET)
