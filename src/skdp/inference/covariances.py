"""Compute the uncertainty of released weights, from released values alone.

Near the optimum the descent is a linear recursion in whitened coordinates u = B⁻ᵀw, so
the Hessian H determines the covariance of the result exactly:

    u ← ((I - S/β) u + ξ/(βn) + const)/(1 + λ/β),   S = B (H + ridge) Bᵀ.

H, the variance of the records' gradients and the bias from capped slopes are computed
as means over rows that have the released moments (`surrogate_rows`). Noise in these
moments makes H uncertain, which `plausible` takes into account. This is
post-processing, because no record is read. `docs/guide/intervals.md` derives it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import ncx2

from skdp.descent import samplings, target
from skdp.descent.matrix import Matrix, Space
from skdp.descent.threads import one_thread
from skdp.inference import capped_slopes, surrogate_rows, variances
from skdp.inference.corrected_intercept import Correction
from skdp.inference.plausible import EFFECT_ROOM, Learning, solve_recursion
from skdp.models.penalties import ElasticNet
from skdp.planning.plan import Plan
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, Layout

#: Smallest share of a target's variance that is assumed to be unexplained.
UNEXPLAINED = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Covariances:
    """Covariance of the released weights (d,) around the true weights, by cause.

    It is computed as if the released moments were exact.

    Attributes
    ----------
    noise : float64 (d, d)
        Due to the privacy noise.
    sampling : float64 (d, d)
        Due to sampling the records.
    shrinkage : float64 (d, d)
        Due to shrinkage and early stopping, for true weights as large as the released
        ones.
    bias : float64 (d,)
        Due to capped slopes. In directions that change no prediction (all levels of a
        column against the intercept), the bias is also due to noise in the metric.
    """

    noise: FloatArray
    sampling: FloatArray
    shrinkage: FloatArray
    bias: FloatArray

    def noise_std(self, maps: FloatArray) -> FloatArray:
        """Return the standard deviation (m,) of `maps` @ weights due to privacy."""
        return _compute_deviation(maps, self.noise)

    def std(self, maps: FloatArray) -> FloatArray:
        """Return the standard error (m,) of `maps` @ weights.

        ±1.96 standard errors cover 95 %. Let s be the standard deviation and b the
        bias. The standard error is s times the 95 % quantile of |N(b/s, 1)|, divided by
        the 95 % quantile of |N(0, 1)|.
        """
        each = _compute_deviation(maps, self.noise + self.sampling + self.shrinkage)
        shift = (maps @ self.bias / np.maximum(each, 1e-300)) ** 2
        wide = np.sqrt(ncx2.ppf(0.95, 1, np.clip(shift, 1e-9, 1e6)))
        return np.asarray(each * wide / math.sqrt(ncx2.ppf(0.95, 1, 1e-9)))


def _compute_deviation(maps: FloatArray, covariance: FloatArray) -> FloatArray:
    variance = np.einsum("md,md->m", maps @ covariance, maps)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


@dataclass(frozen=True, kw_only=True, eq=False)
class Uncertainty:
    """The uncertainty of released weights.

    Attributes
    ----------
    usual : Covariances
        The covariances, as if the released moments were exact.
    usual_level : float
        The usual size of the effect of a category: one in log-odds, or a standard
        deviation of the residuals.
    learning : Learning
        Computes errors for other moments that are possible.
    correction : Correction, optional
        How the intercept was corrected after the last step.
    gram, known : ReleasedGram, Moments
        The released moments, and the best estimate of the true moments.
    """

    usual: Covariances
    usual_level: float
    learning: Learning
    correction: Correction | None
    gram: variances.ReleasedGram
    known: surrogate_rows.Moments

    def errors(self, plain: FloatArray, contrasts: FloatArray) -> Errors:
        """Return the errors of `plain` @ weights and of `contrasts` @ weights.

        A row of `plain` (m, d) is the same row of `contrasts` plus a level that no
        record can determine. The variance of this level is added.
        """
        noise_std, std = np.zeros(len(contrasts)), np.full(len(contrasts), np.inf)
        fixed = self.correction
        maps = contrasts if fixed is None else fixed.move(contrasts)
        some = maps.any(axis=1)  # a column of one category has no contrast
        with one_thread(plain.shape[1]):
            varies = variances.measure_remaining(self.gram, self.known, maps[some])
            noise_std[some], std[some] = self.learning.errors(maps[some], varies)
        if fixed is not None:
            own = np.abs(contrasts[:, -1])
            noise_std = np.hypot(noise_std, own * math.sqrt(fixed.noise))
            std = np.hypot(std, own * math.sqrt(fixed.noise + fixed.sampling))
        std = np.hypot(std, self.usual_level * _weigh_untold(plain, contrasts, std))
        level = self.usual.std(plain) ** 2 - self.usual.std(contrasts) ** 2
        noise = self.usual.noise_std(plain) ** 2 - self.usual.noise_std(contrasts) ** 2
        return Errors(
            noise_std=np.sqrt(noise_std**2 + np.maximum(noise, 0.0)),
            std=np.sqrt(std**2 + np.maximum(level, 0.0)),
            contrasts_noise_std=noise_std,
            contrasts_std=std,
        )


class Errors(NamedTuple):
    """Standard deviations due to privacy and standard errors, (m,) each.

    The standard error of an effect that cannot be determined is infinite.
    """

    noise_std: FloatArray
    std: FloatArray
    contrasts_noise_std: FloatArray
    contrasts_std: FloatArray


def _weigh_untold(
    plain: FloatArray, contrasts: FloatArray, std: FloatArray
) -> FloatArray:
    """Return how much each contrast depends on undetermined categories, (m,).

    A category is compared with the mean over its column, which includes categories
    whose effects cannot be determined.
    """
    weights = np.zeros(len(contrasts))
    for k in np.flatnonzero(np.isinf(std)):
        if np.count_nonzero(plain[k]) == 1:
            weights += contrasts[:, np.flatnonzero(plain[k])[0]] ** 2
    return np.sqrt(weights)


def find_obstacle(plan: Plan) -> str | None:
    """Return why a plan has no standard errors, or None if it has them."""
    penalty, loss = plan.penalty, plan.loss
    if loss.target_law is None:
        return loss.no_errors
    if not isinstance(plan.geometry, Matrix):
        return (
            "Standard errors require the Gram matrix that geometry='matrix' releases; "
            f"this fit used {type(plan.geometry).__name__}."
        )
    if not isinstance(plan.sampling, samplings.Full) or plan.n_restarts > 1:
        return "Standard errors require full steps, without blocks or restarts."
    if plan.layout.groups[-1].kind != "ones":
        return "Standard errors require an intercept."
    if not isinstance(penalty, ElasticNet) or penalty.l1 > 0:
        return "Standard errors require a ridge penalty, without an ℓ₁ part."
    if loss.n_classes == 0 and plan.geometry.target_share == 0:
        return "Standard errors require the target's histogram, which was not released."
    return None


def estimate(
    plan: Plan,
    transcript: Sequence[Released],
    weights: FloatArray,
    exact: Released | None = None,
) -> Uncertainty:
    """Return the uncertainty of released weights (d, 1).

    Parameters
    ----------
    plan : Plan
        A plan for which `find_obstacle` returns None.
    transcript : sequence of Released
        The releases of the run, in order. Earlier releases may come first.
    weights : float64 (d, 1)
        The result of the run.
    exact : Released, optional
        A Gram matrix without noise, used to measure the cost of noise in the moments.
    """
    reason = find_obstacle(plan)
    if reason is not None:
        raise ValueError(reason)
    geometry = plan.geometry
    assert isinstance(geometry, Matrix)
    last = len(transcript) - 1 - (geometry.level_share > 0)  # the last step
    first = last - plan.n_steps - (geometry.target_share > 0)
    pattern = queries.GramPattern.of(plan.layout, plan.neighbours, centred=True)
    histogram = transcript[first + 1] if geometry.target_share > 0 else None
    found = None
    if histogram is not None:
        found = target.fit_constant(histogram, plan.loss, plan.n_rows)
    space = geometry.make_space(
        plan.layout, plan.loss, pattern, plan.n_rows, transcript[first], found
    )
    gram = variances.ReleasedGram(
        layout=plan.layout,
        pattern=pattern,
        released=transcript[first] if exact is None else exact,
        n_rows=plan.n_rows,
    )
    noise_std = float(np.max(transcript[last].noise_std)) / plan.n_rows
    w = weights[:, 0]
    variance = math.nan
    if histogram is not None and plan.loss.n_classes == 0:
        variance = _estimate_residual_variance(histogram, gram, w)
    known = surrogate_rows.estimate_moments(
        gram.layout, gram.pattern, gram.released, gram.n_rows
    )
    rows = surrogate_rows.make_rows(gram.layout, known)
    with one_thread(len(w)):
        usual, learning = _learn(plan, space, known, rows, w, noise_std, variance)
    correction = None
    if geometry.level_share > 0:
        released_std = float(np.max(transcript[-1].noise_std))
        steep = capped_slopes.derive_uncapped(plan.loss.target_law, rows @ w)
        spread = float(steep.mean()) if math.isnan(variance) else variance
        correction = Correction.of(rows, steep, released_std, spread, plan.n_rows)
    return Uncertainty(
        usual=usual,
        usual_level=1.0 if math.isnan(variance) else math.sqrt(variance),
        learning=learning,
        correction=correction,
        gram=gram,
        known=known,
    )


def _learn(
    plan: Plan,
    space: Space,
    known: surrogate_rows.Moments,
    rows: FloatArray,
    w: FloatArray,
    noise_std: float,
    variance: float,
) -> tuple[Covariances, Learning]:
    root, n = space.white.root, len(rows)
    caps = space.radius / np.maximum(np.linalg.norm(rows @ root.T, axis=1), 1e-12)
    caps = np.minimum(caps, plan.loss.slope_bound)
    slopes = (
        capped_slopes.average_bernoulli(rows @ w, caps)
        if plan.loss.target_law == "bernoulli"
        else capped_slopes.average_normal(caps, math.sqrt(variance))
    )
    recoloured = rows @ _make_recolouring(root, rows, known)
    second = recoloured.T @ recoloured / n
    hessian = (recoloured * slopes.curvature[:, None]).T @ recoloured / n
    squares = (recoloured * slopes.square[:, None]).T @ recoloured / n
    strength = _read_ridge(plan.penalty, len(w))
    forces = root @ (hessian + np.diag(strength)) @ root.T
    values, vectors = np.linalg.eigh((forces + forces.T) / 2)
    values = np.clip(values, 0.0, plan.loss.curvature)  # as steps of 1/β assume
    shares = plan.average(plan.n_steps)
    noise, response = solve_recursion(values, plan.loss.curvature, space.pull, shares)
    back = root.T @ vectors  # maps the basis of S's eigenvectors to weights
    reply = (back * response) @ back.T  # response of weights to a constant force
    sampling = reply @ squares @ reply / plan.n_rows
    noises = noise_std**2 * (back * noise) @ back.T
    # The distance that the run has left to the optimum: (1 - response·S)(u* - u⁰).
    inside = np.linalg.inv(back)
    away = inside @ (w - space.start[:, 0])
    left = 1.0 - response * values
    expected = noise_std**2 * noise + np.diag(inside @ sampling @ inside.T)
    seen = _project_seen(root @ hessian @ root.T, vectors)
    reached = float(((1.0 - left) ** 2 * np.diag(seen)).sum())
    gap = max(0.0, float((seen @ away) @ away - np.diag(seen) @ expected))
    prior = gap / reached if reached > 0 else 0.0  # nothing can be told then
    bias = _compute_placing(plan.layout, known.complete, space, w)
    if plan.loss.target_law == "bernoulli":
        bias = bias + capped_slopes.compute_capping(rows, w, caps)
    usual = Covariances(
        noise=noises,
        sampling=sampling,
        shrinkage=prior * (back * left) @ seen @ (back * left).T,
        bias=bias,
    )
    learning = Learning(
        values=values,
        back=back,
        second=second,
        hessian=hessian,
        squares=squares / plan.n_rows,
        ridge=strength,
        away=away,
        prior=prior,
        bias=bias,
        effect_room=EFFECT_ROOM * bool((caps < plan.loss.slope_bound).any()),
        noise_std=noise_std,
        curvature=plan.loss.curvature,
        pull=space.pull,
        shares=shares,
    )
    return usual, learning


def _make_recolouring(
    root: FloatArray, rows: FloatArray, known: surrogate_rows.Moments
) -> FloatArray:
    """Return a matrix M (d, d) such that rows @ M have exactly the known moments.

    Surrogate rows have only roughly these moments, and not even roughly if some columns
    nearly determine others.
    """
    wanted = known.covariance + np.outer(known.mean, known.mean)
    power = _raise_power(root @ (rows.T @ rows / len(rows)) @ root.T, -0.5)
    power = power @ _raise_power(root @ wanted @ root.T, 0.5)
    return np.asarray(root.T @ power @ np.linalg.inv(root).T)


def _raise_power(matrix: FloatArray, exponent: float) -> FloatArray:
    """Return a power of a symmetric matrix. Its null space is mapped to zero."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > 1e-9 * values[-1]
    powers = np.where(kept, np.where(kept, values, 1.0) ** exponent, 0.0)
    return np.asarray((vectors * powers) @ vectors.T)


def _read_ridge(penalty: object, d: int) -> FloatArray:
    assert isinstance(penalty, ElasticNet)
    each = np.ones(d) if penalty.penalised is None else penalty.penalised
    return np.asarray(penalty.l2 * each)


def _project_seen(forces: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the projection on directions in which rows vary, in the basis `vectors`.

    In the other directions, such as all levels of a column against the intercept, the
    true weights are not defined, so there is no bias.
    """
    values, own = np.linalg.eigh((forces + forces.T) / 2)
    kept = vectors.T @ own[:, values > 1e-9 * values[-1]]
    return np.asarray(kept @ kept.T)


def _estimate_residual_variance(
    histogram: Released, gram: variances.ReleasedGram, w: FloatArray
) -> float:
    """Estimate the target's variance around the margins.

    The estimate is never below the noise of the target's estimated variance.
    """
    variance, doubt = target.estimate_variance(histogram, gram.n_rows)
    least = max(UNEXPLAINED * variance, doubt, 1e-6)
    return max(variance - variances.measure_explained(gram, w), least)


def _compute_placing(
    layout: Layout, complete: Sequence[bool], space: Space, w: FloatArray
) -> FloatArray:
    """Return the offset of weights along directions in which rows do not vary.

    Such a direction v is 1 on the levels of a column and -1 on the intercept. Steps in
    the metric A keep vᵀA(w - w⁰) at zero. The levels of the true weights, however, sum
    to zero by definition. The offset is the difference.
    """
    groups = [g for g, whole in zip(layout.groups, complete, strict=True) if whole]
    if not groups:
        return np.zeros_like(w)
    free = np.zeros((len(w), len(groups)))
    level = w.copy()
    for j, group in enumerate(groups):
        free[group.coordinates, j], free[-1, j] = 1.0, -1.0
        level -= w[group.coordinates].mean() * free[:, j]
    inverse = np.linalg.inv(space.white.root)
    across = inverse.T @ free  # in whitened coordinates A is the identity
    away = inverse.T @ (level - space.start[:, 0])
    return np.asarray(-free @ np.linalg.lstsq(across, away, rcond=None)[0])
