"""Compute the covariances of released weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.stats import ncx2

from skdp.descent import samplings
from skdp.descent.geometry import estimate_variance, fit_constant, one_thread
from skdp.descent.matrix import Matrix, Space
from skdp.descent.plan import Plan
from skdp.descent.rule import MATRIX_LIMIT
from skdp.inference import slopes, variances
from skdp.inference.slopes import (
    TINY,
    Classes,
    Correction,
    Counts,
    Law,
    Moments,
    Normal,
    Weighting,
    average_products,
    average_slopes,
    find_bias,
)
from skdp.inference.variances import (
    EFFECT_ROOM,
    TAIL_ROOM,
    Learning,
    Z,
    solve_recursion,
)
from skdp.models.losses import Loss
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, Layout

# ---- Describe a run near its optimum as a linear recursion
#
# The recursion gives the covariances of the released weights, one for each cause of
# error. It also gives `Learning`, which computes standard errors that allow for noise
# in the Hessian. This is post-processing, because no record is read.


@dataclass(frozen=True, kw_only=True, eq=False)
class Covariances:
    """Covariances and bias of the released weights around the true weights, by cause.

    They are computed as if the released moments were exact. Here d is the number of
    weights of all outputs together, listed output by output.

    Attributes
    ----------
    noise : float64 (d, d)
        Due to the privacy noise.
    sampling : float64 (d, d)
        Due to sampling the records.
    shrinkage : float64 (d, d)
        Due to shrinkage and early stopping. Both depend on the distance of the true
        weights from the start, which is estimated from the released weights.
    bias : float64 (d,)
        Due to capped slopes. Noise in the metric adds to the bias in directions that
        change no prediction, such as raising all levels of a column and lowering the
        intercept as much.
    """

    noise: FloatArray
    sampling: FloatArray
    shrinkage: FloatArray
    bias: FloatArray

    def noise_std(self, maps: FloatArray) -> FloatArray:
        """Return the standard deviation (m,) of `maps` @ weights due to privacy."""
        return _compute_deviation(maps, self.noise)

    def sampling_std(self, maps: FloatArray) -> FloatArray:
        """Return the standard deviation (m,) of `maps` @ weights due to sampling."""
        return _compute_deviation(maps, self.sampling)

    def std(self, maps: FloatArray) -> FloatArray:
        """Return the standard error (m,) of `maps` @ weights.

        ±1.96 standard errors cover 95 %. Let s be the standard deviation and b the
        bias. The standard error is s times the 95 % quantile of |N(b/s, 1)|, divided by
        the 95 % quantile of |N(0, 1)|.
        """
        each = _compute_deviation(maps, self.noise + self.sampling + self.shrinkage)
        shift = np.clip(maps @ self.bias / np.maximum(each, 1e-300), -1e9, 1e9) ** 2
        wide = np.sqrt(ncx2.ppf(0.95, 1, np.clip(shift, 1e-9, 1e6)))
        return np.asarray(each * wide / math.sqrt(ncx2.ppf(0.95, 1, 1e-9)))


def _compute_deviation(maps: FloatArray, covariance: FloatArray) -> FloatArray:
    variance = np.einsum("md,md->m", maps @ covariance, maps)
    return np.asarray(np.sqrt(np.maximum(variance, 0.0)))


def linearise(
    plan: Plan,
    space: Space,
    known: Moments,
    rows: FloatArray,
    weights: FloatArray,
    noise_std: float,
    law: Law,
    weighting: Weighting,
    cut: float = 0.0,
) -> tuple[Covariances, Learning]:
    """Return the covariances of a run's result, and the `Learning` of the run.

    `noise_std` is the standard deviation of a step's noise, divided by the number of
    rows. The surrogate `rows` (n, d) have roughly the `known` moments. `cut` is the
    mean of what caps cut from the slopes.
    """
    k, n_rows = weights.shape[1], plan.n_rows
    curvature = plan.loss.curvature * weighting.most
    caps = space.radius / np.maximum(
        np.linalg.norm(rows @ space.white.root.T, axis=1), 1e-12
    )
    caps = np.minimum(caps, plan.loss.slope_bound * weighting.most)
    slopes = average_slopes(law, weighting, rows @ weights, caps)
    recoloured = rows @ _make_recolouring(space.white.root, rows, known)
    second = np.kron(np.eye(k), recoloured.T @ recoloured)
    hessian, squares = (
        average_products(recoloured, part) for part in (slopes.curvature, slopes.square)
    )
    root = np.kron(np.eye(k), space.white.root)
    strength = np.tile(plan.penalty.quadratic(np.arange(len(weights))), k)
    forces = root @ (hessian + np.diag(strength)) @ root.T
    values, vectors = np.linalg.eigh((forces + forces.T) / 2)
    values = np.clip(values, 0.0, curvature)  # as steps of 1/β assume
    shares = plan.average(plan.n_steps)
    noise, response = solve_recursion(values, curvature, space.pull, shares)
    back = root.T @ vectors  # maps the basis of S's eigenvectors to weights
    reply = (back * response) @ back.T  # response of weights to a constant force
    sampling = reply @ squares @ reply / n_rows
    noises = noise_std**2 * (back * noise) @ back.T
    # The distance that the run has left to the optimum: (1 - response·S)(u* - u⁰).
    inside = np.linalg.inv(back)
    away = inside @ (weights - space.start).T.ravel()
    left = 1.0 - response * values
    expected = noise_std**2 * noise + np.diag(inside @ sampling @ inside.T)
    seen = _project_seen(root @ hessian @ root.T, vectors)
    reached = float(((1.0 - left) ** 2 * np.diag(seen)).sum())
    gap = max(0.0, float((seen @ away) @ away - np.diag(seen) @ expected))
    prior = gap / reached if reached > 0 else 0.0  # then nothing is known
    bias = np.stack(
        [
            _compute_placing(plan.layout, known.complete, space, w, w0)
            for w, w0 in zip(weights.T, space.start.T, strict=True)
        ],
        axis=1,
    )
    bias = (bias + find_bias(law, weighting, rows, weights, caps)).T.ravel()
    usual = Covariances(
        noise=noises,
        sampling=sampling,
        shrinkage=prior * (back * left) @ seen @ (back * left).T,
        bias=bias,
    )
    capped = bool((caps < plan.loss.slope_bound * weighting.most).any())
    beyond = np.array([group.inner != (0.0, 1.0) for group in plan.layout.groups])
    reach = np.abs(weights - space.start) * beyond[plan.layout.group_of, None]
    learning = Learning(
        values=values,
        back=back,
        second=np.asarray(second / len(rows), np.float64),
        hessian=hessian,
        squares=squares / n_rows,
        ridge=strength,
        away=away,
        prior=prior,
        bias=bias,
        effect_room=EFFECT_ROOM * capped,
        tails=TAIL_ROOM * capped * reach.T.ravel(),
        cut=cut * capped,
        noise_std=noise_std,
        curvature=curvature,
        pull=space.pull,
        shares=shares,
    )
    return usual, learning


def _make_recolouring(root: FloatArray, rows: FloatArray, known: Moments) -> FloatArray:
    """Return a matrix M (d, d) such that rows @ M have exactly the known moments.

    Surrogate rows have only roughly these moments, and not even roughly if some columns
    nearly determine others.
    """
    wanted = known.covariance + np.outer(known.mean, known.mean)
    power = _raise_power(root @ (rows.T @ rows / len(rows)) @ root.T, -0.5)
    power = power @ _raise_power(root @ wanted @ root.T, 0.5)
    return np.asarray(root.T @ power @ np.linalg.inv(root).T)


def _raise_power(matrix: FloatArray, exponent: float) -> FloatArray:
    """Return a power of a symmetric matrix, where zero eigenvalues stay zero."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = values > 1e-9 * values[-1]
    powers = np.where(kept, np.where(kept, values, 1.0) ** exponent, 0.0)
    return np.asarray((vectors * powers) @ vectors.T)


def _project_seen(forces: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return the projection matrix onto the directions in which rows vary.

    The matrix is in the basis `vectors`. Rows do not determine the true weights in the
    other directions, so the bias of the weights is not defined there. An example is the
    direction that raises the weights of all levels of a column and lowers the
    intercept.
    """
    values, own = np.linalg.eigh((forces + forces.T) / 2)
    kept = vectors.T @ own[:, values > 1e-9 * values[-1]]
    return np.asarray(kept @ kept.T)


def _compute_placing(
    layout: Layout,
    complete: Sequence[bool],
    space: Space,
    w: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """Return the offset of weights along directions in which rows do not vary.

    Such a direction v is 1 on the levels of a column and -1 on the intercept. Steps in
    the metric A keep vᵀA(w - w⁰) at zero. The true weights, however, are defined so
    that the levels of a column sum to zero. The true weights plus the offset are the
    equivalent weights that satisfy the condition of the steps.
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
    away = inverse.T @ (level - start)
    return np.asarray(-free @ np.linalg.lstsq(across, away, rcond=None)[0])


# ---- Compute the uncertainty of released weights, from released values alone
#
# Near the optimum the descent is a linear recursion in whitened coordinates u = B⁻ᵀw,
# so the Hessian H determines the covariance of the result exactly:
#
#     u ← ((I - S/β) u + ξ/(βn) + const)/(1 + λ/β),   S = B (H + ridge) Bᵀ.
#
# Here B is the whitening matrix, 1/β the step size, ξ the noise of a step, n the number
# of rows, and λ the strength of the pull to the start. H, the variance of the records'
# gradients and the bias from capped slopes are computed as means over rows that have
# the released moments (`surrogate_rows`). Noise in these moments makes H uncertain,
# which `plausible` takes into account. This is post-processing, because no record is
# read. `docs/guide/intervals.md` derives the formulas.


#: Advice for fits whose geometry or sampling has no standard errors.
USE_DEFAULT = " Use the default geometry and sampling to get standard errors."
#: Smallest share of a target's variance that is assumed to be unexplained. Models of
#: counts explain little, and a few made-up rows with large means would explain it all.
UNEXPLAINED, UNEXPLAINED_COUNTS = 0.05, 0.5
#: The effect of a number that noise hides on the scale of what its rows fill, from one
#: end to the other: this many times what a category that cannot be told may have.
HIDDEN_EFFECT = 3.0
#: Noise hides a number whose variance is below this many of its standard deviations.
SEEN = 3.09
#: Standard deviations of noise that are added to the covariance with such a number.
FLOW_DOUBT = 2.0


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
    rows : float64 (n, d)
        Rows that were made up to have roughly the `known` moments.
    looked : bool
        Whether a look found what the rows fill, so ranges are not wider than that.
    """

    usual: Covariances
    usual_level: float
    learning: Learning
    correction: Correction | None
    gram: variances.ReleasedGram
    known: slopes.Moments
    n_outputs: int
    rows: FloatArray
    looked: bool = False

    def errors(self, plain: FloatArray, contrasts: FloatArray) -> Errors:
        """Return the errors of `plain` @ weights and of `contrasts` @ weights.

        Each row of `plain` (m, d) is the corresponding row of `contrasts` plus a level
        that the records cannot determine, such as the mean of a column's categories.
        The variance of this level is added to the variance of `contrasts` @ weights, to
        obtain the variance of `plain` @ weights. If there are several outputs,
        contrasts are relative to the mean of all outputs.
        """
        k = self.n_outputs
        class_contrasts = np.eye(k) - (1.0 / k if k > 1 else 0.0)
        whole = np.asarray(np.kron(np.eye(k), plain), np.float64)
        parts = np.asarray(np.kron(class_contrasts, contrasts), np.float64)
        noise_std, sampling_std, std = self._compute_stds(parts, class_contrasts)
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

    def covary(self, maps: FloatArray) -> FloatArray:
        """Return the covariance matrix (m, m) of `maps` @ weights, for one output.

        The standard errors on its diagonal are those of each map by itself, which allow
        for noise in the released moments. They are infinite for what cannot be told,
        and its covariances are nan. The correlations are those that hold if the
        released moments are exact.
        """
        std = self.find_std(maps)
        usual, fixed = self.usual, self.correction
        whole = usual.noise + usual.sampling + usual.shrinkage
        moved = maps if fixed is None else fixed.move(maps)
        matrix = moved @ whole @ moved.T
        if fixed is not None:
            own = maps[:, fixed.last]
            matrix = matrix + own @ (fixed.noise + fixed.sampling) @ own.T
        size = np.sqrt(np.maximum(np.diag(matrix), TINY))
        matrix = (matrix + matrix.T) / 2.0
        correlations = np.clip(matrix / np.outer(size, size), -1.0, 1.0)
        told = np.isfinite(std)
        kept = np.where(told, std, np.nan)
        found = correlations * np.outer(kept, kept)
        np.fill_diagonal(found, std**2)
        return np.asarray(found)

    def find_std(self, maps: FloatArray) -> FloatArray:
        """Return the standard errors (m,) of `maps` @ weights, for one output."""
        return self._compute_stds(maps, np.eye(1))[2]

    def _compute_stds(
        self, parts: FloatArray, class_contrasts: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the errors due to privacy and to sampling, and standard errors."""
        fixed = self.correction
        noise_std, sampling_std = np.zeros(len(parts)), np.zeros(len(parts))
        std = np.full(len(parts), np.inf)
        maps = parts if fixed is None else fixed.move(parts)
        some = np.asarray(maps.any(axis=1))  # a column of one category has no contrast
        with one_thread(parts.shape[1]):
            varies = self._measure_remaining(maps, class_contrasts)
            noise_std[some], sampling_std[some], std[some] = self.learning.errors(
                maps[some], varies.take(some)
            )
        std = np.hypot(std, self._find_flow(varies))
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
        return noise_std, sampling_std, std

    def _find_flow(self, varies: variances.Varies) -> FloatArray:
        """Return what may flow into coefficients (m,) from numbers that noise hides.

        Without a look, a hidden number may explain as much as is left unexplained, and
        be correlated with every other column. Its effect then flows into theirs. A look
        leaves a number the range that its rows fill. If it hardly varies on this scale,
        few rows differ from the others. Such a number is treated like a rare category:
        its effect from one end of the range to the other is limited. What flows is the
        effect times the covariance with the other column, which was released.
        """
        hidden = self._hidden_numbers
        if not len(hidden):
            return np.zeros(len(varies.estimate))
        remaining = np.maximum(varies.estimate, TINY)
        most = self.usual_level / np.sqrt(remaining)
        if not self.looked:
            return np.asarray(most)
        total = np.zeros(len(remaining))
        for own in np.split(varies.residuals, self.n_outputs, axis=1):
            q = self.gram.recentre(own)
            for direction in hidden:
                found, std = self.gram.evaluate_products(q, direction)
                total += np.square(np.abs(found) + FLOW_DOUBT * std)
        flow = HIDDEN_EFFECT * self.usual_level * np.sqrt(total) / remaining
        return np.asarray(np.minimum(flow, most))

    @cached_property
    def _hidden_numbers(self) -> FloatArray:
        """Directions (h, d) of the numbers of which noise hides that they vary at all.

        A number whose range a look narrowed is not among them. If it hardly varies on
        that scale, it is nearly constant and explains nothing. Nor is a line beside a
        curve, because curves are not among them either.
        """
        at = [
            group.start
            for group in self.gram.layout.groups
            if group.kind == "dense"
            and group.width == 1
            and group.inner == (0.0, 1.0)
            and not group.heights
        ]
        directions = np.eye(self.gram.layout.n_features)[at]
        directions[:, -1] = -self.gram.matrix[at, -1]  # the mean is not variation
        found, std = self.gram.evaluate_forms(directions)
        return np.asarray(directions[found <= SEEN * std])

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
    for k in np.flatnonzero(np.isinf(std) & contrasts.any(axis=1)):
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


def recall_run(
    plan: Plan, transcript: Sequence[Released]
) -> tuple[Space, Released | None, float]:
    """Return the metric of a run, its histogram of the target, and its noise.

    The noise is the standard deviation of a step's noise, divided by the number of
    rows. The plan has the geometry `Matrix`. Releases before the run may come first in
    the transcript.
    """
    geometry = plan.geometry
    assert isinstance(geometry, Matrix)
    first = _locate_gram(plan, geometry, transcript)
    histogram = transcript[first + 1] if geometry.target_share > 0 else None
    found = None
    if histogram is not None:
        found = fit_constant(histogram, plan.loss, plan.n_rows)
    pattern = queries.GramPattern.of(plan.layout, plan.neighbours, centred=True)
    space = geometry.make_space(
        plan.layout, plan.loss, pattern, plan.n_rows, transcript[first], found
    )
    step = transcript[first + (geometry.target_share > 0) + plan.n_steps]
    return space, histogram, float(np.max(step.noise_std)) / plan.n_rows


def find_gram(plan: Plan, transcript: Sequence[Released]) -> Released:
    """Return the released Gram matrix of a run."""
    assert isinstance(plan.geometry, Matrix)
    return transcript[_locate_gram(plan, plan.geometry, transcript)]


def _locate_gram(plan: Plan, geometry: Matrix, transcript: Sequence[Released]) -> int:
    """Return the place of the Gram matrix, with which the releases of the run start."""
    after = plan.n_steps + (geometry.target_share > 0) + (geometry.level_share > 0)
    return len(transcript) - 1 - after


def estimate(
    plan: Plan,
    transcript: Sequence[Released],
    weights: FloatArray,
    exact: Released | None = None,
    *,
    weighting: Weighting | None = None,
    count_unit: float = 0.0,
    looked: bool = False,
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
    looked : bool
        Whether a look before the fit found what the rows fill.
    """
    reason = find_obstacle(plan)
    if reason is not None:
        raise ValueError(reason)
    weighting = weighting or Weighting.equal()
    geometry = plan.geometry
    assert isinstance(geometry, Matrix)
    space, histogram, noise_std = recall_run(plan, transcript)
    pattern = queries.GramPattern.of(plan.layout, plan.neighbours, centred=True)
    gram = variances.ReleasedGram(
        layout=plan.layout,
        pattern=pattern,
        released=find_gram(plan, transcript) if exact is None else exact,
        n_rows=plan.n_rows,
    )
    known = slopes.estimate_moments(
        gram.layout, gram.pattern, gram.released, gram.n_rows
    )
    rows = slopes.make_rows(gram.layout, known)
    law = _make_law(plan.loss, weighting, histogram, gram, rows, weights, count_unit)
    with one_thread(weights.size):
        usual, learning = linearise(
            plan,
            space,
            known,
            rows,
            weights,
            noise_std,
            law,
            weighting,
            _measure_cut(transcript[-1], plan) if geometry.level_share > 0 else 0.0,
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
        rows=rows,
        looked=looked,
    )


def _measure_cut(released: Released, plan: Plan) -> float:
    """Return the mean of what caps cut from the slopes, less the noise in it.

    The steps end where the capped slopes have a mean of zero. The sum of slopes that is
    released after them has a cap that hardly cuts, so its mean is what was cut.
    """
    found = float(np.linalg.norm(released.values))
    noise = float(np.max(released.noise_std)) * math.sqrt(plan.loss.n_outputs)
    return max(found - noise, 0.0) / plan.n_rows


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
    variance, doubt = estimate_variance(histogram, gram.n_rows)
    counts = loss.target_law == "poisson"
    share = UNEXPLAINED_COUNTS if counts else UNEXPLAINED
    least = max(share * variance, doubt, 1e-6)
    if loss.target_law == "normal":
        explained = variances.measure_explained(gram, weights[:, 0])
        return Normal(math.sqrt(max(variance - explained, least)))
    # Counts are on a scale from 0 to 1, and the histogram on one from -1 to 1.
    # A mean cannot exceed the largest count, although few made-up rows may say so.
    means = np.exp(np.minimum(rows @ weights[:, 0], 0.0))
    residual = max(variance / 4.0 - float(means.var()), least / 4.0)
    spread = 1.0  # variance of a rate relative to a count, the mean of 1/exposure
    if weighting.exposed:
        spread = float(weighting.shares @ (1.0 / weighting.weights))
    return Counts(max(residual / float(means.mean()) / spread, count_unit, 1e-6))
