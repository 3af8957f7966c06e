"""What all estimators share: parameters → records and plan → attributes.

No mathematics lives here. Nothing happens in ``__init__``, ``fit`` changes no
parameter, and whatever depends on a record passes through ``run`` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from skdp.descent.plan import Fit, check_budget, release_row_count, run
from skdp.descent.planner import default_delta, make_plan
from skdp.engines.choose import engine_named
from skdp.estimators.design import margins
from skdp.estimators.progress import progress
from skdp.estimators.units import user_units
from skdp.estimators.unknown import opened
from skdp.losses import Loss
from skdp.privacy.randomness import Randomness
from skdp.privacy.record import PrivacyRecord
from skdp.privacy.records import encode
from skdp.schema import FloatArray, Schema, check
from skdp.tables import batches

#: Share of μ² and of δ that finding ranges, categories and labels may spend.
DISCOVERY_SHARE = 0.1
#: Share of μ² that the number of rows costs where it is private and not given.
COUNT_SHARE = 0.01


class PrivateLinearModel(BaseEstimator):
    """A linear model fitted by DP-SkGD; see `LogisticRegression` for the parameters."""

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        schema: Schema | None = None,
        bounds: Any = None,
        classes: Any = None,
        target_bounds: Any = None,
        alpha: float = 1e-4,
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | None = None,
        max_weight: float = 1.0,
        sampling: Any = "auto",
        geometry: Any = "auto",
        n_steps: Any = "auto",
        slope_bound: Any = "auto",
        calibration: str = "exact",
        neighbours: str = "replace-one",
        n_rows: int | None = None,
        engine: str = "auto",
        n_threads: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.schema = schema
        self.bounds = bounds
        self.classes = classes
        self.target_bounds = target_bounds
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.max_weight = max_weight
        self.sampling = sampling
        self.geometry = geometry
        self.n_steps = n_steps
        self.slope_bound = slope_bound
        self.calibration = calibration
        self.neighbours = neighbours
        self.n_rows = n_rows
        self.engine = engine
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def _loss(self, schema: Schema) -> Loss:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit a private model.

        Parameters
        ----------
        X : table
            A pandas or polars frame, pyarrow table, numpy array, scipy sparse matrix,
            dict of columns, or the path of a CSV or Parquet file.
        y : column, optional
            The target, if it is not a column that the schema names.
        sample_weight : column or str, optional
            What each record counts for, clipped to ``max_weight``.

        Returns
        -------
        self
            The fitted estimator.
        """
        check(
            self.epsilon > 0, f"epsilon must be positive. Got {self.epsilon}: take 1."
        )
        about = opened(
            X, y, schema=self.schema, bounds=self.bounds, target=self._target()
        )
        noise = Randomness(_seed(self.random_state))
        private_rows = self.neighbours == "add-remove"
        rows = self.n_rows if private_rows else about.count_rows()
        delta = default_delta(rows) if self.delta is None else self.delta
        if rows is not None:
            check_budget(self.epsilon, delta, rows)
        record = PrivacyRecord(
            epsilon=self.epsilon,
            delta=delta,
            relation=self.neighbours,  # type: ignore[arg-type]  # checked inside
            assumptions=about.assumptions + self._row_assumption(),
            reserved_delta=DISCOVERY_SHARE * delta if about.needs_levels else 0.0,
        )
        schema = about.schema_by(record, DISCOVERY_SHARE, noise)
        table = batches(
            X,
            schema,
            target=y,
            sample_weight=sample_weight,
            class_weight=self.class_weight,
        )
        records = encode(
            table, schema, intercept=self.fit_intercept, max_weight=self.max_weight
        )
        engine = engine_named(self.engine, self.n_threads)
        if rows is None:
            rows = release_row_count(records, record, COUNT_SHARE, engine, noise)
        plan = make_plan(
            records.layout,
            self._loss(schema),
            n_rows=rows,
            epsilon=self.epsilon,
            delta=delta,
            mu_squared=record.remaining,
            relation=record.relation,
            alpha=self.alpha,
            l1_ratio=self.l1_ratio,
            sampling=self.sampling,
            geometry=self.geometry,
            n_steps=self.n_steps,
            calibration=self.calibration,
            assumptions=tuple(record.assumptions),
        )
        with progress(plan, self.verbose) as callback:
            fit = run(
                plan,
                records,
                engine=engine,
                noise=noise,
                record=record,
                callback=callback,
            )
        self._set_fitted(fit, schema, about.named)
        return self

    def _row_assumption(self) -> tuple[str, ...]:
        if self.neighbours == "add-remove" and self.n_rows is not None:
            return ("The number of rows given is public.",)
        return ()

    def _target(self) -> Any:
        raise NotImplementedError

    def _set_fitted(self, fit: Fit, schema: Schema, named: bool) -> None:
        """Set the attributes of a fitted model."""
        self.schema_ = schema
        self.plan_ = fit.plan
        self.privacy_ = fit.record
        self.weights_ = fit.weights
        self.n_features_in_ = len(schema.inputs)
        if named:
            self.feature_names_in_ = np.array(schema.inputs, dtype=object)
        self.n_iter_ = fit.plan.n_steps * fit.plan.n_restarts
        coef, intercept = user_units(schema, fit.plan.layout, fit.weights)
        self._set_coefficients(coef, intercept)

    def _set_coefficients(self, coef: FloatArray, intercept: FloatArray) -> None:
        """Set ``coef_`` (k, width) and ``intercept_`` (k,) in the model's own form."""
        self.coef_: FloatArray = coef
        self.intercept_: FloatArray | float = intercept

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Name of each column of ``coef_``: a column, or column=category."""
        layout = self.plan_.layout
        names = zip(layout.labels, layout.penalised, strict=True)
        return np.array([name for name, kept in names if kept], dtype=object)

    def _margins(self, X: Any) -> FloatArray:
        """x·w of new rows, shape (n, k)."""
        return margins(X, self.schema_, self.plan_.layout, self.weights_)


def _seed(random_state: Any) -> int | None:
    """A seed for tests: an integer, or one drawn from a generator of numpy's."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    draw = getattr(random_state, "integers", None) or random_state.randint
    return int(draw(2**31 - 1))
