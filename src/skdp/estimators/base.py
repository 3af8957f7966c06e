"""What all estimators share: parameters → records and plan → attributes.

No mathematics lives here. Nothing happens in ``__init__``, ``fit`` changes no
parameter, and whatever depends on a record passes through ``run`` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from skdp.engines.choice import choose_engine
from skdp.estimators.constant import warn_of_a_constant
from skdp.estimators.doubts import doubts, warn_of_doubts
from skdp.estimators.inputs import as_column, as_table, check_width, has_names
from skdp.estimators.labels import warn_of_unknown_labels
from skdp.estimators.margins import margins
from skdp.estimators.notebook import Shown
from skdp.estimators.preparation import RANGE, opened
from skdp.estimators.progress import progress
from skdp.estimators.reading import count, known_schema, read_records
from skdp.estimators.sklearn_export import pipeline
from skdp.estimators.solving import OWN, Outcome, delta_share, refuse_unfit, solve
from skdp.estimators.spending import payer, refuse_no_budget, spending
from skdp.estimators.standard_errors import Uncertain
from skdp.estimators.training_scores import remember
from skdp.estimators.units import user_units
from skdp.models.losses import Loss
from skdp.planning.decide import make_plan
from skdp.planning.plan import Plan, check_budget, default_delta, release_row_count, run
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.randomness import Randomness
from skdp.schema import Categorical, FloatArray, Layout, Numeric, Schema, check

#: Share of μ² and of δ that finding ranges, categories and labels may spend.
DISCOVERY_SHARE = 0.1
#: Share of μ² that the number of rows costs where it is private and not given.
COUNT_SHARE = 0.01
#: A public guess of the number of rows where nothing is known of it.
EXPECTED_ROWS = 1000


class PrivateLinearModel(Shown, Uncertain, BaseEstimator):
    """A linear model fitted by DP-SkGD; see `LogisticRegression` for the parameters."""

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | None = None,
        schema: Schema | str | PathLike[str] | None = None,
        bounds: Any = None,
        classes: Any = None,
        target_bounds: Any = None,
        alpha: float | str = "auto",
        l1_ratio: float = 0.0,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | None = None,
        max_weight: float = 1.0,
        sampling: Any = "auto",
        geometry: Any = "auto",
        n_steps: Any = "auto",
        slope_bound: Any = "auto",
        solver: str = "skgd",
        calibration: str = "exact",
        neighbours: str = "add-remove",
        n_rows: int | None = None,
        ledger: Any = None,
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
        self.solver = solver
        self.calibration = calibration
        self.neighbours = neighbours
        self.n_rows = n_rows
        self.ledger = ledger
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
        refuse_no_budget(self.epsilon, self.delta)
        ledger = payer(self.ledger, self.epsilon, self.random_state)
        private_rows = self.neighbours == "add-remove"
        table, y = as_table(X, empty=private_rows), as_column(y)
        about = opened(
            table, y, schema=self.schema, bounds=self.bounds, target=self._target()
        )
        noise = Randomness(_seed(self.random_state))

        def encoded(schema: Schema) -> Records:
            return read_records(
                table,
                schema,
                target=y,
                sample_weight=as_column(sample_weight, "sample_weight"),
                class_weight=self.class_weight,
                intercept=self.fit_intercept,
                max_weight=self.max_weight,
                verbose=self.verbose,
            )

        rows, records = self.n_rows, None
        if not private_rows:
            # A ledger is charged before a record is read; only rows are counted.
            known = known_schema(about) if ledger is None else None
            records = None if known is None else encoded(known)
            rows = about.count_rows(self.verbose) if records is None else count(records)
            check(rows > 0, "The table has no rows: give one that has some.")
        delta = default_delta(rows) if self.delta is None else self.delta
        check_budget(self.epsilon, delta, rows or EXPECTED_ROWS)
        record = PrivacyRecord(
            epsilon=self.epsilon,
            delta=delta,
            neighbours=self.neighbours,  # type: ignore[arg-type]  # checked inside
            assumptions=about.assumptions + self._row_assumption(),
            reserved_delta=delta
            * (delta_share(self) + DISCOVERY_SHARE * about.needs_levels),
        )
        self._refuse_mistakes(rows, record)
        if not about.unknown:  # else labels or ranges are to be found first
            refuse_unfit(self, self._loss(about.whole()))
        query = f"fit of {type(self).__name__}"
        with spending(record, ledger, query=query, described=about) as tell:
            schema = about.schema_by(record, DISCOVERY_SHARE, noise)
            if about.finds_target:
                schema = self._with_found_target(schema)
            records = encoded(schema) if records is None else records
            fit = self._run(records, schema, rows, record, noise)
            # Attributes change all at once or, if interrupted, not at all.
            fitted = copy(self)
            fitted._set_fitted(fit.weights, schema, about.named and has_names(X))
            fitted.plan_ = fit.plan
            fitted.privacy_ = fit.record
            fitted.n_iter_ = fit.n_steps
            fitted._weighted = not (sample_weight is None and self.class_weight is None)
            fitted._errors = None  # those of an earlier fit
            tell(fitted)
            self.__dict__ = fitted.__dict__
        remember(self, X)
        warn_of_a_constant(self)
        warn_of_unknown_labels(self)
        warn_of_doubts(doubts(self))
        return self

    def _run(
        self,
        records: Records,
        schema: Schema,
        rows: int | None,
        record: PrivacyRecord,
        noise: Randomness,
    ) -> Outcome:
        """Plan with what is left of the budget, then run."""
        engine = choose_engine(self.engine, self.n_threads)
        if rows is None:
            rows = release_row_count(records, record, COUNT_SHARE, engine, noise)
        if self.solver != OWN:
            loss = self._loss(schema)
            return solve(self, records, loss, rows, record, noise, engine)
        plan = self._plan(schema, rows, record)
        with progress(plan, self.verbose) as callback:
            fit = run(
                plan,
                records,
                engine=engine,
                noise=noise,
                record=record,
                callback=callback,
            )
        return Outcome(fit.weights, record, plan, plan.n_steps * plan.n_restarts)

    def _plan(self, schema: Schema, rows: int, record: PrivacyRecord) -> Plan:
        """Decide everything, from public facts and what is left of the budget."""
        return make_plan(
            schema.layout(self.fit_intercept),
            self._loss(schema),
            n_rows=rows,
            epsilon=self.epsilon,
            delta=record.delta,
            mu_squared=record.remaining,
            neighbours=record.neighbours,
            alpha=self.alpha,
            l1_ratio=self.l1_ratio,
            sampling=self.sampling,
            geometry=self.geometry,
            n_steps=self.n_steps,
            calibration=self.calibration,
            assumptions=tuple(record.assumptions),
        )

    def _refuse_mistakes(self, rows: int | None, record: PrivacyRecord) -> None:
        """Raise for what is public and wrong before anything is spent."""
        choose_engine(self.engine, self.n_threads)
        check(
            0 < self.max_weight < 1e30,
            f"max_weight must be in (0, 1e30). Got {self.max_weight}: 1 is usual.",
        )
        check(
            self.class_weight is None or isinstance(self.class_weight, Mapping),
            f"class_weight must map classes to weights. Got {self.class_weight!r}.",
        )
        target = self._target()
        stand_in = Numeric(0, 1) if target == RANGE else Categorical([0, 1])
        known = stand_in if isinstance(target, str) else target
        schema = Schema({"x": Numeric(0, 1)}, target=known)
        refuse_unfit(self, self._loss(schema))
        if isinstance(self.sampling, str) and isinstance(self.geometry, str):
            self._plan(schema, rows or EXPECTED_ROWS, record)

    def _with_found_target(self, schema: Schema) -> Schema:
        """Adapt a target whose description was found privately to the loss."""
        return schema

    def _row_assumption(self) -> tuple[str, ...]:
        if self.neighbours == "add-remove" and self.n_rows is not None:
            return ("The number of rows given is public.",)
        return ()

    def _target(self) -> Any:
        raise NotImplementedError

    def _set_fitted(self, weights: FloatArray, schema: Schema, named: bool) -> None:
        """Set the attributes that predictions need."""
        self.schema_ = schema
        self.weights_ = weights
        self.n_features_in_ = len(schema.inputs)
        if named:
            self.feature_names_in_ = np.array(schema.inputs, dtype=object)
        elif hasattr(self, "feature_names_in_"):  # of an earlier fit
            del self.feature_names_in_
        coef, intercept = user_units(schema, self._layout, weights)
        self._set_coefficients(coef, intercept)

    def _set_coefficients(self, coef: FloatArray, intercept: FloatArray) -> None:
        """Set ``coef_`` (k, width) and ``intercept_`` (k,) in the model's own form."""
        self.coef_: FloatArray = coef
        self.intercept_: FloatArray | float = intercept

    @property
    def _layout(self) -> Layout:
        """The coordinates of the weights, the intercept's included if there is one."""
        layout = self.schema_.layout(intercept=False)
        if layout.n_features == len(self.weights_):
            return layout
        return self.schema_.layout(intercept=True)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Name of each column of ``coef_``: a column, or column=category."""
        check_is_fitted(self, "weights_")
        names = zip(self._layout.labels, self._layout.penalised, strict=True)
        return np.array([name for name, kept in names if kept], dtype=object)

    def _margins(self, X: Any) -> FloatArray:
        """x·w of new rows, shape (n, k)."""
        check_is_fitted(self, "weights_")
        table = as_table(X)
        check_width(table, self.n_features_in_, type(self).__name__)
        return margins(table, self.schema_, self._layout, self.weights_)

    def to_sklearn(self) -> Any:
        """Return an ordinary fitted scikit-learn ``Pipeline`` that predicts the same.

        It is post-processing of released weights and as private as this model. See
        `skdp.estimators.sklearn_export.pipeline` for what it asks of the cells.
        """
        check_is_fitted(self, "weights_")
        return pipeline(self)

    def to_onnx(self) -> Any:
        """Return an ``onnx.ModelProto`` that predicts the same, for other runtimes.

        It is post-processing of released weights and as private as this model. See
        `skdp.estimators.onnx_export.onnx_model` for its inputs and outputs.
        """
        from skdp.estimators.onnx_export import onnx_model  # whose library is an extra

        check_is_fitted(self, "weights_")
        return onnx_model(self)

    def save(self, directory: str | PathLike[str]) -> None:
        """Write the fitted model to a directory of text files; `skdp.load` reads it.

        Nothing is pickled, and a seed is never written. An earlier saved model of the
        same name is replaced; anything else there is left alone, with an error.
        """
        from skdp.estimators.storage import save  # which lists the estimators

        check_is_fitted(self, "weights_")
        save(self, directory)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = tags.input_tags
        inputs.sparse = inputs.string = inputs.allow_nan = True
        return tags


def _seed(random_state: Any) -> int | None:
    """A seed for tests: an integer, or one drawn from a generator of numpy's."""
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return None if random_state is None else int(random_state)
    draw = getattr(random_state, "integers", None) or random_state.randint
    return int(draw(2**31 - 1))
