"""Take steps in the span of a few rows of any public or released matrix.

The paper's sketch C = I_S P⁻¹ selects coordinates. Here a sketch selects rows of a
matrix Q: the coordinates themselves, a random rotation, or the eigenvectors of a
released Gram matrix. docs/guide/sketches.md has the theorems.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import hadamard

from skdp.descent.geometry import Geometry, Prepared, Task, clip_to_box, one_thread
from skdp.descent.matrix import fill_gram, make_prior, whiten
from skdp.descent.samplings import LAWS, FollowingLaw, Law
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.privacy.visits import Visits, count_distinct, visit_images
from skdp.schema import FloatArray, IntArray, Layout, check
from skdp.schema.validation import fact

__all__ = ["Sketched", "bound_image", "randomised_hadamard"]

#: If the directions of a set are linearly dependent, some eigenvalues of N_S (see
#: `Sketched`) are zero up to rounding. A step leaves out the eigenvectors of all
#: eigenvalues that are at most this share of the largest.
SMALLEST = 1e-10


def randomised_hadamard(n_features: int, seed: int = 0) -> FloatArray:
    """Return a matrix Q of entries ±1 that is a random rotation up to its scale.

    Q is a Hadamard matrix whose order r is the next power of two. Each column is
    multiplied by a random sign, and only the first `n_features` columns are kept. So
    QᵀQ = r I. The signs are read from SHAKE-128 of the seed, which is public.

    Returns
    -------
    float64 (r, n_features)
        Q.
    """
    check(n_features >= 1, f"n_features must be at least 1, got {n_features}.")
    order = 1 << (n_features - 1).bit_length()
    drawn = hashlib.shake_128(f"hadamard {seed}".encode()).digest(order)
    signs = 2.0 * (np.frombuffer(drawn, np.uint8)[:n_features] & 1) - 1.0
    return np.asarray(hadamard(order)[:, :n_features] * signs, dtype=np.float64)


def fix_signs(directions: FloatArray) -> FloatArray:
    """Return rows of which the first large entry is positive.

    The sign of an eigenvector is arbitrary and differs between libraries. An entry is
    large if it is at least half as large as the largest in its row.
    """
    sizes = np.abs(directions)
    first = np.argmax(sizes >= 0.5 * sizes.max(axis=1, keepdims=True), axis=1)
    signs = np.sign(directions[np.arange(len(directions)), first])
    return np.asarray(directions * np.where(signs < 0, -1.0, 1.0)[:, None])


def bound_image(layout: Layout, matrix: FloatArray) -> float:
    """Return a bound on ‖Q x‖ over all encoded rows x.

    Each group of coordinates of x has norm at most one. For categories, curves and
    single numbers, the group's part of Q x is at most as long as the longest column of
    Q in the group. For other groups, it is at most the largest singular value of those
    columns. The sum over the groups is one bound. The largest singular value of Q times
    a bound on the norm of x is another. The smaller of the two is returned.
    """
    parts = []
    for group in layout.groups:
        own = matrix[:, group.coordinates]
        ball = group.kind == "dense" and group.width > 1
        parts.append(
            np.linalg.norm(own, 2) if ball else np.linalg.norm(own, axis=0).max()
        )
    touched = np.flatnonzero(matrix.any(axis=0))
    largest = np.linalg.norm(matrix, 2) * math.sqrt(layout.squared_norm(touched))
    return float(min(sum(parts), largest))


@dataclass(frozen=True, kw_only=True, eq=False)
class Sketched(Geometry):
    """Steps in the span of a set S of the rows of a matrix Q.

    Let A be the released Gram matrix divided by the number n of rows, with `floor`
    added to its eigenvalues, and let N_S = Q_S A Q_Sᵀ. Without a release, N_S is
    b_S² I, where b_S is a public bound on ‖Q_S x‖ (`bound_image`). Let
    B_S = N_S^(-1/2) Q_S. Slopes are capped so that ‖B_S g_i‖ ≤ C_S for the gradient g_i
    of every record, and B_S Σ_i g_i is released with isotropic noise, as B_S g̃. The
    step is w ← w - B_Sᵀ (B_S g̃)/(β n), where β bounds the second derivative of
    the loss. The sampling of the plan draws S from the rows of Q.

    Parameters
    ----------
    directions : float64 (r, d), optional
        Q, which must be public. By default its rows are the eigenvectors of A, from the
        largest eigenvalue to the smallest, which costs `gram_share`.
    cap : float
        C_S is this number times √|S| or, if A is not released, this number itself. C_S
        is never larger than the slope bound times the public bound on ‖B_S x‖. That
        product is also the default, with which no slope is capped.
    gram_share : float
        Share of μ² spent on the Gram matrix.
    floor : float
        The number that is added to every eigenvalue of A.
    law : {"fixed", "norms", "largest"}
        How S is drawn. ``"fixed"`` draws from the plan's sampling. The other laws
        depend on the released gradients (`skdp.descent.samplings`). They require a
        sampling that lists its sets.
    explore : float
        The share of the plan's own probabilities in an adaptive law.
    weighted : bool
        Whether a step is multiplied by explore · p̄(S)/p(S) ≤ 1, where p̄ is the plan's
        probability of S and p the adaptive one. Such steps are unbiased, and the bound
        for convex losses in docs/guide/sketches.md covers them.
    """

    directions: FloatArray | None = None
    cap: float = math.inf
    gram_share: float = 0.0
    floor: float = 0.0
    law: Law = "fixed"
    explore: float = 0.5
    weighted: bool = False
    #: The share of the budget (of μ²) that is not spent on steps.
    share: float = fact()
    kind = "sketched"
    title = "along the rows of a public or released matrix"

    def __post_init__(self) -> None:
        if self.directions is not None:
            given = np.asarray(self.directions, dtype=np.float64)
            object.__setattr__(self, "directions", given)
            check(
                given.ndim == 2 and bool(np.isfinite(given).all()),
                "directions must be a finite matrix, with one direction per row.",
            )
            check(
                np.linalg.matrix_rank(given) == given.shape[1],
                "directions must span all coefficients, or some could never move.",
            )
        check(self.cap > 0, f"cap must be positive, got {self.cap}.")
        check(
            0 <= self.gram_share < 1,
            f"gram_share must be at least 0 and below 1, got {self.gram_share}.",
        )
        check(
            self.gram_share > 0 or self.directions is not None,
            "directions is required if gram_share is 0, because the eigenvectors of "
            "the Gram matrix are not known without a release.",
        )
        check(
            0 < self.floor < math.inf or self.gram_share == 0,
            f"floor must be positive if gram_share is, got {self.floor}.",
        )
        check(self.law in LAWS, f"law must be one of {LAWS}, got {self.law!r}.")
        check(
            0 < self.explore <= 1,
            f"explore must be above 0 and at most 1, got {self.explore}.",
        )
        vars(self).update(share=self.gram_share)

    def count_directions(self, layout: Layout) -> int:
        """Return the number of rows of Q, from which the sampling draws."""
        given = self.directions
        check(
            given is None or given.shape[1] == layout.n_features,
            f"directions must have {layout.n_features} columns, one for each "
            "coordinate of the layout.",
        )
        return layout.n_features if given is None else len(given)

    def describe(self) -> str:
        """Describe the directions and the metric in words."""
        text = "eigenvectors of the Gram matrix"
        if self.directions is not None:
            text = f"{len(self.directions)} public directions"
        metric = "public bounds"
        if self.gram_share:
            metric = f"the Gram matrix (for {self.gram_share:.0%} of the budget)"
        drawn = "" if self.law == "fixed" else f", with law {self.law!r}"
        return f"steps along {text}, in the metric of {metric}{drawn}"

    def prepare(self, task: Task) -> Prepared:
        """Return query, update, start and law, after releasing the Gram matrix."""
        check(
            task.penalty.is_ridge,
            "Sketched requires a ridge penalty or none, because other penalties are "
            "not separable along its directions.",
        )
        layout, directions, metric = task.engine.records.layout, self.directions, None
        if self.gram_share > 0:
            pattern = queries.GramPattern.of(layout, task.neighbours, centred=True)
            gram = task.release(queries.gram(task.engine, pattern), self.gram_share)
            mean = fill_gram(layout, pattern, gram.values, task.n_rows) / task.n_rows
            white = whiten(mean, self.floor, pattern.shift, make_prior(layout))
            if directions is None:
                directions = fix_signs((white.vectors.T @ white.root)[::-1])
            with one_thread(layout.n_features):
                inverse = np.linalg.inv(white.root)
                metric = inverse @ inverse.T  # A, for rows as they are encoded
        assert directions is not None
        steps = _SketchSteps(self, task, directions, metric)
        start = np.zeros((layout.n_features, task.loss.n_outputs))
        return Prepared(
            steps.query, steps.update, start, law=steps.law, visits=steps.count_visits
        )


@dataclass(frozen=True, eq=False)
class _SketchPart:
    """The values that steps on a set S use.

    `root` is the matrix B_S of `Sketched`, and `slopes` are the capped slopes. Let D be
    the diagonal matrix with the ridge of each coordinate. Then `values` are the
    eigenvalues of B_S D B_Sᵀ, and the columns of `vectors` are its eigenvectors.
    """

    slopes: queries.Slopes
    root: FloatArray
    values: FloatArray
    vectors: FloatArray


class _SketchSteps:
    """The query and the update of a run. A set's values are computed on first use."""

    def __init__(
        self,
        geometry: Sketched,
        task: Task,
        directions: FloatArray,
        metric: FloatArray | None,
    ) -> None:
        self._geometry, self._task = geometry, task
        self._directions, self._metric = directions, metric
        self._known: dict[bytes, _SketchPart] = {}
        self.law: FollowingLaw | None = None
        if geometry.law != "fixed":
            assert task.sampling is not None
            self.law = FollowingLaw(task.sampling, geometry.law, geometry.explore)
        self._ridge = task.penalty.quadratic(np.arange(directions.shape[1]))

    def part(self, at: IntArray) -> _SketchPart:
        """Return the values that steps on the set S = `at` use."""
        key = at.tobytes()
        if key not in self._known:
            self._known[key] = self._make_part(at)
        return self._known[key]

    def _make_part(self, at: IntArray) -> _SketchPart:
        task, layout = self._task, self._task.engine.records.layout
        root, radius = self._whiten(at, layout)
        slope_bound = task.loss.slope_bound * task.slopes.max_weight
        radius = min(radius, slope_bound * bound_image(layout, root))
        metric = queries.Metric.of(root, radius)
        root = np.ldexp(metric.units, -metric.bits)  # B_S after rounding
        with one_thread(len(root)):
            values, vectors = np.linalg.eigh((root * self._ridge) @ root.T)
        return _SketchPart(
            slopes=queries.cap_slopes(task.engine, task.slopes, metric),
            root=root,
            values=np.maximum(values, 0.0),
            vectors=vectors,
        )

    def _whiten(self, at: IntArray, layout: Layout) -> tuple[FloatArray, float]:
        """Return the matrix B_S and the cap C_S of `Sketched`."""
        chosen, cap = self._directions[at], self._geometry.cap
        if self._metric is None:
            return chosen / bound_image(layout, chosen), cap
        with one_thread(len(chosen)):
            values, vectors = np.linalg.eigh(chosen @ self._metric @ chosen.T)
        kept = values > SMALLEST * values[-1]
        root = (vectors[:, kept] / np.sqrt(values[kept])).T @ chosen
        return root, cap * math.sqrt(len(root))

    def count_visits(self, sets: Sequence[IntArray]) -> Visits | None:
        """Return how much of the steps on these sets one record can take part in.

        A record's gradient has ‖B_S g‖ ≤ min(C_S, s‖B_S x‖), where s is the cap on
        slopes and C_S the cap of the set.
        """
        images = []
        for at, times in count_distinct(sets):
            part = self.part(at)
            metric, steepest = part.slopes.metric, part.slopes.grid
            assert metric is not None
            slope = steepest.cap * steepest.unit
            images.append((part.root * (slope / metric.radius), times))
        return visit_images(self._task.engine.records.layout, images)

    def query(self, at: IntArray, weights: FloatArray) -> queries.BoundedSum:
        """Return B_S (see `Sketched`) times the sum of the gradients, for S = `at`."""
        return queries.mapped_gradient(
            self._task.engine, self.part(at).slopes, weights, self._task.neighbours
        )

    def update(
        self, weights: FloatArray, released: Released, at: IntArray
    ) -> FloatArray:
        """Return the weights after one step on S.

        The result is w + B_Sᵀ t, where t minimises
        ⟨t, r⟩/n + β/(2c) ‖t‖² + ψ(w + B_Sᵀ t). Here r is the released value, n the
        number of rows, β the curvature of the loss and ψ the ridge penalty. If steps
        are weighted, `FollowingLaw.weigh` returns c. Otherwise c = 1.
        """
        if not isinstance(released, Released):
            raise TypeError(
                f"An update takes only released values, got {type(released).__name__}."
            )
        part, factor = self.part(at), 1.0
        if self.law is not None:
            factor = self.law.weigh(at) if self._geometry.weighted else 1.0
            self.law.learn(at, released)
        slope = released.values / self._task.n_rows
        slope = slope + (part.root * self._ridge) @ weights
        curve = self._task.curvature / factor + part.values
        move = part.vectors @ ((part.vectors.T @ slope) / curve[:, None])
        return clip_to_box(weights - part.root.T @ move)
