"""Take steps in the metric of a released Gram matrix, which is the default."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.linalg import lu_factor
from scipy.linalg.lapack import dgetrs
from scipy.optimize import least_squares
from scipy.special import ndtri
from scipy.stats import qmc

from skdp.descent.geometry import (
    RESIDUAL,
    USUAL_SCALE,
    ConstantModel,
    Geometry,
    Prepared,
    PriorRun,
    Task,
    accelerate,
    clip_to_box,
    one_thread,
    prior_spectrum,
)
from skdp.models.losses import Loss
from skdp.models.penalties import Penalty, iterate
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.privacy.queries import Kind
from skdp.schema import FloatArray, IntArray, Layout, check
from skdp.schema.validation import fact

# ---- Whiten rows by a released Gram matrix


#: Shrinking assumes that this share of the variance of a curve or surface is
#: independent at each knot or category.
ROUGH = 0.2


@dataclass(frozen=True, eq=False)
class Whitening:
    """A matrix B with BᵀB = A⁻¹, which whitens rows.

    A is the released Gram matrix, with negative eigenvalues set to zero, plus `floor`
    times the identity.

    Attributes
    ----------
    root : float64 (d, d)
        B, which maps feature rows to whitened rows.
    share : float64 (d,)
        For each whitened direction, an estimate of the share of A that comes from the
        true Gram matrix and not from noise or `floor`. It is at most one.
    vectors : float64 (d, d)
        The whitened directions, one per column, for rows that are already centred and
        multiplied by the prior (`make_prior`).
    moments : float64 (d, d)
        The estimated Gram matrix of centred rows, without most of the noise.
    """

    root: FloatArray
    share: FloatArray
    vectors: FloatArray
    moments: FloatArray

    @property
    def dimension(self) -> float:
        """Expected squared length E‖Bx‖² of a whitened row, estimated from `share`.

        E‖Bx‖² equals tr(A⁻¹G), where G is the true Gram matrix. The estimate is at most
        d. It is at least 1 even if noise hides every direction, because a smaller value
        could make the cap on gradients too small.
        """
        return max(1.0, float(self.share.sum()))


def whiten(
    gram: FloatArray, floor: float, shift: FloatArray, prior: FloatArray | None = None
) -> Whitening:
    """Compute the whitening from the Gram matrix of the centred rows x - shift/2.

    Here x is an encoded row and shift/2 is public (`GramPattern`). The result is
    B = A^(-1/2) T (I - ½ shift eᵀ), where T is the `prior`, A is the matrix of
    `Whitening` for the rows T(x - shift/2), and e selects the intercept. B includes the
    centring and T, so it is applied directly to encoded rows. Without a prior, T = I.
    """
    prior = np.eye(len(gram)) if prior is None else prior
    with one_thread(len(gram)):
        values, vectors = np.linalg.eigh(prior @ gram @ prior.T)
        metric = np.maximum(values, 0.0) + floor
        root = (vectors / np.sqrt(metric)) @ (vectors.T @ prior)
        clean = remove_noise(values, floor)
        back = np.linalg.solve(prior, vectors)
        moments = (back * clean) @ back.T
    # Rows are never centred: they stay integers on the grid. The centring is moved into
    # the matrix, where it costs nothing.
    root[:, -1] -= root @ shift / 2.0
    # Eigenvalues that noise hides share one mean, which may exceed the smallest of them
    # with its floor.
    share = np.clip(clean / metric, 0.0, 1.0)
    return Whitening(root=root, share=share, vectors=vectors, moments=moments)


def keep_relations(layout: Layout, gram: FloatArray, shift: FloatArray) -> FloatArray:
    """Return the Gram matrix of centred rows, without noise that cannot be true.

    A line beside a curve is a sum of the curve's coordinates in every row, so there are
    vectors v with v·x = 0 for all centred rows x. The true matrix maps them to zero,
    up to the rounding of rows, but the released one does not. This returns the nearest
    matrix that does, measured by the noise of the entries, which is divided by the
    scales of both coordinates.
    """
    found = []
    for group in layout.groups:
        if group.heights:
            relation = np.zeros(layout.n_features)
            relation[group.start] = 1.0
            relation[group.along : group.along + len(group.heights)] = -np.array(
                group.heights
            )
            relation[-1] += relation @ shift / 2.0  # the intercept of centred rows
            found.append(relation)
    if not found or layout.groups[-1].kind != "ones":
        return gram
    scales = layout.scales[:, None]
    with one_thread(len(gram)):
        base = np.linalg.qr(np.array(found).T / scales)[0]
        kept = (np.eye(len(gram)) - base @ base.T) * scales.T / scales
        return np.asarray(kept @ gram @ kept.T)


def make_prior(layout: Layout) -> FloatArray:
    """Return the matrix T by which a matrix geometry multiplies centred rows.

    A matrix geometry shrinks weights in two ways. It adds a floor to the eigenvalues of
    the Gram matrix, and it pulls weights to the start. Both shrink all directions of Tx
    alike. Shrinking therefore assumes that the weights have the covariance TᵀT. The
    variance of a weight is the square of its group's scale. The rough directions of a
    curve have a smaller variance (see `measure_smoothness`). The covariance of a
    surface is the Kronecker product of the covariances of its two sides.
    """
    prior = np.diag(layout.scales)
    for group in layout.groups:
        if group.sides:
            roots = [_root_of_side(width, knots) for width, knots in group.sides]
            root = roots[0] if len(roots) == 1 else np.kron(*roots)
            at = slice(group.start, group.start + group.width)
            prior[at, at] = group.scale * root
    return prior


@cache
def _root_of_side(width: int, n_knots: int) -> FloatArray:
    """Return the symmetric root of the covariance that shrinking assumes for a side.

    A side is a curve, or one of the two columns of a surface. Coordinates after the
    knots belong to missing numbers, and are independent of all others. A side without
    knots consists of categories, which have no order.
    """
    root = np.eye(width)
    n = n_knots or width
    covariance = (
        measure_smoothness(n)
        if n_knots
        else np.eye(n) - (1.0 - ROUGH) / n  # only the mean varies less
    )
    values, vectors = np.linalg.eigh(covariance)
    root[:n, :n] = (vectors * np.sqrt(values)) @ vectors.T
    return root


def measure_smoothness(n_knots: int) -> FloatArray:
    """Return the covariance that shrinking assumes for the heights of a curve.

    The heights are the values at the knots. Neighbouring heights are assumed to be
    alike. The share 1 - `ROUGH` of the covariance belongs to a random walk from knot to
    knot, from which its mean is subtracted. The rest is independent at each knot. The
    largest variance in any direction is one. The mean of all heights has the smallest
    variance, `ROUGH`, because the intercept can take over this mean. In a surface, the
    curve of the other column can take it over.
    """
    at = np.arange(n_knots, dtype=np.float64)
    walk = np.minimum.outer(at, at)
    walk -= walk.mean(axis=0)
    walk -= walk.mean(axis=1)[:, None]
    walk /= np.linalg.eigvalsh(walk)[-1]
    return (1.0 - ROUGH) * walk + ROUGH * np.eye(n_knots)


def remove_noise(values: FloatArray, floor: float) -> FloatArray:
    """Estimate the eigenvalues that the matrix would have without noise.

    The default rule (`descent.rule`) sets the floor to half the operator norm of the
    noise. Eigenvalues above twice the floor are kept. Noise spreads the other
    eigenvalues but hardly changes their sum, because it averages out in the trace. Each
    of them is therefore replaced by their mean, or by 0 if this mean is negative.
    """
    hidden = values <= 2.0 * floor
    if not hidden.any():
        return values
    return np.where(hidden, max(float(values[hidden].mean()), 0.0), values)


def fill_gram(
    layout: Layout, pattern: queries.GramPattern, values: FloatArray, n_rows: float
) -> FloatArray:
    """Return the full Gram matrix, made from its released and its known entries."""
    full = np.zeros((layout.n_features, layout.n_features))
    full[pattern.rows, pattern.columns] = full[pattern.columns, pattern.rows] = values
    for one in (group.start for group in layout.groups if group.kind == "ones"):
        if one not in pattern.rows:
            full[one, one] = n_rows
        for at in (
            group.coordinates for group in layout.groups if group.kind == "code"
        ):
            full[one, at] = full[at, one] = full[at, at]
    return full


# ---- Apply proximal maps in the metric of a matrix, to released weights


#: Stop after a sweep in which no coordinate moves by more than `TOLERANCE`, relative to
#: the largest coordinate, and in any case after `MOST_SWEEPS` sweeps.
TOLERANCE, MOST_SWEEPS = 1e-8, 200

Prox = Callable[[FloatArray], FloatArray]


def make_metric_prox(inverse: FloatArray, penalty: Penalty, at: IntArray) -> Prox:
    """Return the map from w to argmin_u ½ ‖u - w‖²_M + ψ(u), with M = inverse⁻¹.

    Here ψ is the penalty. The map acts on the rows `at` of the weights. For a ridge, it
    solves one linear system, which is factored once for all steps. For any other
    separable penalty, the map minimises exactly over one coordinate at a time, starting
    from the last solution. This converges for a quadratic plus a separable penalty
    (Tseng 2001). For a penalty that couples coordinates, the map takes proximal steps
    in a diagonal metric that is at least M. The map reads only released values, so it
    is post-processing.
    """
    if not penalty.separable:
        return _make_coupled_prox(inverse, penalty, at)
    if penalty.is_ridge:
        return _make_ridge_prox(inverse, penalty.quadratic(at))
    return _make_coordinate_prox(inverse, penalty, at)


def _make_coupled_prox(inverse: FloatArray, penalty: Penalty, at: IntArray) -> Prox:
    with one_thread(len(at)):
        metric = np.asarray(np.linalg.inv(inverse), dtype=np.float64)
        root = np.sqrt(np.diag(metric))
        stretch = float(np.linalg.eigvalsh(metric / np.outer(root, root))[-1])
    above = penalty.raise_metric(stretch * (1 + 1e-9) * root**2, at)
    state: list[FloatArray] = []  # the last solution: a good start, as steps are small

    def prox(weights: FloatArray) -> FloatArray:
        found = iterate(
            lambda moved: penalty.prox(moved, above, at),
            1.0 / above[:, None],
            metric,
            weights,
            state.pop() if state else weights,
        )
        state.append(found)
        return found.copy()

    return prox


def _make_ridge_prox(inverse: FloatArray, ridge: FloatArray) -> Prox:
    if not ridge.any():
        return lambda weights: weights
    with one_thread(len(ridge)):
        system = np.eye(len(ridge)) + inverse * ridge
        factors = lu_factor(system, check_finite=False)
    # This is `lu_solve` without its checks, which take longer than the solution.
    return lambda weights: np.asarray(dgetrs(*factors, weights)[0])


def _make_coordinate_prox(inverse: FloatArray, penalty: Penalty, at: IntArray) -> Prox:
    with one_thread(len(at)):
        metric = np.linalg.inv(inverse)
    each = np.diag(metric)
    state: list[FloatArray] = []  # the last solution: a good start, as steps are small

    def prox(weights: FloatArray) -> FloatArray:
        found = penalty.prox(state.pop() if state else weights, each, at)
        pull = metric @ (found - weights)
        for _ in range(MOST_SWEEPS):
            moved = 0.0
            for j in range(len(at)):
                aim = found[j : j + 1] - pull[j : j + 1] / each[j]
                move = penalty.prox(aim, each[j : j + 1], at[j : j + 1]) - found[j]
                if move.any():
                    found[j] += move[0]
                    pull += metric[:, j : j + 1] * move
                    moved = max(moved, float(np.abs(move).max()))
            if moved <= TOLERANCE * (1.0 + float(np.abs(found).max())):
                break
        state.append(found)
        return found.copy()

    return prox


# ---- Correct the intercept after the descent, to make predictions right on average
#
# Steps cap the slopes of records. If the target is skewed, caps cut more from one side
# than from the other, and predictions are too low on average. A rare class is predicted
# too rarely, and predicted counts are too small. After the descent, the sum of all
# slopes is therefore released. The caps of the steps do not apply to this sum. The sum
# says how far predictions are off on average, and the intercept is moved accordingly.


#: Prior standard deviation of the average error of predictions, divided by the spread
#: of the residuals (1 for classes). The second value is for counts. It is larger,
#: because caps cut more from the long tails of counts.
USUAL_ERROR, COUNT_ERROR = 0.07, 0.1
#: Largest distance by which the intercept is moved.
FARTHEST = 2.0
#: Number of points that represent the distribution of margins.
N_POINTS = 256


def release_level(
    engine: queries.Engine,
    slopes: queries.Slopes,
    weights: FloatArray,
    neighbours: queries.Neighbours,
    cap: float,
    release: Callable[[queries.BoundedSum], Released],
) -> Released:
    """Release the sum (1, k) of all slopes, each capped at `cap`."""
    last = np.zeros((1, len(weights)))
    last[0, -1] = 1.0
    # The row of `last` selects the intercept, where every record has the feature 1. So
    # the sum of gradients there is the sum of slopes, and no other query is needed.
    capped = queries.cap_slopes(engine, slopes, queries.Metric.of(last, cap))
    total = queries.mapped_gradient(engine, capped, weights, neighbours)
    return release(replace(total, kind=Kind.LEVEL, query="sum of slopes"))


def find_shift(
    loss: Loss,
    mean: FloatArray,
    covariance: FloatArray,
    error: FloatArray,
    noise_std: float,
    spread: float,
) -> FloatArray:
    """Return the shift of the intercepts (k,) that makes predictions right on average.

    Parameters
    ----------
    loss : Loss
        A loss whose slope is the prediction minus the target.
    mean, covariance : float64 (k,) and (k, k)
        Mean and covariance of the margins. Margins are assumed to be normal, which only
        affects how far a shift moves predictions.
    error : float64 (k,)
        The released mean of the slopes, that is, how much too high predictions are on
        average.
    noise_std : float
        The standard deviation of the noise in `error`. The larger this noise is, the
        more `error` is shrunk to zero.
    spread : float
        The spread of the residuals, or 1 for classes.
    """
    usual = COUNT_ERROR if loss.target_law == "poisson" else USUAL_ERROR
    prior = (usual * spread) ** 2
    wanted = error * prior / (prior + noise_std**2)
    margins = mean + _make_normal_points(len(mean)) @ _root(covariance).T
    target = np.zeros(len(margins))  # the target cancels in differences of slopes
    before = loss.slope(margins, target).mean(axis=0)

    def miss(shift: FloatArray) -> FloatArray:
        after = loss.slope(margins + shift, target).mean(axis=0)
        return np.asarray(after - before + wanted)

    start = np.zeros(len(mean))
    return np.asarray(least_squares(miss, start, bounds=(-FARTHEST, FARTHEST)).x)


def _make_normal_points(k: int) -> FloatArray:
    """Return fixed points (N_POINTS, k) with nearly a standard normal distribution."""
    even = qmc.Sobol(k, scramble=False).random(N_POINTS)
    return np.asarray(ndtri(even + 0.5 / N_POINTS))


def _root(covariance: FloatArray) -> FloatArray:
    """Return R with R Rᵀ = covariance, whose negative eigenvalues are set to zero."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


# ---- Take steps in the metric of a Gram matrix that is released before the descent


@dataclass(frozen=True, kw_only=True)
class Matrix(Geometry):
    """Steps in the norm of a Gram matrix that is released once.

    The paper leaves this geometry to future work. Let A be the noisy XᵀX/n, with
    negative eigenvalues set to zero and `floor` added to all, and let BᵀB = A⁻¹. Slopes
    are capped so that ‖B g_i‖ ≤ C for the gradient g_i of every record. The sum
    B Σ_i g_i is released with isotropic noise, as B g̃. The step is then
    w ← w - Bᵀ(B g̃)/(β n), where n is the number of rows and β bounds the second
    derivative of the loss. It resembles Newton's step and converges in tens of passes.
    If a step moves only a set S of coordinates, A_SS replaces A.

    Parameters
    ----------
    radius : float
        The cap C. If `scaled` is true, C is this number times (spread of the
        target)·√(effective dimension).
    floor : float
        The number that is added to every eigenvalue of A.
    gram_share, target_share : float
        Shares of μ² spent on the Gram matrix and on a histogram of the target. With a
        histogram, the run starts at the constant model fitted to it; without one, the
        run starts at zero.
    shrinkage : float
        The ratio λ/C, where λ is the factor of a penalty ½ λ ‖w - w⁰‖²_A and w⁰ is the
        start. The penalty keeps noise from accumulating in directions in which the loss
        is flat.
    scaled : bool
        Whether caps are proportional to the spread of a numeric target.
    level_share : float
        Share of μ² spent on the sum of slopes after the descent, which corrects the
        intercept (`descent.matrix`). If it is 0, there is no correction.
    level_cap : float
        Cap on a record's slope in that sum, by default the bound of the loss. If
        `scaled` is true, the cap is this number times the spread of the target.
    momentum : bool
        Whether to accelerate full steps. Use this only for runs without noise. Where
        the curvature of the loss is far below its bound, as for counts that are mostly
        small, steps without momentum would take too long to reach the optimum.
    """

    radius: float
    floor: float
    gram_share: float = 0.15
    target_share: float = 0.0
    shrinkage: float = 0.0
    scaled: bool = False
    level_share: float = 0.0
    level_cap: float = math.inf
    momentum: bool = False
    #: The share of the budget (of μ²) that is not spent on steps.
    share: float = fact()
    kind = "matrix"
    title = "in the metric of a released Gram matrix"

    def __post_init__(self) -> None:
        share = self.gram_share + self.target_share + self.level_share
        vars(self).update(share=share)
        for name, low, high in (
            ("radius", 0.0, math.inf),
            ("floor", 0.0, math.inf),
            ("gram_share", 0.0, 1.0),
            ("share", 0.0, 1.0),
        ):
            value = getattr(self, name)
            check(
                low < value < high,
                f"{name} must lie strictly between {low} and {high}, got {value}.",
            )
        check(
            0 <= self.shrinkage < math.inf and self.target_share >= 0,
            "shrinkage and target_share must be at least 0, got "
            f"{self.shrinkage} and {self.target_share}.",
        )
        check(
            self.level_share >= 0 and self.level_cap > 0,
            "level_share must be at least 0 and level_cap positive, got "
            f"{self.level_share} and {self.level_cap}.",
        )
        check(
            self.target_share > 0 or not self.scaled,
            "scaled=True requires target_share > 0.",
        )

    def scale_caps(self, max_weight: float) -> Matrix:
        """Return the geometry with its cap multiplied by `max_weight`."""
        return replace(self, radius=self.radius * max_weight)

    def describe(self) -> str:
        """Describe the metric, the cap, the start and the end."""
        unit = " times its usual length" if self.scaled else ""
        lines = [
            f"Gram matrix for {self.gram_share:.0%} of the budget, {self.floor:.3g} "
            f"added to its eigenvalues, a record's gradient capped at "
            f"{self.radius:.3g}{unit}"
        ]
        if self.target_share:
            lines.append(
                f"start: a constant model, from a histogram of the target for "
                f"{self.target_share:.1%} of the budget"
            )
        if self.level_share:
            lines.append(
                f"end: for {self.level_share:.1%} of the budget, the intercept is "
                "corrected so that predictions are right on average"
            )
        return "\n".join(lines)

    def linearise_cost(self, run: PriorRun) -> float:
        """Return the expected cost of noise and shrinkage.

        In the basis in which the released metric A is the identity, a step is
        u_j ← u_j - ((c s_j + λ) u_j + ζ_j)/β. Here c is the curvature, β its bound, λ
        the ridge, ζ_j noise of variance σ², and s_j the share of A that comes from the
        Gram matrix. The rest of A is the floor. The average of m iterates therefore has
        variance σ²/((c s_j + λ)² m).
        """
        values, counts = prior_spectrum(run.layout)
        # Directions in which rows do not vary cost nothing.
        values, counts = (
            part[values > 1e-9 * values.max()] for part in (values, counts)
        )
        share = values / (values + self.floor)
        radius = self.radius
        if self.scaled:
            radius *= USUAL_SCALE * math.sqrt(float(counts @ share))
        std = run.noise * radius / run.n_rows
        ridge = self.shrinkage * radius
        curves = run.curvature * share + ridge
        variances = std**2 / run.n_averaged / curves**2
        lost = ridge / curves
        noise = (
            0.5 * run.curvature * run.n_outputs * float(counts @ (share * variances))
        )
        return noise + run.signal * float(counts @ lost**2 / counts.sum())

    def prepare(self, task: Task) -> Prepared:
        """Return query, update and start, after releasing what they require.

        The releases are the Gram matrix and, if `target_share` is positive, the
        target's histogram. If `level_share` is positive, `finish` releases the sum of
        slopes.
        """
        layout = task.engine.records.layout
        if self.level_share > 0:
            check(
                layout.groups[-1].kind == "ones" and task.loss.canonical,
                "level_share > 0 requires an intercept, and a loss whose slope is the "
                "prediction minus the target.",
            )
        pattern = queries.GramPattern.of(layout, task.neighbours, centred=True)
        gram = task.release(queries.gram(task.engine, pattern), self.gram_share)
        found = (
            task.release_constant(self.target_share) if self.target_share > 0 else None
        )
        space = self.make_space(layout, task.loss, pattern, task.n_rows, gram, found)
        steps = _MatrixSteps(task, space)
        if self.level_share == 0:
            update = (
                accelerate(steps.update, steps.metric)
                if self.momentum
                else steps.update
            )
            return Prepared(steps.query, update, space.start)

        def finish(weights: FloatArray) -> FloatArray:
            return self._correct_level(task, space, weights)

        return Prepared(steps.query, steps.update, space.start, finish)

    def _correct_level(
        self, task: Task, space: Space, weights: FloatArray
    ) -> FloatArray:
        """Release the sum of slopes, and use it to correct the intercept."""
        cap = min(self.level_cap * space.spread, task.loss.slope_bound)
        released = release_level(
            task.engine,
            task.slopes,
            weights,
            task.neighbours,
            cap * task.slopes.max_weight,
            lambda total: task.release(total, self.level_share),
        )
        n = task.n_rows * task.slopes.max_weight  # makes no shift too long
        mean, covariance = space.estimate_margins(weights)
        result = weights.copy()
        result[-1] += find_shift(
            task.loss,
            mean,
            covariance,
            released.values[0] / n,
            float(np.max(released.noise_std)) / n,
            space.spread * (RESIDUAL if task.loss.target_law == "normal" else 1.0),
        )
        return clip_to_box(result)

    def make_space(
        self,
        layout: Layout,
        loss: Loss,
        pattern: queries.GramPattern,
        n_rows: float,
        released: Released,
        found: ConstantModel | None,
    ) -> Space:
        """Compute the metric, the cap and the start.

        This is post-processing, because it reads only public and released values.
        """
        gram = fill_gram(layout, pattern, released.values, n_rows) / n_rows
        gram = keep_relations(layout, gram, pattern.shift)
        white = whiten(gram, self.floor, pattern.shift, make_prior(layout))
        start = np.zeros((layout.n_features, loss.n_outputs))
        radius, spread = self.radius, 1.0
        if found is not None:
            if layout.groups[-1].kind == "ones":
                start[-1] = found.margins
            if self.scaled:
                spread = min(found.scale, loss.slope_bound)
                # ‖B g_i‖ is the slope times ‖Bx_i‖. For a typical record these are the
                # spread and the root of the dimension, so `radius` counts in typical
                # records.
                radius *= spread * math.sqrt(white.dimension)
        return Space(
            gram=gram,
            shift=pattern.shift,
            white=white,
            radius=radius,
            pull=self.shrinkage * radius,
            start=start,
            spread=spread,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """The metric, the cap and the start of a run.

    Attributes
    ----------
    gram : float64 (d, d)
        The released Gram matrix of the centred rows x - shift/2, divided by n.
    shift : float64 (d,)
        Twice the centre of each coordinate.
    white : Whitening
        The metric computed from the Gram matrix.
    radius, pull : float
        The cap C, and the factor λ of the penalty that pulls weights to the start.
    start : float64 (d, k)
        The weights w⁰ at which the run starts.
    spread : float
        The target's spread, or 1 if caps do not depend on it. Caps are proportional to
        this number.
    """

    gram: FloatArray
    shift: FloatArray
    white: Whitening
    radius: float
    pull: float
    start: FloatArray
    spread: float

    def estimate_margins(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Estimate the mean (k,) and covariance (k, k) of the margins of all rows."""
        centred = weights.copy()
        centred[-1] += self.shift @ weights / 2.0
        mean = self.gram[-1, :-1] @ centred[:-1] + centred[-1]
        squares = self.white.moments @ centred
        return mean, centred.T @ squares - np.outer(mean, mean)


@dataclass(frozen=True, eq=False)
class _MatrixPart:
    """The capped slopes, the matrix B_S and the proximal map of a set S.

    B_Sᵀ B_S is the inverse of A_SS, the block of the metric A for S.
    """

    slopes: queries.Slopes
    root: FloatArray
    prox: Prox


class _MatrixSteps:
    """The query and the update of a run. A set's metric is computed on first use."""

    def __init__(self, task: Task, space: Space) -> None:
        self._task, self._root, self._radius = task, space.white.root, space.radius
        self._pull, self._start = space.pull, space.start
        self._known: dict[bytes, _MatrixPart] = {}
        self._metric: FloatArray | None = None

    @property
    def metric(self) -> FloatArray:
        """The matrix A of `Matrix`, for rows as they are encoded (not centred)."""
        if self._metric is None:
            with one_thread(len(self._root)):
                inverse = np.linalg.inv(self._root)
                self._metric = inverse @ inverse.T
        return self._metric

    def part(self, at: IntArray) -> _MatrixPart:
        """Return the capped slopes, B_S and the proximal map of the set S = `at`."""
        key = at.tobytes()
        if key not in self._known:
            # Caps depend on the rows, but not on the weights. Keeping them saves a pass
            # over the rows in each step.
            self._known[key] = self._make_part(at)
        return self._known[key]

    def _make_part(self, at: IntArray) -> _MatrixPart:
        task, d = self._task, len(self._root)
        root, radius = self._root, self._radius
        if len(at) < d:
            block = self.metric[np.ix_(at, at)]
            with one_thread(len(at)):
                values, vectors = np.linalg.eigh(block)
            root = np.zeros((len(at), d))
            root[:, at] = (vectors / np.sqrt(values)) @ vectors.T
            radius *= math.sqrt(len(at) / d)
        # The cap is proved for the matrix on the grid. The step must use the same
        # matrix, or it would not undo what the query did.
        metric = queries.Metric.of(root, radius)
        root = np.ldexp(metric.units, -metric.bits)[:, at]  # B_S after rounding
        inverse = root.T @ root / (task.curvature + self._pull)
        return _MatrixPart(
            slopes=queries.cap_slopes(task.engine, task.slopes, metric),
            root=root,
            prox=make_metric_prox(inverse, task.penalty, at),
        )

    def query(self, at: IntArray, weights: FloatArray) -> queries.BoundedSum:
        """Return B_S (see `_MatrixPart`) times the sum of the gradients on S = `at`."""
        slopes = self.part(at).slopes
        return queries.mapped_gradient(
            self._task.engine, slopes, weights, self._task.neighbours
        )

    def update(
        self, weights: FloatArray, released: Released, at: IntArray
    ) -> FloatArray:
        """Return the weights after one step on S.

        The step computes w_S - B_Sᵀ r/(βn), where r is the released value, β the
        curvature of the loss and n the number of rows. It then pulls the result to the
        start and applies the proximal map.
        """
        if not isinstance(released, Released):
            raise TypeError(
                f"An update takes only released values, got {type(released).__name__}."
            )
        part, curvature = self.part(at), self._task.curvature
        result = weights.copy()
        result[at] -= part.root.T @ released.values / (curvature * self._task.n_rows)
        away = result - self._start
        # For all coordinates A_SS⁻¹ A is the identity, and no product is needed.
        if len(at) < len(weights):  # A_SS⁻¹ (A (w - w⁰))_S
            away = part.root.T @ (part.root @ (self.metric[at] @ away))
        result[at] -= self._pull / (curvature + self._pull) * away
        result[at] = clip_to_box(part.prox(result[at]))
        return result


# ---- Fit only an intercept, if the table is too small for the privacy budget


@dataclass(frozen=True, kw_only=True)
class InterceptOnly(Geometry):
    """Steps that move only the intercept, which learns the base rate or the mean.

    Parameters
    ----------
    radius : float
        Cap on a record's slope.
    shrinkage : float
        The factor λ of the penalty ½ λ ‖w‖² on the intercept.
    """

    radius: float = 1.0
    shrinkage: float = 0.0
    share = 0.0
    kind = "intercept"
    title = "on the intercept alone: a constant model"
    is_constant = True

    def __post_init__(self) -> None:
        check(
            0 < self.radius < math.inf and 0 <= self.shrinkage < math.inf,
            "radius must be positive and shrinkage at least 0, got "
            f"{self.radius} and {self.shrinkage}.",
        )

    def describe(self) -> str:
        """Say that the model is a constant."""
        return "a constant model, with an intercept only"

    def linearise_cost(self, run: PriorRun) -> float:
        """Return the expected cost of the noise on the intercept."""
        variance = (run.noise * self.radius / run.n_rows) ** 2 / run.n_averaged
        variance /= (run.curvature + self.shrinkage) ** 2
        return 0.5 * run.curvature * run.n_outputs * variance

    def prepare(self, task: Task) -> Prepared:
        """Return the query and the update of the intercept. Nothing is released."""
        layout = task.engine.records.layout
        check(
            layout.groups[-1].kind == "ones",
            "An intercept-only model requires an intercept.",
        )
        last = np.zeros((1, layout.n_features))
        last[0, -1] = 1.0
        metric = queries.Metric.of(last, self.radius)
        slopes = queries.cap_slopes(task.engine, task.slopes, metric)

        def query(at: IntArray, weights: FloatArray) -> queries.BoundedSum:
            return queries.mapped_gradient(
                task.engine, slopes, weights, task.neighbours
            )

        def update(weights: FloatArray, released: Released, at: IntArray) -> FloatArray:
            if not isinstance(released, Released):
                raise TypeError(
                    "An update takes only released values, got "
                    f"{type(released).__name__}."
                )
            result = weights.copy()
            if task.loss.target_law == "poisson":
                result[-1] = _solve_rate(result[-1], released, task)
                return clip_to_box(result)
            result[-1] -= released.values[0] / (task.curvature * task.n_rows)
            result[-1] /= 1.0 + self.shrinkage / task.curvature
            return clip_to_box(result)

        start = np.zeros((layout.n_features, task.loss.n_outputs))
        if task.loss.target_law == "poisson":
            start[-1] = task.loss.constant(np.zeros(1))
        return Prepared(query, update, start)


def _solve_rate(margin: FloatArray, released: Released, task: Task) -> FloatArray:
    """Return the logarithm of the mean count, from the sum of slopes exp(m) - y.

    The mean is a small part of the range of counts. There the loss is so flat that
    gradient steps from the end of the range would not reach it. A mean that noise hides
    becomes half of the noise: a rate far too low costs more than one that is too high.
    If rows have weights below one on average, the mean comes out lower by this factor,
    because their sum is not released.
    """
    least = 0.5 * float(np.max(released.noise_std)) / task.n_rows
    mean = np.exp(margin) - released.values[0] / task.n_rows
    return task.loss.constant(np.maximum(mean, min(least, 1.0)))
