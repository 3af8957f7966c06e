"""Compute the variance of each coefficient, and decide which ones can be told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from skdp.descent.matrix import fill_gram
from skdp.inference.slopes import Moments
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, Layout

# ---- Estimate how much a column varies, from a released Gram matrix
#
# A coefficient is learnt from the variance of its column given the other columns. This
# module estimates that variance from the released matrix. It also computes the standard
# deviation of the estimate, since the size of the noise is known. This is
# post-processing, because no record is read.


#: Ridge on the Gram matrix, in standard deviations of the noise. Combinations of
#: columns whose variance is far below this ridge do not matter.
DOUBT = 1.645
#: The smallest addition to the diagonal of a matrix before it is inverted.
TINY = 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class ReleasedGram:
    """A released Gram matrix and the size of its noise.

    Attributes
    ----------
    layout, pattern : Layout, GramPattern
        The layout of the rows, and the positions of the entries that were released.
    released : Released
        The values of these entries.
    n_rows : float
        The public or released number of rows.
    """

    layout: Layout
    pattern: queries.GramPattern
    released: Released
    n_rows: float

    @property
    def matrix(self) -> FloatArray:
        """The Gram matrix (d, d) of the centred rows, divided by n."""
        values = self.released.values
        return fill_gram(self.layout, self.pattern, values, self.n_rows) / self.n_rows

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise in a diagonal entry, divided by n."""
        return float(np.max(self.released.noise_std)) / self.n_rows

    def evaluate_forms(self, q: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return qᵀGq for each row of `q` (m, d), where G is `matrix`.

        Also return the standard deviation of the noise in each of these values.
        """
        values = np.einsum("md,de,me->m", q, self.matrix, q, optimize=True)
        i, j = self.pattern.rows, self.pattern.columns
        kind = [self.layout.groups[g].kind for g in self.layout.group_of]
        # The diagonal entry of a category also appears in the row and in the column of
        # the intercept.
        code = (i == j) & (np.array(kind)[i] == "code")
        std = np.broadcast_to(self.released.noise_std, i.shape) / self.n_rows
        variances = np.empty(len(q))
        for k, each in enumerate(q):
            times = each[i] * each[j] * np.where(i == j, 1.0, 2.0)
            times[code] += 2.0 * each[i[code]] * each[-1]
            variances[k] = np.square(times * std).sum()
        return values, np.sqrt(variances)

    def evaluate_products(
        self, q: FloatArray, direction: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return qᵀGp for each row of `q` (m, d), where p is `direction` (d,).

        Also return the standard deviation of the noise in each of these values, as
        `evaluate_forms` does for p = q.
        """
        values = q @ (self.matrix @ direction)
        i, j = self.pattern.rows, self.pattern.columns
        kind = [self.layout.groups[g].kind for g in self.layout.group_of]
        code = (i == j) & (np.array(kind)[i] == "code")
        times = q[:, i] * direction[j] + q[:, j] * direction[i]
        times[:, i == j] /= 2.0
        times[:, code] += (
            q[:, i[code]] * direction[-1] + q[:, [-1]] * direction[i[code]]
        )
        std = np.broadcast_to(self.released.noise_std, i.shape) / self.n_rows
        return values, np.sqrt(np.square(times * std).sum(axis=1))

    def centre(self, functionals: FloatArray) -> FloatArray:
        """Convert functionals aᵀw (m, d) from encoded rows to centred rows."""
        half = self.pattern.shift / 2.0
        return np.asarray(functionals - np.outer(functionals[:, -1], half))

    def uncentre(self, weights: FloatArray) -> FloatArray:
        """Convert weights (m, d) for centred rows to weights for encoded rows."""
        moved = weights.copy()
        moved[:, -1] -= weights @ (self.pattern.shift / 2.0)
        return moved

    def recentre(self, weights: FloatArray) -> FloatArray:
        """Convert weights (m, d) for encoded rows to weights for centred rows."""
        moved = weights.copy()
        moved[:, -1] += weights @ (self.pattern.shift / 2.0)
        return moved


@dataclass(frozen=True, eq=False)
class Varies:
    """The variance of the column of each coefficient, given the other columns.

    Attributes
    ----------
    estimate, std : float64 (m,)
        The variance according to the released matrix, and the standard deviation of the
        noise in this estimate.
    residuals : float64 (m, d)
        A vector q for each coefficient. Adding q to the weights changes the coefficient
        by one. Of all vectors that do so, q has the margins with the smallest variance,
        up to noise. That variance is `estimate`.
    """

    estimate: FloatArray
    std: FloatArray
    residuals: FloatArray

    def take(self, some: npt.NDArray[np.bool_]) -> Varies:
        """Return the variances for some of the coefficients."""
        return Varies(self.estimate[some], self.std[some], self.residuals[some])


def measure_remaining(
    gram: ReleasedGram, known: Moments, functionals: FloatArray
) -> Varies:
    """Return the variance of rows along each coefficient aᵀw, given the other columns.

    The variance is the minimum of qᵀGq over all weights q with aᵀq = 1, where G is the
    Gram matrix of the rows without noise. Any such q gives an upper bound, so q may be
    computed from the noisy matrix. A ridge of the size of the noise keeps q from
    fitting the noise.
    """
    at = gram.centre(functionals)
    half = gram.pattern.shift / 2.0
    mean = known.mean - half
    second = known.covariance + np.outer(mean, mean)
    ridge = max(DOUBT * gram.noise_std, TINY)
    matrix = second + ridge * np.eye(len(mean))
    q: FloatArray = np.asarray(np.linalg.solve(matrix, at.T).T, np.float64)
    q /= np.einsum("md,md->m", q, at)[:, None]
    estimate, std = gram.evaluate_forms(q)
    return Varies(estimate, std, gram.uncentre(q))


def measure_explained(gram: ReleasedGram, weights: FloatArray) -> float:
    """Return a low estimate of the variance of the margins of weights (d,).

    This is the variance according to the released matrix, minus one standard deviation
    of the noise in that variance. The estimate is low on purpose, because the
    weights of columns that hardly vary consist of noise.
    """
    centred = weights.copy()
    centred[-1] = 0.0
    centred[-1] = -float(centred @ gram.matrix[:, -1])
    value, std = gram.evaluate_forms(centred[None])
    return max(0.0, float(value[0] - std[0]))


# ---- Compute standard errors that allow for noise in the Hessian
#
# The released weights w satisfy w - w⁰ = R (w* - w⁰) + noise, where w* are the true
# weights and w⁰ is the start. In directions that the data determine well, R is close to
# the identity. For a coefficient aᵀw, everything depends on the curvature h of the loss
# along the coefficient, minimised over the other weights:
#
#     r = h aᵀLa,   S(h) = S - (h̃ - h) b bᵀ,   b = Ba.
#
# Here r is the share of the true effect that the released weight shows, and h̃ is the
# estimate of h. S and B are those of `covariances`, and L = Bᵀφ(S)B, where φ(s) is the
# `response` of `solve_recursion`.
#
# Noise in the Gram matrix makes h uncertain, so `N_POINTS` equally likely values of h
# are considered. Each value has its own r, noise and sampling error. The interval
# covers the true coefficient with a probability of 95 %, on average over these values.
# If r is below `LEAST_RESPONSE` at a lower confidence bound of h, the coefficient
# cannot be determined, and its standard error is infinite. See
# `docs/guide/intervals.md`.


#: Number of equally likely values that are considered for an uncertain variance.
N_POINTS = 16
#: A released weight must show at least the share `LEAST_RESPONSE` of an effect, even at
#: the lower bound (95 %) of the variance. This bound is the estimate minus `SURE`
#: standard deviations of the noise.
LEAST_RESPONSE, SURE = 0.5, 1.645
#: The bias from capped slopes is estimated from surrogate rows. It is multiplied by
#: this factor, to allow for the error of the estimate.
BIAS_ROOM = 4 / 3
#: If the model is wrong, capped slopes may change an effect by this share. On the
#: measured tables, caps cut 1 to 5 % of the gradients.
EFFECT_ROOM = 0.05
#: The same, in addition, for a number whose range goes beyond what most rows fill. Caps
#: cut the gradients of the few rows out there most. If the effect is not a line, the
#: slope of the other rows is another one.
TAIL_ROOM = 0.10
#: Where the slopes that caps cut lie along a column is not known. They may be this many
#: standard deviations of the column from its mean, on average.
CUT_DISTANCE = 1.0
#: Number of steps of Lanczos' method, which are enough to compute functions of S.
N_LANCZOS = 24
#: Number of points in the table of the recursion's solutions, and number of bisections
#: that find a quantile.
N_TABLE, N_BISECTIONS = 4096, 30
#: A standard normal lies within ±Z with probability 95 %.
Z = 1.959964


@dataclass(frozen=True, kw_only=True, eq=False)
class Learning:
    """How well a run has learnt the true weights, in the basis of S's eigenvectors.

    Attributes
    ----------
    values, back : float64 (d,), (d, d)
        Eigenvalues of S, and the map from the basis of its eigenvectors to weights.
    second, hessian, squares : float64 (d, d)
        E xxᵀ, the Hessian H, and J/n, the variance of the mean gradient. All three are
        computed from the same rows.
    ridge : float64 (d,)
        The penalty of each weight.
    away : float64 (d,)
        The released weights minus the start, in the basis of eigenvectors.
    prior : float
        Estimated squared distance of the true weights from the start, per direction.
    bias : float64 (d,)
        The bias of the weights from capped slopes.
    effect_room : float
        Share by which caps may change an effect: `EFFECT_ROOM`, or 0 if no slope can be
        capped.
    tails : float64 (d,)
        By how much the caps on rows beyond what most rows fill may change each weight.
    cut : float
        The mean of what caps cut from the slopes, according to the released mean of the
        slopes after the descent.
    noise_std : float
        Standard deviation of a step's noise, divided by the number of rows.
    curvature, pull : float
        β and λ, where steps have size 1/β and λ is the strength of the pull to the
        start.
    shares : float64 (n_steps,)
        Weight of each iterate in the average.
    """

    values: FloatArray
    back: FloatArray
    second: FloatArray
    hessian: FloatArray
    squares: FloatArray
    ridge: FloatArray
    away: FloatArray
    prior: float
    bias: FloatArray
    effect_room: float
    tails: FloatArray
    cut: float
    noise_std: float
    curvature: float
    pull: float
    shares: FloatArray

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        points = self.curvature * np.linspace(0.0, 1.0, N_TABLE) ** 2
        noise, response = solve_recursion(
            points, self.curvature, self.pull, self.shares
        )
        return points, noise, response

    def solve(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return `solve_recursion` for eigenvalues in an array of any shape.

        Results are interpolated in a table. Eigenvalues are clipped to [0, β].
        """
        points, noise, response = self._table
        return np.interp(values, points, noise), np.interp(values, points, response)

    @cached_property
    def _inner(self) -> tuple[FloatArray, FloatArray]:
        """The inverse of H, and J/n, in the basis of eigenvectors."""
        hessian = self.back.T @ self.hessian @ self.back
        return (
            np.asarray(np.linalg.pinv(hessian, rcond=TINY, hermitian=True), np.float64),
            np.asarray(self.back.T @ self.squares @ self.back),
        )

    @cached_property
    def inside(self) -> FloatArray:
        """The map from weights to the basis of eigenvectors."""
        return np.asarray(np.linalg.inv(self.back))

    def errors(
        self, functionals: FloatArray, varies: Varies
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the errors due to privacy, those due to sampling, and standard errors.

        Each array has shape (m,). Standard errors cover privacy, sampling, shrinkage
        and capped slopes together.

        `varies` must have been computed for the same `functionals` (m, d). The
        functionals must not depend on directions that no row determines, such as a
        constant that is added to the weights of all categories of a column.
        """
        found = np.empty((3, len(functionals)))
        for k, a in enumerate(functionals):
            seen = float(varies.estimate[k]), float(varies.std[k]), varies.residuals[k]
            found[:, k] = self._compute_errors(a, *seen)
        return found[0], found[1], found[2]

    @np.errstate(all="ignore")  # a curvature that is almost zero may overflow
    def _compute_errors(
        self, a: FloatArray, variance: float, doubt: float, q: FloatArray
    ) -> tuple[float, float, float]:
        inverse, squares = self._inner
        b = self.back.T @ a
        own = float(b @ self.away)
        # The curvature along q is h̃ at the estimate and h at each possible variance.
        follows = inverse @ b
        usual_h = 1.0 / max(float(b @ follows), 1e-300)
        length = float(np.square(follows * usual_h).sum())
        varies, curves, scatters = (
            max(float(q @ of @ q), 1e-300)
            for of in (self.second, self.hessian, self.squares)
        )
        least = max(variance - SURE * doubt, 0.0)
        possible = np.append(_list_possible(variance, doubt), least)
        h = np.append(possible * curves / varies, usual_h)
        size, basis, inner = lanczos(self.values, b)
        inner = np.repeat(inner[None], len(h), axis=0)
        inner[:, 0, 0] -= (usual_h - h) * size**2
        values, turned = np.linalg.eigh(inner)
        values = np.clip(values, 0.0, self.curvature)
        noise, response = self.solve(values)
        first = turned[:, 0, :]
        noises = (self.noise_std * size) ** 2 * (first**2 * noise).sum(axis=1)
        reply = size * np.einsum("kij,kj->ki", turned, response * first)
        usual_r = usual_h * float(b @ (self.solve(self.values)[1] * b))
        r = h * reply[:, 0] / (usual_h * reply[-1, 0]) * usual_r  # corrects Lanczos
        drag = self.ridge @ q**2 + self.pull * np.square(self.inside @ q).sum()
        r = np.maximum(np.minimum(r, h / (h + drag + 1e-300)), 1e-12)  # a long run's
        sampling = np.einsum("ki,ij,kj->k", reply, basis.T @ squares @ basis, reply)
        sampling -= (usual_h - h) * scatters / curves * (size * reply[:, 0]) ** 2
        # Shrinkage of other directions affects this coefficient too.
        left = size * np.einsum("kij,kj->ki", turned, (response * values - 1.0) * first)
        others = np.square(left).sum(axis=1) - (1.0 - r) ** 2 / length
        sampling = np.maximum(sampling, 0.0)
        random = sampling + self.prior * np.maximum(others, 0.0)
        std = np.sqrt(noises + random) / r
        # The expected shrinkage of the released weight plus the bias from caps.
        shift = abs(own) * (1.0 / r - 1.0 + self.effect_room)
        shift = shift + BIAS_ROOM * abs(float(a @ self.bias))
        shift = shift + float(np.abs(a) @ self.tails)
        shift = shift + CUT_DISTANCE * self.cut * math.sqrt(varies) / curves
        privacy = float(np.sqrt(noises[:-2].mean()))
        known = bool(np.isfinite(std).all() and np.isfinite(shift).all())
        if r[-2] < LEAST_RESPONSE or not known:
            return privacy, np.inf, np.inf
        drawn = float(np.sqrt(sampling[:-2].mean()))
        return privacy, drawn, find_half_width(shift[:-2], std[:-2]) / Z


def _list_possible(variance: float, doubt: float) -> FloatArray:
    """Return equally likely values of a variance, given a noisy estimate of it."""
    if doubt == 0:
        return np.array([max(variance, 0.0)])
    chances = (np.arange(N_POINTS) + 0.5) / N_POINTS
    return np.maximum(variance + doubt * ndtri(chances), 0.0)


def find_half_width(shift: FloatArray, std: FloatArray) -> float:
    """Return h such that |N(shift, std²)| > h has probability 5 %.

    `shift` and `std` are arrays. The probability is averaged over their entries.
    """
    low, high = 0.0, float((shift + 5.0 * std).max())
    for _ in range(N_BISECTIONS):
        middle = (low + high) / 2.0
        missed = ndtr((shift - middle) / std) + ndtr(-(shift + middle) / std)
        low, high = (middle, high) if missed.mean() > 0.05 else (low, middle)
    return high


def lanczos(values: FloatArray, b: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """Return ‖b‖, an orthonormal basis Q (d, m), and QᵀSQ for a diagonal matrix S.

    The first column of Q is b/‖b‖. For polynomials f of degree below m,
    f(S) b = Q f(QᵀSQ) e₁ ‖b‖. The basis is the same for S + c b bᵀ, for any c.
    """
    size = float(np.linalg.norm(b))
    basis = np.zeros((min(N_LANCZOS, len(b)), len(b)))
    basis[0] = b / max(size, 1e-300)
    for k in range(1, len(basis)):
        new = values * basis[k - 1]
        for _ in range(2):  # one pass would not be orthogonal enough
            new -= basis[:k].T @ (basis[:k] @ new)
        length = float(np.linalg.norm(new))
        if length < 1e-10 * max(float(values.max()), 1e-300):
            basis = basis[:k]
            break
        basis[k] = new / length
    return size, basis.T, (basis * values) @ basis.T


def solve_recursion(
    values: FloatArray, curvature: float, pull: float, shares: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the effect of noise and of a constant force, for each eigenvalue s of S.

    Let t = (1 - s/β)/(1 + λ/β), where β is `curvature` and λ is `pull`. Let a_k be the
    weight of iterate k in the average (`shares`). The noise of step j enters the
    average multiplied by f_j = Σ_{k≥j} a_k t^(k-j)/(β + λ).

    Returns
    -------
    noise, response : float64 (d,)
        Σ_j f_j² and Σ_j f_j. To obtain the variance due to noise, multiply Σ_j f_j² by
        the variance of one step's noise.
    """
    factor = (1.0 - values / curvature) / (1.0 + pull / curvature)
    noise, response = np.zeros_like(values), np.zeros_like(values)
    reach = np.zeros_like(values)
    for share in shares[::-1]:
        reach = share / (curvature + pull) + factor * reach
        noise += reach**2
        response += reach
    return noise, response
