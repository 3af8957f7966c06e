"""Bounds of sketched steps, against theory's for coordinates and exact expectations."""

import numpy as np
import pytest

from experiments.theory.sketch_bounds import (
    SketchLaw,
    convex_bound,
    following_bound,
    tight_bound,
)
from skdp.descent import bounds
from skdp.descent.samplings import Blocks, Nice
from skdp.descent.sketches import randomised_hadamard


def make_hessian(rng, d):
    """A random Hessian whose eigenvalues span up to four orders of magnitude."""
    Q, _ = np.linalg.qr(rng.normal(size=(d, d)))
    return (Q * 10 ** rng.uniform(-3, 1, d)) @ Q.T


def make_law(rng, d, hessian):
    """A random law with B_S H B_Sᵀ ⪯ β I, one set as tight as it can be."""
    while True:
        sizes = rng.integers(1, d + 1, size=rng.integers(1, 2 * d + 1))
        roots = [rng.normal(size=(m, d)) for m in sizes]
        if rng.random() < 0.3:  # coordinates
            roots = [np.eye(d)[rng.choice(d, m, replace=False)] for m in sizes]
        if np.linalg.matrix_rank(np.concatenate(roots)) == d:
            break
    tight = [np.linalg.eigvalsh(r @ hessian @ r.T)[-1] for r in roots]
    slack = rng.choice([1.0, 1.0, 2.0], len(roots))
    roots = [r / np.sqrt(t * s) for r, t, s in zip(roots, tight, slack, strict=True)]
    beta = float(10 ** rng.uniform(-1, 1))
    roots = [np.sqrt(beta) * r for r in roots]
    q = rng.dirichlet(np.ones(len(roots))) + 0.01
    return SketchLaw(roots=roots, probabilities=q / q.sum(), curvature=beta)


def expected_excess(law, hessian, displacement, stds, n_steps):
    """Mean of E f(θ_k) - f* over k < K for f = ½ wᵀHw, exactly.

    E[(θ-w*)(θ-w*)ᵀ] follows a linear recursion.
    """
    d = len(hessian)
    moment, total = np.outer(displacement, displacement), 0.0
    steps = [r.T @ r / law.curvature for r in law.roots]
    for _ in range(n_steps):
        total += 0.5 * float((hessian * moment).sum())
        following = np.zeros((d, d))
        for p, g, std in zip(law.probabilities, steps, stds, strict=True):
            keep = np.eye(d) - g @ hessian
            noise = std**2 * g / law.curvature
            following += p * (keep @ moment @ keep.T + noise)
        moment = following
    return total / n_steps


def draw_problem(rng):
    d = int(rng.integers(1, 6))
    hessian = make_hessian(rng, d)
    law = make_law(rng, d, hessian)
    away = rng.normal(size=d) / np.sqrt(np.diag(hessian))
    stds = rng.choice([0.0, 0.1, 1.0]) * rng.uniform(0.1, 1.0, len(law.roots))
    n_steps = int(rng.choice([1, 2, 5, 30]))
    return law, hessian, away, stds, n_steps


def find_ratio(rng):
    law, hessian, away, stds, n_steps = draw_problem(rng)
    excess = 0.5 * away @ hessian @ away
    bound = convex_bound(
        law, n_steps, displacement=away, excess=excess, stds=stds, hessian=hessian
    )
    return expected_excess(law, hessian, away, stds, n_steps) / bound


def test_no_random_quadratic_exceeds_the_bound():
    rng = np.random.default_rng(0)
    ratios = [find_ratio(rng) for _ in range(300)]
    assert max(ratios) <= 1
    assert max(ratios) > 0.3  # the search comes near the bound


def test_steps_that_are_too_long_exceed_it_and_are_refused():
    """The condition matters: with steps three times as long the iterates diverge."""
    rng = np.random.default_rng(1)
    hessian = make_hessian(rng, 4)
    law = make_law(rng, 4, hessian)
    long = SketchLaw(
        roots=law.roots,
        probabilities=law.probabilities,
        curvature=law.curvature / 3,
    )
    assert law.is_valid(hessian)
    assert not long.is_valid(hessian)
    stds = np.zeros(len(law.roots))
    away = np.linalg.eigh(hessian)[1][:, -1]
    with pytest.raises(ValueError, match="too long"):
        convex_bound(
            long, 50, displacement=away, excess=1.0, stds=stds, hessian=hessian
        )


def test_coordinates_have_the_numbers_of_the_theory():
    rng = np.random.default_rng(2)
    sampling = Blocks([[0, 2], [1], [3, 4]], [0.5, 0.2, 0.3])
    M = rng.uniform(0.5, 2.0, 5)
    roots = [np.eye(5)[at] / np.sqrt(M[at])[:, None] for at in sampling.support]
    law = SketchLaw(roots=roots, probabilities=sampling.set_probabilities)
    away, lipschitz = rng.normal(size=5), np.array([1.0, 0.3, 2.0])
    p = sampling.probabilities
    assert law.visiting_cost == pytest.approx(1 / p.min())
    np.testing.assert_allclose(law.mean, np.diag(p / M))
    distance = bounds.distance_squared(M, p, away)
    assert law.distance_squared(away) == pytest.approx(distance)
    # Here noise is isotropic where coordinates are scaled by M^(-1/2): σ/√M_j.
    flat = [np.eye(5)[at] for at in sampling.support]
    unit = SketchLaw(roots=flat, probabilities=sampling.set_probabilities)
    N1 = bounds.sigma_squared(sampling, np.ones(5), lipschitz)
    N2 = bounds.step_sigma_squared(sampling, np.ones(5), lipschitz)
    assert unit.noise(lipschitz) == pytest.approx(N1)
    assert unit.step_noise(lipschitz, np.eye(5)) == pytest.approx(N2)
    assert unit.is_tight(np.eye(5))
    assert not unit.is_tight(np.eye(5) + 0.1)


def test_validity_is_the_eso_for_overlapping_coordinates():
    """E[G H G] ⪯ W is Pmat ∘ H ⪯ Diag(p ∘ v), and weaker than a bound for each set."""
    hessian = np.ones((4, 4)) * 0.5 + 0.5 * np.eye(4)
    sampling = Nice(4, 2)
    eso = float(
        np.linalg.eigvalsh(sampling.pair_probabilities(np.arange(4)) * hessian)[-1]
        / sampling.probabilities[0]
    )
    for scale, valid in ((1.0 + 1e-6, True), (1.0 - 1e-6, False)):
        roots = [np.eye(4)[at] for at in sampling.support]
        law = SketchLaw(
            roots=roots,
            probabilities=sampling.set_probabilities,
            curvature=eso * scale,
        )
        assert law.is_valid(hessian) == valid


def test_single_eigenvectors_are_tight_and_rotations_are_not():
    rng = np.random.default_rng(3)
    hessian = make_hessian(rng, 4)
    values, vectors = np.linalg.eigh(hessian)
    q = np.array([0.1, 0.2, 0.3, 0.4])
    law = SketchLaw(
        roots=list((vectors / np.sqrt(values)).T[:, None, :]), probabilities=q
    )
    assert law.is_tight(hessian)
    away, stds = rng.normal(size=4), rng.uniform(size=4)
    for n_steps in (1, 7, 50):
        reached = expected_excess(law, hessian, away, stds, n_steps)
        given = {"displacement": away, "stds": stds, "hessian": hessian}
        bound = tight_bound(law, n_steps, **given)
        loose = convex_bound(law, n_steps, excess=0.5 * away @ hessian @ away, **given)
        assert reached <= bound * (1 + 1e-9) < loose
    Q = randomised_hadamard(4)
    roots = [row[None] / np.sqrt(row @ hessian @ row) for row in Q]
    rotated = SketchLaw(roots=roots, probabilities=q)
    assert rotated.is_valid(hessian)
    assert not rotated.is_tight(hessian)
    with pytest.raises(ValueError, match="not tight"):
        tight_bound(rotated, 3, displacement=away, stds=stds, hessian=hessian)


def simulate(rng, law, hessian, away, stds, n_steps, explore, weighted, n_runs=400):
    """Excess of means and of last iterates under a law that follows the gradient.

    The probabilities are the worst of many that the theorems allow: they follow the
    noise of the last step, and draw the set with the smallest gradient most often.
    """
    d, n_sets = len(hessian), len(law.roots)
    theta = np.tile(away, (n_runs, 1))
    seen, mean = np.zeros((n_runs, n_sets)), np.zeros(n_runs)
    for _ in range(n_steps):
        mean += 0.5 * np.einsum("ri,ij,rj->r", theta, hessian, theta) / n_steps
        follow = np.exp(-seen)
        follow /= follow.sum(axis=1, keepdims=True)
        p = explore * law.probabilities + (1 - explore) * follow
        drawn = (rng.random((n_runs, 1)) > p.cumsum(axis=1)).sum(axis=1)
        drawn = np.minimum(drawn, n_sets - 1)
        for s, root in enumerate(law.roots):
            at = np.flatnonzero(drawn == s)
            noise = stds[s] * rng.normal(size=(len(at), len(root)))
            measured = theta[at] @ hessian @ root.T + noise
            seen[at, s] = (measured**2).sum(axis=1)
            share = np.ones(len(at))
            if weighted:
                share = explore * law.probabilities[s] / p[at, s]
            theta[at] -= share[:, None] * measured @ root / law.curvature
    assert theta.shape == (n_runs, d)
    return mean.mean(), 0.5 * np.einsum("ri,ij,rj->r", theta, hessian, theta).mean()


@pytest.mark.parametrize("seed", range(6))
def test_laws_that_follow_noise_keep_their_bounds(seed):
    rng = np.random.default_rng(seed)
    law, hessian, away, stds, _ = draw_problem(rng)
    excess, explore = 0.5 * away @ hessian @ away, 0.3
    given = {"stds": stds, "hessian": hessian, "explore": explore, "excess": excess}
    mean, _ = simulate(rng, law, hessian, away, stds, 20, explore, True)
    assert mean <= convex_bound(law, 20, displacement=away, **given)
    _, last = simulate(rng, law, hessian, away, stds, 20, explore, False)
    # ‖g‖²_W ≥ 2m (f - f*) with m the least eigenvalue of H^½ W H^½.
    values, vectors = np.linalg.eigh(hessian)
    root = (vectors * np.sqrt(values)) @ vectors.T
    m = np.linalg.eigvalsh(root @ law.mean @ root)[0]
    assert last <= following_bound(law, 20, strength=m, **given) * 1.1


def test_the_bound_of_full_steps_is_attained():
    """One full step on f = ½‖w‖² leaves only the noise."""
    law = SketchLaw(roots=[np.eye(3)], probabilities=np.ones(1))
    given = {"stds": np.array([0.2]), "hessian": np.eye(3)}
    bound = following_bound(law, 7, strength=1.0, excess=5.0, explore=1.0, **given)
    assert bound == pytest.approx(0.5 * 3 * 0.2**2)
    slow = following_bound(law, 7, strength=0.5, excess=5.0, explore=0.5, **given)
    assert slow == pytest.approx(0.75**7 * 5.0 + 4 * 0.5 * 3 * 0.2**2)


def test_laws_that_cannot_be_unbiased_are_refused():
    with pytest.raises(ValueError, match="span all coordinates"):
        SketchLaw(roots=[np.eye(3)[:2]], probabilities=np.ones(1))
    with pytest.raises(ValueError, match="curvature"):
        SketchLaw(roots=[np.eye(3)], probabilities=np.ones(1), curvature=0.0)
    law = SketchLaw(roots=[np.eye(2)], probabilities=np.ones(1))
    with pytest.raises(ValueError, match="too long"):
        following_bound(
            law,
            5,
            strength=0.1,
            excess=1.0,
            stds=np.zeros(1),
            hessian=2.0 * np.eye(2),
            explore=0.5,
        )
