"""Steps in the metric of a Gram matrix that is released once."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skdp.descent.geometry import Geometry, Prepared, Task, boxed
from skdp.descent.gram import Whitening, symmetric, whitening
from skdp.descent.metric_prox import Prox, metric_prox
from skdp.descent.target import Constant
from skdp.descent.threads import one_thread
from skdp.models.losses import Loss
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, Layout, check


@dataclass(frozen=True, kw_only=True)
class Matrix(Geometry):
    """Steps in the norm of the Gram matrix, released once (the paper's future work).

    With A = XᵀX/n, noisy, its negative eigenvalues dropped and `floor` added, and
    BᵀB = A⁻¹: slopes are capped so that ‖B g_i‖ ≤ C, B Σ_i g_i is released with
    isotropic noise, and the step is w ← w - Bᵀ(B g̃)/(β n), a Newton-like step that
    needs tens of passes. On a set S of coordinates A_SS takes the place of A.

    Parameters
    ----------
    radius : float
        The cap C, or C over (spread of the target)·√(effective dimension) if `scaled`.
    floor : float
        What is added to the eigenvalues of A.
    gram_share, target_share : float
        Shares of μ² spent on the Gram matrix and on a histogram of the target, from
        which the run starts at a constant model (at zero if nothing is spent on it).
    shrinkage : float
        λ/C of a penalty ½ λ ‖w - w⁰‖²_A, which keeps noise from piling up in
        directions that the loss does not curve; w⁰ is the start.
    scaled : bool
        Whether the cap follows the spread of a numeric target.
    """

    radius: float
    floor: float
    gram_share: float = 0.15
    target_share: float = 0.0
    shrinkage: float = 0.0
    scaled: bool = False
    kind = "matrix"

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
                f"Matrix needs {low} < {name} < {high}. Got {value}: move it inside.",
            )
        check(
            0 <= self.shrinkage < math.inf and self.target_share >= 0,
            "Matrix needs shrinkage ≥ 0 and target_share ≥ 0. Got "
            f"{self.shrinkage} and {self.target_share}: 0 is none.",
        )
        check(
            self.target_share > 0 or not self.scaled,
            "Matrix can follow the target's spread if it is released: give it a share.",
        )

    @property
    def share(self) -> float:  # type: ignore[override]
        """The share of the budget (of μ²) that `prepare` spends."""
        return self.gram_share + self.target_share

    def prepare(self, task: Task) -> Prepared:
        """Release the Gram matrix and the target's histogram."""
        layout = task.engine.records.layout
        pattern = queries.GramPattern.of(layout, task.relation, centred=True)
        gram = task.release(queries.gram(task.engine, pattern), self.gram_share)
        found = task.constant(self.target_share) if self.target_share > 0 else None
        space = self.space(layout, task.loss, pattern, task.n_rows, gram, found)
        steps = _Steps(task, space)
        return Prepared(steps.query, steps.update, space.start)

    def space(
        self,
        layout: Layout,
        loss: Loss,
        pattern: queries.GramPattern,
        n_rows: float,
        released: Released,
        found: Constant | None,
    ) -> Space:
        """Return what follows from what was released: post-processing."""
        gram = symmetric(layout, pattern, released.values, n_rows) / n_rows
        white = whitening(gram, self.floor, pattern.shift.astype(np.float64))
        start = np.zeros((layout.n_features, loss.n_outputs))
        radius = self.radius
        if found is not None:
            if layout.groups[-1].kind == "ones":
                start[-1] = found.margins
            if self.scaled:
                scale = min(found.scale, loss.slope_bound)
                radius *= scale * math.sqrt(white.dimension)
        return Space(
            gram=gram,
            white=white,
            radius=radius,
            pull=self.shrinkage * radius,
            start=start,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """Where a run takes place.

    Attributes
    ----------
    gram : float64 (d, d)
        The Gram matrix over n as it was released, of rows taken from their centre.
    white : Whitening
        The metric that is made of it.
    radius, pull : float
        The cap C, and λ of the penalty that draws to the start.
    start : float64 (d, k)
        w⁰.
    """

    gram: FloatArray
    white: Whitening
    radius: float
    pull: float
    start: FloatArray


@dataclass(frozen=True, eq=False)
class _Part:
    """What a set of coordinates needs: its capped slopes, B_S, and its prox."""

    slopes: queries.Slopes
    root: FloatArray
    prox: Prox


class _Steps:
    """Query and update, with the metric of each set made when it is first asked for."""

    def __init__(self, task: Task, space: Space) -> None:
        self._task, self._root, self._radius = task, space.white.root, space.radius
        self._pull, self._start = space.pull, space.start
        self._known: dict[bytes, _Part] = {}
        self._metric: FloatArray | None = None

    @property
    def metric(self) -> FloatArray:
        """A, for rows as they are encoded."""
        if self._metric is None:
            with one_thread(len(self._root)):
                inverse = np.linalg.inv(self._root)
                self._metric = inverse @ inverse.T
        return self._metric

    def part(self, at: IntArray) -> _Part:
        """Return the metric of a set."""
        key = at.tobytes()
        if key not in self._known:
            self._known[key] = self._made(at)
        return self._known[key]

    def _made(self, at: IntArray) -> _Part:
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
        root = np.ldexp(metric.units, -metric.bits)[:, at]  # the one that is used
        inverse = root.T @ root / (task.curvature + self._pull)
        return _Part(
            slopes=queries.capped(task.engine, task.slopes, metric),
            root=root,
            prox=metric_prox(inverse, task.penalty, at),
        )

    def query(self, at: IntArray, weights: FloatArray) -> queries.BoundedSum:
        """B_S times the sum of the gradients on S."""
        slopes = self.part(at).slopes
        return queries.mapped_gradient(
            self._task.engine, slopes, weights, self._task.relation
        )

    def update(
        self, weights: FloatArray, released: Released, at: IntArray
    ) -> FloatArray:
        """w_S - B_Sᵀ g̃/(βn), drawn to the start, then the proximal map."""
        if not isinstance(released, Released):
            raise TypeError("An update takes released values only: release first.")
        part, curvature = self.part(at), self._task.curvature
        result = weights.copy()
        result[at] -= part.root.T @ released.values / (curvature * self._task.n_rows)
        away = result - self._start
        if len(at) < len(weights):  # A_SS⁻¹ (A (w - w⁰))_S
            away = part.root.T @ (part.root @ (self.metric[at] @ away))
        result[at] -= self._pull / (curvature + self._pull) * away
        result[at] = boxed(part.prox(result[at]))
        return result
