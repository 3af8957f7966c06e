"""Take steps in the metric of a Gram matrix that is released before the descent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from skdp.descent.geometry import Geometry, Prepared, Task, clip_to_box
from skdp.descent.gram import Whitening, fill_gram, make_prior, whiten
from skdp.descent.level import find_shift, release_level
from skdp.descent.metric_prox import Prox, make_metric_prox
from skdp.descent.prior import PriorRun, prior_spectrum
from skdp.descent.target import RESIDUAL, USUAL_SCALE, ConstantModel
from skdp.descent.threads import one_thread
from skdp.models.losses import Loss
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, Layout, check


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
        intercept (`descent.level`). If it is 0, there is no correction.
    level_cap : float
        Cap on a record's slope in that sum, by default the bound of the loss. If
        `scaled` is true, the cap is this number times the spread of the target.
    """

    radius: float
    floor: float
    gram_share: float = 0.15
    target_share: float = 0.0
    shrinkage: float = 0.0
    scaled: bool = False
    level_share: float = 0.0
    level_cap: float = math.inf
    kind = "matrix"
    title = "in the metric of a released Gram matrix"

    def __post_init__(self) -> None:
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

    @property
    def share(self) -> float:  # type: ignore[override]  # read-only
        """The share of the budget (of μ²) that is not spent on steps."""
        return self.gram_share + self.target_share + self.level_share

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
            return Prepared(steps.query, steps.update, space.start)

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
        white = whiten(gram, self.floor, pattern.shift, make_prior(layout))
        start = np.zeros((layout.n_features, loss.n_outputs))
        radius, spread = self.radius, 1.0
        if found is not None:
            if layout.groups[-1].kind == "ones":
                start[-1] = found.margins
            if self.scaled:
                spread = min(found.scale, loss.slope_bound)
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
        if len(at) < len(weights):  # A_SS⁻¹ (A (w - w⁰))_S
            away = part.root.T @ (part.root @ (self.metric[at] @ away))
        result[at] -= self._pull / (curvature + self._pull) * away
        result[at] = clip_to_box(part.prox(result[at]))
        return result
