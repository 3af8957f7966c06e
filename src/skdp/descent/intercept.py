"""Fit only an intercept, if the table is too small for the privacy budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skdp.descent.geometry import Geometry, Prepared, Task, clip_to_box
from skdp.descent.prior import PriorRun
from skdp.privacy import queries
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, check


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
            result[-1] -= released.values[0] / (task.curvature * task.n_rows)
            result[-1] /= 1.0 + self.shrinkage / task.curvature
            return clip_to_box(result)

        start = np.zeros((layout.n_features, task.loss.n_outputs))
        return Prepared(query, update, start)
