"""`skdp.descend`: Algorithm 1 as printed, on gradients and on tables."""

import math
from dataclasses import replace

import numpy as np
import pytest

import skdp
from skdp.descent import algorithm1, samplings
from skdp.descent.geometry import Diagonal
from skdp.descent.plan import Plan, is_separable, run
from skdp.descent.samplings import Blocks, Full, Nice, SingleCoordinate
from skdp.descent.sketches import randomised_hadamard
from skdp.models.penalties import ElasticNet, Penalty, Simplex

D = 4
M = np.array([1.0, 2.0, 4.0, 8.0])
GOAL = np.array([1.0, -1.0, 0.5, 2.0])


def gradient(w):
    return M * (w - GOAL)


def bound(at):
    return 1.0 + 0.5 * at[0]


def hospital(n_rows=400):
    data = skdp.make_hospital(n_rows)
    return skdp.encode([data.batch], data.schema)


@pytest.mark.parametrize("name", samplings.SAMPLINGS)
def test_it_is_algorithm_1_written_out(name):
    """θ ← θ - ΓC(∇f + η), K = 4, T = 3, from w⁰, with σ_S of the caller."""
    law, steps = samplings.SAMPLINGS[name](D), []
    gamma, start = np.linspace(0.02, 0.1, D), np.full(D, 3.0)
    sigma = {tuple(at): 0.1 * (1 + i) for i, at in enumerate(law.support)}
    w, privacy = skdp.descend(
        gradient,
        law,
        step_sizes=gamma,
        n_steps=4,
        n_restarts=3,
        noise=lambda at: sigma[tuple(at)],
        lipschitz=bound,
        n_rows=500,
        start=start,
        callback=steps.append,
        random_state=1,
    )
    assert len(steps) == 12
    by_hand = start
    for t in range(3):
        theta, iterates = by_hand, []
        for step in steps[4 * t : 4 * t + 4]:
            noise = step.released.noise_std / 500
            assert np.allclose(noise, sigma[tuple(step.at)], rtol=1e-6)
            eta = step.released.values[:, 0] / 500 - gradient(theta)[step.at]
            assert np.all(np.abs(eta) < 7 * noise[:, 0])
            assert np.all(eta != 0)
            sketched = np.zeros(D)
            sketched[step.at] = gradient(theta)[step.at] + eta
            theta = theta - gamma * sketched / law.probabilities
            iterates.append(theta)
        by_hand = np.mean(iterates, axis=0)
    np.testing.assert_allclose(w, by_hand, rtol=1e-9)
    ratios = [sigma[tuple(at)] * 500 / (2 * bound(at)) for at in law.support]
    assert privacy.spent == pytest.approx(12 / min(ratios) ** 2, rel=1e-6)
    assert "stated" in privacy.assumptions[0]


@pytest.mark.parametrize(
    ("neighbours", "reach"), [("replace-one", 2), ("zero-out", 1), ("add-remove", 1)]
)
def test_a_budget_sets_noise_in_proportion_to_the_bounds(neighbours, reach):
    steps = []
    law = SingleCoordinate.uniform(D)
    _, privacy = skdp.descend(
        gradient,
        law,
        smoothness=M,
        n_steps=30,
        n_restarts=2,
        epsilon=1.0,
        delta=1e-6,
        lipschitz=bound,
        n_rows=1000,
        neighbours=neighbours,
        callback=steps.append,
        random_state=0,
    )
    assert 0.999 < privacy.spent_epsilon <= 1.0
    z = math.sqrt(60 / privacy.budget)
    for step in steps:
        wanted = z * reach * bound(step.at)
        assert step.released.noise_std == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("elliptical", [False, True])
def test_on_a_table_it_is_the_plan_bit_for_bit(elliptical):
    records = hospital()
    law = Full(records.layout.n_features)
    start = np.linspace(-1, 1, law.n_coordinates)
    options = {"n_steps": 6, "epsilon": 2.0, "delta": 1e-6}
    w, privacy = skdp.descend(
        records,
        law,
        loss=skdp.Logistic(),
        elliptical=elliptical,
        start=start,
        random_state=3,
        **options,
    )
    v = skdp.preset(
        "dp_gd", records.layout, skdp.Logistic(), n_rows=400, **options
    ).geometry.smoothness
    plan = Plan(
        layout=records.layout,
        loss=skdp.Logistic(),
        n_rows=400,
        sampling=law,
        geometry=Diagonal(smoothness=v, elliptical=elliptical),
        **options,
    )
    fit = run(plan, records, start=start, random_state=3)
    assert (fit.weights[:, 0] == w).all()
    assert fit.record.events == privacy.events
    shapes = [np.ptp(each.noise_std) > 0 for each in privacy.transcript]
    assert shapes == [elliptical] * 6  # isotropic unless asked


def test_noise_on_a_table_is_the_noise_asked_for():
    records, steps = hospital(), []
    law = Nice(records.layout.n_features, 5)
    assert law.support is None
    _, privacy = skdp.descend(
        records,
        law,
        loss=skdp.Logistic(),
        n_steps=5,
        noise=0.3,
        callback=steps.append,
        random_state=3,
    )
    assert all(np.allclose(s.released.noise_std / 400, 0.3) for s in steps)
    most = math.sqrt(records.layout.squared_norm(np.arange(law.n_coordinates)))
    (visits,) = privacy.visits  # no row takes part in all five steps in full
    assert 1 <= visits.most < visits.n_steps == 5
    cost = visits.most * (2 * most / (0.3 * 400)) ** 2
    assert privacy.spent == pytest.approx(cost, rel=1e-6)


def test_without_noise_it_reaches_the_minimum_and_claims_nothing():
    w, privacy = skdp.descend(
        gradient, Full(D), smoothness=M, n_steps=3, average=algorithm1.last
    )
    assert w == pytest.approx(GOAL)
    assert "no privacy claim" in str(privacy)


def test_a_penalty_is_applied():
    w, _ = skdp.descend(
        gradient,
        Full(D),
        smoothness=M,
        n_steps=3,
        penalty=ElasticNet(l1=M[0]),
        average=algorithm1.last,
    )
    expected = np.sign(GOAL) * np.maximum(np.abs(GOAL) - 1 / M, 0)
    assert w == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothness": M, "step_sizes": M}, "step_sizes or smoothness, not both"),
        ({}, "requires step_sizes or smoothness"),
        ({"smoothness": M, "noise": 1.0, "epsilon": 1.0}, "not both, because one"),
        ({"smoothness": M, "noise": 1.0, "n_rows": 9}, "lipschitz is required"),
        ({"smoothness": M, "epsilon": 1.0, "lipschitz": 1.0}, "n_rows is required"),
        (
            {"smoothness": M, "epsilon": 1.0, "lipschitz": -1e-9, "n_rows": 9},
            "lipschitz must be finite and at least 0",
        ),
        ({"smoothness": M, "elliptical": True}, "requires records"),
        ({"smoothness": M, "start": np.zeros(3)}, "start must have finite weights"),
        ({"smoothness": M[:2]}, "4 finite numbers"),
    ],
)
def test_what_is_missing_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        skdp.descend(gradient, Full(D), n_steps=2, **options)


def test_a_gradient_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"must have shape \(4,\)"):
        skdp.descend(lambda w: 1.0, Full(D), smoothness=M, n_steps=1)


def test_records_require_a_loss_and_their_own_coordinates():
    records = hospital(50)
    with pytest.raises(ValueError, match="require a loss"):
        skdp.descend(records, Full(3), n_steps=1)
    with pytest.raises(ValueError, match="sampling must have"):
        skdp.descend(records, Full(3), n_steps=1, loss=skdp.Logistic())
    law = Full(records.layout.n_features)
    given = {"n_steps": 1, "loss": skdp.Logistic()}
    with pytest.raises(ValueError, match="follows from the records' schema"):
        skdp.descend(records, law, **given, lipschitz=1.0)
    with pytest.raises(ValueError, match="epsilon instead of noise"):
        skdp.descend(records, law, **given, noise=1.0, elliptical=True)
    with pytest.raises(ValueError, match="n_rows is required"):
        skdp.descend(
            records,
            law,
            n_steps=1,
            loss=skdp.Logistic(),
            epsilon=1.0,
            neighbours="add-remove",
        )


# ---- penalties that couple coordinates


class PairNorm(Penalty):
    """strength·Σ ‖(w_j, w_{j+1})‖ over pairs, which no single coordinate can take."""

    kind = "test-pair-norm"

    def value(self, weights):
        return float(np.linalg.norm(weights.reshape(-1, 2), axis=1).sum())

    def prox(self, weights, metric, at):
        result = weights.copy()
        place = {j: i for i, j in enumerate(at.tolist())}
        for j, i in place.items():
            both = [i, place[j ^ 1]] if j ^ 1 in place else [i]
            norm = np.linalg.norm(weights[both])
            result[i] = weights[i] * max(0.0, 1 - 0.1 / max(norm, 1e-300))
        return result


@pytest.mark.parametrize(
    ("law", "works"),
    [
        (Full(D), True),
        (SingleCoordinate.uniform(D), False),
        (Blocks.uniform([[0, 1], [2, 3]]), True),
        (Blocks.uniform([[0, 2], [1, 3]]), False),
        (Nice(D, 2), False),
    ],
)
def test_penalties_that_steps_would_split_are_refused(law, works):
    def attempt():
        return skdp.descend(gradient, law, smoothness=M, n_steps=1, penalty=PairNorm())

    if works:
        attempt()
        return
    with pytest.raises(ValueError, match="PairNorm couples coordinates"):
        attempt()


def test_plans_in_the_matrix_geometry_refuse_them_too():
    records = hospital(50)
    plan = skdp.make_default_plan(
        records.layout,
        skdp.Logistic(),
        n_rows=2000,
        epsilon=1.0,
        delta=1e-6,
        neighbours="zero-out",
    )
    assert type(plan.geometry).__name__ == "Matrix"
    with pytest.raises(ValueError, match="couples coordinates"):
        replace(plan, penalty=PairNorm())
    replace(plan, penalty=ElasticNet(l1=0.1))


def test_separable_penalties_are_seen_to_be():
    label = np.arange(9)
    assert is_separable(ElasticNet(l1=0.3, l2=0.2), label, 2)
    assert not is_separable(PairNorm(), np.arange(8), 1)
    assert is_separable(PairNorm(), np.arange(8) // 2, 1)


def test_a_start_of_another_shape_is_refused():
    records = hospital(50)
    plan = skdp.preset(
        "dp_gd", records.layout, skdp.Logistic(), n_rows=50, epsilon=1.0, n_steps=2
    )
    for start in (np.zeros(3), np.full(records.layout.n_features, np.nan)):
        with pytest.raises(ValueError, match="start must have finite weights"):
            run(plan, records, start=start)


# ---- DP-SEGA, other directions, and the paper's noise


def test_sega_on_a_gradient_is_sega_written_out():
    """Two blocks, a penalty that couples all coordinates, and a memory."""
    law, steps = Blocks.uniform([[0, 1], [2, 3]]), []
    ball = Simplex([range(D)], total=1.0)
    metric, damping = np.full(D, 40.0), 0.5
    w, privacy = skdp.descend(
        gradient,
        law,
        damping=damping,
        step_sizes=1.0 / metric,
        penalty=ball,
        n_steps=6,
        epsilon=1.0,
        lipschitz=1.0,
        n_rows=500,
        average=algorithm1.last,
        callback=steps.append,
        random_state=1,
    )
    memory, theta = np.zeros((D, 1)), np.zeros((D, 1))
    for step in steps:
        new = step.released.values / 500 - memory[step.at]
        estimate = memory.copy()
        estimate[step.at] += new / 0.5
        memory[step.at] += damping * new
        theta = ball.prox(theta - estimate / 40.0, metric, np.arange(D))
        assert np.allclose(step.weights, theta)
    assert np.allclose(w, theta[:, 0])
    assert w.sum() == pytest.approx(1.0)
    assert privacy.spent == pytest.approx(privacy.budget)


def test_sega_reaches_the_minimum_without_noise():
    options = {"smoothness": np.full(D, 8.0), "average": algorithm1.last}
    law = SingleCoordinate.uniform(D)
    w, _ = skdp.descend(
        gradient, law, damping=0.5, n_steps=4000, random_state=0, **options
    )
    assert np.allclose(w, GOAL, atol=1e-6)
    records = hospital()
    law = Blocks.uniform(records.layout.blocks)
    fitted, privacy = skdp.descend(
        records, law, loss=skdp.Logistic(), damping=0.3, n_steps=20, epsilon=1.0
    )
    assert np.isfinite(fitted).all()
    assert privacy.spent_epsilon <= 1.0


def test_directions_are_rows_of_a_matrix():
    """The identity is plain Algorithm 1; a rotation reaches the minimum too."""
    common = {"n_steps": 30, "noise": 0.1, "lipschitz": bound, "n_rows": 500}
    common |= {"step_sizes": 0.05 / M, "random_state": 2}
    law = SingleCoordinate.uniform(D)
    plain, spent = skdp.descend(gradient, law, **common)
    rotated, other = skdp.descend(gradient, law, directions=np.eye(D), **common)
    assert np.array_equal(plain, rotated)
    assert spent.events == other.events
    Q = randomised_hadamard(3)  # four directions of three weights
    w, _ = skdp.descend(
        lambda w: w - 1.0,
        law,
        directions=Q,
        smoothness=np.full(4, 4.0),
        n_steps=3000,
        average=algorithm1.last,
        random_state=0,
    )
    assert np.allclose(w, 1.0, atol=1e-9)
    with pytest.raises(ValueError, match="matrix with 4 rows"):
        skdp.descend(gradient, law, directions=np.eye(3), **common)
    records = hospital()
    law, eye = Full(records.layout.n_features), np.eye(records.layout.n_features)
    with pytest.raises(ValueError, match="require a gradient"):
        skdp.descend(records, law, directions=eye, loss=skdp.Logistic(), n_steps=1)


def test_the_noise_of_the_paper():
    """σ_S² = 12 L_S² KT log(1/δ)/(nε)², charged at its true cost."""
    steps = []
    _, privacy = skdp.descend(
        gradient,
        SingleCoordinate.uniform(D),
        step_sizes=0.01 / M,
        n_steps=25,
        n_restarts=2,
        epsilon=1.0,
        delta=1e-6,
        lipschitz=1.0,
        n_rows=500,
        calibration="paper",
        callback=steps.append,
    )
    sigma = math.sqrt(12 * 50 * math.log(1e6)) / 500
    assert np.allclose([s.released.noise_std[0] / 500 for s in steps], sigma)
    assert 0.5 < privacy.spent_epsilon < 0.7
    with pytest.raises(ValueError, match="requires epsilon"):
        skdp.descend(
            gradient, Full(D), step_sizes=M / M, n_steps=2, calibration="paper"
        )
