"""Compute the uncertainty of released weights, from released values alone.

Near the optimum the descent is a linear recursion in whitened coordinates u = B⁻ᵀw, so
the Hessian H determines the covariance of the result exactly:

    u ← ((I - S/β) u + ξ/(βn) + const)/(1 + λ/β),   S = B (H + ridge) Bᵀ.

Here B is the whitening matrix, 1/β the step size, ξ the noise of a step, n the number
of rows, and λ the strength of the pull to the start. H, the variance of the records'
gradients and the bias from capped slopes are computed as means over rows that have the
released moments (`surrogate_rows`). Noise in these moments makes H uncertain, which
`plausible` takes into account. This is post-processing, because no record is read.
`docs/guide/intervals.md` derives the formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skdp.descent import samplings, target
from skdp.descent.matrix import Matrix
from skdp.descent.threads import one_thread
from skdp.inference import surrogate_rows, variances
from skdp.inference.capped_slopes import (
    HIGHEST,
    Classes,
    Counts,
    Law,
    Normal,
    Weighting,
)
from skdp.inference.corrected_intercept import Correction
from skdp.inference.linear_runs import Covariances, linearise
from skdp.inference.plausible import Learning, Z
from skdp.models.losses import Loss
from skdp.planning.decide import MATRIX_LIMIT
from skdp.planning.plan import Plan
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray

#: Advice for fits whose geometry or sampling has no standard errors.
USE_DEFAULT = " Use the default geometry and sampling to get standard errors."
#: Smallest share of a target's variance that is assumed to be unexplained.
UNEXPLAINED = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Uncertainty:
    """The uncertainty of released weights.

    Attributes
    ----------
    usual : Covariances
        The covariances, as if the released moments were exact.
    usual_level : float
        The size that is assumed for the effect of a category that cannot be
        determined: 1 on the scale of the margin or, for a numeric target with normal
        residuals, one standard deviation of the residuals.
    learning : Learning
        Computes standard errors that allow for noise in the released moments.
    correction : Correction, optional
        How the intercept was corrected after the last step.
    gram, known : ReleasedGram, Moments
        The released moments, and the best estimate of the true moments.
    n_outputs : int
        The number k of outputs. Weights are sorted by output, then by coordinate.
    """

    usual: Covariances
    usual_level: float
    learning: Learning
    correction: Correction | None
    gram: variances.ReleasedGram
    known: surrogate_rows.Moments
    n_outputs: int

    def errors(self, plain: FloatArray, contrasts: FloatArray) -> Errors:
        """Return the errors of `plain` @ weights and of `contrasts` @ weights.

        Each row of `plain` (m, d) is the corresponding row of `contrasts` plus a level
        that the records cannot determine, such as the mean of a column's categories.
        The variance of this level is added to the variance of `contrasts` @ weights, to
        obtain the variance of `plain` @ weights. If there are several outputs,
        contrasts are relative to the mean of all outputs.
        """
        k, fixed = self.n_outputs, self.correction
        class_contrasts = np.eye(k) - (1.0 / k if k > 1 else 0.0)
        whole = np.asarray(np.kron(np.eye(k), plain), np.float64)
        parts = np.asarray(np.kron(class_contrasts, contrasts), np.float64)
        noise_std, sampling_std = np.zeros(len(parts)), np.zeros(len(parts))
        std = np.full(len(parts), np.inf)
        maps = parts if fixed is None else fixed.move(parts)
        some = np.asarray(maps.any(axis=1))  # a column of one category has no contrast
        with one_thread(parts.shape[1]):
            varies = self._measure_remaining(maps, class_contrasts)
            noise_std[some], sampling_std[some], std[some] = self.learning.errors(
                maps[some], varies.take(some)
            )
        if fixed is not None:
            own = parts[:, fixed.last]
            noise = np.einsum("ma,ab,mb->m", own, fixed.noise, own)
            other = np.einsum("ma,ab,mb->m", own, fixed.sampling, own)
            noise_std = np.sqrt(noise_std**2 + noise)
            sampling_std = np.sqrt(sampling_std**2 + other)
            if fixed.complete:
                std = np.sqrt(std**2 + noise + other)
            else:  # the remaining error has the same cause, so add standard errors
                std = std + np.sqrt(noise + other)
            std = std + np.abs(own @ fixed.bias) / Z
        for at in np.split(np.arange(len(parts)), k):
            untold = _weigh_untold(plain, contrasts, std[at])
            std[at] = np.hypot(std[at], self.usual_level * untold)
        found = []
        for own_std, usual in (
            (noise_std, self.usual.noise_std),
            (sampling_std, self.usual.sampling_std),
            (std, self.usual.std),
        ):
            level = np.maximum(usual(whole) ** 2 - usual(parts) ** 2, 0.0)
            found += [np.sqrt(own_std**2 + level), own_std]
        return Errors(*(part.reshape(k, -1).T for part in found))

    def _measure_remaining(
        self, maps: FloatArray, class_contrasts: FloatArray
    ) -> variances.Varies:
        """Return how much rows vary along each coefficient of each output.

        `maps` (km, kd) are sorted by output. Let q be the direction (d,) that changes a
        coefficient (`variances.measure_remaining`). To change the coefficient of one
        output, add t_c q to the weights of each output c. The numbers t_c are chosen to
        make the curvature of the loss along this change as small as possible.
        """
        k = self.n_outputs
        blocks = maps.reshape(k, -1, k, maps.shape[1] // k)
        own = np.concatenate([blocks[c, :, c] for c in range(k)])
        scale = class_contrasts[0, 0]  # a coefficient's share in its own contrast
        some = own.any(axis=1)
        found = variances.measure_remaining(self.gram, self.known, own[some] / scale)
        estimate, std = np.zeros(len(maps)), np.zeros(len(maps))
        residuals = np.zeros_like(maps)
        wanted = np.repeat(class_contrasts, len(maps) // k, axis=0)[some]
        hessian = self.learning.hessian.reshape(k, len(own[0]), k, len(own[0]))
        q = found.residuals
        bends = np.einsum("md,adbe,me->mab", q, hessian, q, optimize=True)
        inverse = np.linalg.pinv(bends, rcond=1e-9, hermitian=True)
        outputs = np.einsum("mab,mb->ma", inverse, wanted)
        size = np.einsum("ma,ma->m", outputs, wanted)[:, None]
        outputs = np.where(size > 0, outputs / np.maximum(size, 1e-300), wanted / scale)
        along = np.square(outputs).sum(axis=1)
        estimate[some], std[some] = found.estimate * along, found.std * along
        residuals[some] = np.einsum("mk,md->mkd", outputs, q).reshape(len(q), -1)
        # A corrected intercept depends on several outputs, so `residuals` may not
        # change it by exactly one. Rescale them.
        reach = np.einsum("md,md->m", maps, residuals)
        reach = np.where(some, np.clip(reach, 0.5, 2.0), 1.0)
        return variances.Varies(
            estimate / reach**2, std / reach**2, residuals / reach[:, None]
        )


class Errors(NamedTuple):
    """Standard deviations due to privacy and to sampling, and standard errors.

    Each array has shape (m, k). The arrays whose names start with ``contrasts_`` belong
    to the argument `contrasts` of `Uncertainty.errors`, and the others to `plain`. If
    an effect cannot be determined, its standard error and its sampling error are
    infinite.
    """

    noise_std: FloatArray
    contrasts_noise_std: FloatArray
    sampling_std: FloatArray
    contrasts_sampling_std: FloatArray
    std: FloatArray
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
    loss = plan.loss
    if loss.target_law is None:
        return loss.no_errors
    if not plan.penalty.is_ridge:
        return (
            "There are no standard errors with an ℓ₁ penalty. It may set weights to "
            "zero, so weights are not normally distributed, and intervals around a "
            "weight of zero would be wrong. Use l1_ratio=0."
        )
    if plan.geometry.is_constant:
        return "There are no standard errors, because the model is a constant."
    if not isinstance(plan.geometry, Matrix):
        wide = plan.geometry.is_diagonal and plan.layout.n_features > MATRIX_LIMIT
        fewer = (
            f" Models of more than {MATRIX_LIMIT:,} coefficients use this geometry. To "
            "have fewer coefficients, merge rare categories or leave out columns."
        )
        return plan.geometry.no_errors + (fewer if wide else USE_DEFAULT)
    if not isinstance(plan.sampling, samplings.Full) or plan.n_restarts > 1:
        return (
            "There are no standard errors for steps on blocks of columns or with "
            "restarts. The effect of noise on the weights is known only for full steps."
            + USE_DEFAULT
        )
    if plan.layout.groups[-1].kind != "ones":
        return "Standard errors require an intercept."
    if loss.n_classes == 0 and plan.geometry.target_share == 0:
        return "Standard errors require the target's histogram, which was not released."
    return None


def estimate(
    plan: Plan,
    transcript: Sequence[Released],
    weights: FloatArray,
    exact: Released | None = None,
    *,
    weighting: Weighting | None = None,
    count_unit: float = 0.0,
) -> Uncertainty:
    """Return the uncertainty of released weights (d, k).

    Parameters
    ----------
    plan : Plan
        A plan for which `find_obstacle` returns None.
    transcript : sequence of Released
        The releases of the run, in order. Earlier releases may come first.
    weights : float64 (d, k)
        The result of the run.
    exact : Released, optional
        A Gram matrix without noise, to use instead of the released one. A comparison of
        the two results shows how much the noise in the released matrix costs.
    weighting : Weighting, optional
        The weights of records and classes. By default all weights are one.
    count_unit : float
        The target of a count of 1, where targets are counts divided by the largest
        possible count. Counts are assumed to vary at least as much as Poisson counts.
    """
    reason = find_obstacle(plan)
    if reason is not None:
        raise ValueError(reason)
    weighting = weighting or Weighting.equal()
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
    known = surrogate_rows.estimate_moments(
        gram.layout, gram.pattern, gram.released, gram.n_rows
    )
    rows = surrogate_rows.make_rows(gram.layout, known)
    law = _make_law(plan.loss, weighting, histogram, gram, rows, weights, count_unit)
    with one_thread(weights.size):
        usual, learning = linearise(
            plan, space, known, rows, weights, noise_std, law, weighting
        )
    correction = None
    if geometry.level_share > 0:
        correction = Correction.of(
            law,
            weighting,
            rows,
            weights,
            float(np.max(transcript[-1].noise_std)),
            weighting.most
            * min(geometry.level_cap * space.spread, plan.loss.slope_bound),
            plan.n_rows,
        )
    return Uncertainty(
        usual=usual,
        usual_level=law.std if isinstance(law, Normal) else 1.0,
        learning=learning,
        correction=correction,
        gram=gram,
        known=known,
        n_outputs=weights.shape[1],
    )


def _make_law(
    loss: Loss,
    weighting: Weighting,
    histogram: Released | None,
    gram: variances.ReleasedGram,
    rows: FloatArray,
    weights: FloatArray,
    count_unit: float,
) -> Law:
    """Return the distribution of targets around the fitted model."""
    if loss.n_classes:
        factors = weighting.factors
        return Classes(np.ones(loss.n_classes) if factors is None else factors)
    assert histogram is not None  # which find_obstacle requires
    variance, doubt = target.estimate_variance(histogram, gram.n_rows)
    least = max(UNEXPLAINED * variance, doubt, 1e-6)
    if loss.target_law == "normal":
        explained = variances.measure_explained(gram, weights[:, 0])
        return Normal(math.sqrt(max(variance - explained, least)))
    # Counts are on a scale from 0 to 1, and the histogram on one from -1 to 1.
    means = np.exp(np.minimum(rows @ weights[:, 0], HIGHEST))
    residual = max(variance / 4.0 - float(means.var()), least / 4.0)
    spread = 1.0  # variance of a rate relative to a count, the mean of 1/exposure
    if weighting.exposed:
        spread = float(weighting.shares @ (1.0 / weighting.weights))
    return Counts(max(residual / float(means.mean()) / spread, count_unit, 1e-6))
