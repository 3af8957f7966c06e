"""Define `PrivateLinearModel`, the base class of all estimators, and its ``fit``.

There is no mathematics here. ``__init__`` only stores the parameters, and ``fit`` does
not change them. Fitted attributes depend on records only through releases.
"""

from __future__ import annotations

import difflib
import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from skdp.descent.curves import choose_curves, draw_lines, find_auto_columns
from skdp.descent.plan import Plan, release_row_count, run
from skdp.descent.rule import check_options, make_plan, scale_caps
from skdp.engines.choice import MakeEngine, choose_small_engine, is_dask
from skdp.estimators.fit_warnings import (
    describe_doubts,
    remember_table,
    warn_if_constant,
    warn_if_labels_unknown,
    warn_of_doubts,
)
from skdp.estimators.opening import (
    OpenedTable,
    PrivacyRequest,
    check_width,
    choose_seed,
    reserve_budget,
)
from skdp.estimators.other_solvers import (
    OWN,
    check_solver,
    find_delta_share,
    run_solver,
)
from skdp.estimators.postestimation import ResultsMixin
from skdp.estimators.predict import (
    accept_rows,
    centre_categories,
    compute_margins,
    convert_to_user_units,
    find_references,
)
from skdp.estimators.progress import render_promise, show_fitting
from skdp.estimators.standard_errors import (
    StandardErrors,
    compute_standard_errors,
    make_centring_matrix,
)
from skdp.estimators.summary import Summary, summarise
from skdp.estimators.weights import BALANCED, release_balanced_weights, release_weights
from skdp.models.losses import Loss
from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.discovery import N_SHARES, release_shares
from skdp.privacy.encoding import Records
from skdp.privacy.look import (
    Profile,
    can_be_narrowed,
    describe_finely,
    find_knot_shares,
    release_look,
    use_ranges,
)
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, Layout, Numeric, Schema, Target, check, name_record
from skdp.tables.batches import Exposure

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline  # slow to import

# ---- Refuse options of scikit-learn that have another name or meaning here


#: Parameters of scikit-learn's linear models, and what replaces each of them.
REPLACEMENTS = {
    "C": "Use alpha, which multiplies the penalty that is added to the mean loss. For "
    "n rows, alpha = 1 / (C n).",
    "penalty": "Use l1_ratio: 0 is a ridge penalty, 1 is L1. alpha=0 disables both.",
    "n_jobs": "Use n_threads.",
    "max_iter": "Use n_steps. More steps need more noise, so leave it at 'auto'.",
    "tol": "The number of steps is fixed in advance, because a stopping rule would "
    "read records. Omit it, or set n_steps.",
    "warm_start": "Every fit starts from zero and is charged in full. Omit it.",
    "dual": "The same solver serves tables of every shape. Omit it.",
    "multi_class": "Three classes or more are fitted by one softmax model. Omit it.",
    "intercept_scaling": "The intercept is not penalised. Omit it.",
    "normalize": "Columns are scaled by their public ranges. Omit it.",
    "copy_X": "The table is never changed. Omit it.",
    "positive": "Signs of coefficients cannot be constrained. Omit it.",
    "loss": "The class determines the loss: LogisticRegression, LinearSVC, "
    "LinearRegression, HuberRegressor or PoissonRegressor.",
    "data_norm": "Use bounds=(low, high) or a schema, which bound each column.",
    "accountant": "Use ledger, which keeps the total budget of a table.",
}


class ForeignOptionsMixin:
    """Refuse scikit-learn's options and methods that are not supported, and say why.

    In the order of inheritance, this class must come after the class that defines
    ``__init__``. Otherwise ``inspect.signature`` does not show the parameters.
    """

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """Refuse an unknown option, and say what to use instead."""
        known: list[str] = getattr(cls, "_get_param_names", list)()
        parameters = inspect.signature(cls.__init__).parameters.values()
        open_ = any(one.kind == one.VAR_KEYWORD for one in parameters)
        for name in options:
            if name in known or (open_ and name not in REPLACEMENTS):
                continue
            close = difflib.get_close_matches(name, known, 1)
            remedy = f"Did you mean {close[0]!r}?" if close else "See help({})."
            remedy = REPLACEMENTS.get(name, remedy.format(cls.__name__))
            raise TypeError(f"{cls.__name__} has no parameter {name!r}. {remedy}")
        return super().__new__(cls)

    @property
    def partial_fit(self) -> NoReturn:
        """Raise an AttributeError that says why there is no such method."""
        raise AttributeError(
            "There is no partial_fit. The noise of a fit is chosen for all rows before "
            "any is read, and later rows would need a budget of their own. Pass the "
            "path of a file to fit (it may be larger than memory), or fit all rows "
            "again and charge a ledger."
        )


# ---- The base class of all estimators: parameters, ``fit``, fitted attributes, exports
#
# There is no mathematics here. ``__init__`` only stores the parameters, and ``fit``
# does not change them. Fitted attributes depend on records only through releases.


#: Share of the budget (of μ²) spent on releasing the number of rows, if that number is
#: private and not given.
COUNT_SHARE = 0.01
#: Share of the budget (of μ²) spent on histograms that determine where knots are.
KNOTS_SHARE = 0.05
#: Share of the budget (of μ² and of δ) that may be spent on inferring ranges,
#: categories and labels.
DISCOVERY_SHARE = 0.1
#: All estimators by short name. A class that sets `short_name` is added automatically.
ESTIMATORS: dict[str, type[PrivateLinearModel]] = {}


class PrivateLinearModel(ForeignOptionsMixin, ResultsMixin, BaseEstimator, ABC):
    """A linear model fitted by DP-SkGD; see `LogisticRegression` for the parameters.

    A subclass that sets `short_name` is registered as an estimator. `skdp.plan`, the
    command line, saved models, exports and reports then use the attributes below.

    Attributes
    ----------
    short_name, title : str
        The name used in commands, and the name used in reports.
    sklearn_class : str
        The class of scikit-learn that ends the pipeline of ``to_sklearn``, as
        ``"module:class"``. It is imported only when it is used.
    link : {"identity", "log", "logit"}
        The link function. A model with "logit" predicts probabilities.
    """

    short_name: ClassVar[str]
    title: ClassVar[str]
    sklearn_class: ClassVar[str]
    link: ClassVar[Literal["identity", "log", "logit"]] = "identity"
    #: Whether counts were divided by exposures. The model then predicts rates.
    _exposed: bool = False
    #: What a look found, or None if there was none.
    profile_: Profile | None = None
    #: The weights with which the run ended, if the model then changed them.
    _run_weights: FloatArray | None = None
    #: Standard errors, or the reason why there are none; None before first use.
    _errors: StandardErrors | str | None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "short_name" in cls.__dict__:
            ESTIMATORS[cls.short_name] = cls

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
        class_weight: Mapping[Any, float] | str | None = None,
        max_weight: float = 1.0,
        sampling: Any = "auto",
        geometry: Any = "auto",
        n_steps: Any = "auto",
        slope_bound: Any = "auto",
        solver: str = "skgd",
        calibration: str = "exact",
        neighbours: str = "add-remove",
        n_rows: int | None = None,
        max_rows_per_unit: int = 1,
        ledger: Any = None,
        engine: str = "auto",
        n_threads: int | None = None,
        look: bool = True,
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
        self.max_rows_per_unit = max_rows_per_unit
        self.ledger = ledger
        self.engine = engine
        self.n_threads = n_threads
        self.look = look
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, unit: Any = None
    ) -> Self:
        """Fit a private model.

        Parameters
        ----------
        X : table
            A pandas, polars or Dask frame, pyarrow table or data set, query, numpy
            array, scipy sparse matrix, dict of columns, or the path or address of CSV,
            Parquet or Feather files. The guide on tables has the whole list.
        y : column, optional
            The target. Leave it out if the schema names the target's column in `X`.
        sample_weight : column or str, optional
            The weight of each record, clipped to ``max_weight``, which is 1 by default.
            If weights are larger, set ``max_weight`` to their largest possible value.
        unit : column, str or list of str, optional
            The person to whom each row belongs: an array of ids, or the names of the
            columns that hold the ids. All rows of a person then count as one record,
            and privacy protects persons. The default is the schema's unit.

        Returns
        -------
        self
            The fitted estimator.
        """
        target = self._target()
        asked = PrivacyRequest(
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            n_rows=self.n_rows,
            max_rows_per_unit=self.max_rows_per_unit,
            solver=self.solver,
            calibration=self.calibration,
            ledger=self.ledger,
            random_state=self.random_state,
        )
        opened, engine = asked.open(
            X,
            y,
            sample_weight,
            unit,
            schema=self.schema,
            bounds=self.bounds,
            target=target,
            empty=self.neighbours == "add-remove",
            engine=self.engine,
            n_threads=self.n_threads,
        )
        check(
            isinstance(self.look, bool),
            f"look must be True or False, got {self.look!r}.",
        )
        self._check_options(opened.typical_target, opened.table)
        self._check_once(asked, opened)
        balanced = isinstance(self.class_weight, str)
        read = partial(
            opened.read,
            class_weight=None if balanced else self.class_weight,
            intercept=self.fit_intercept,
            max_weight=self.max_weight,
            verbose=self.verbose,
            n_threads=self.n_threads,
        )
        rows, records = self._count(asked, opened, read)  # public, or None
        share = DISCOVERY_SHARE * opened.infers_levels
        share += 0.0 if self.solver == OWN else find_delta_share(self.solver)
        record = asked.open_record(rows, opened.unit_name, opened.assumptions, share)
        noise = Randomness(choose_seed(self.random_state))
        query = f"fit of {type(self).__name__}"
        # What follows is charged to the ledger first, and then to the record, release
        # by release.
        with reserve_budget(
            record, asked.ledger, query=query, described=opened
        ) as enter:
            schema = opened.schema
            reasons: tuple[str, ...] = ()
            if schema is None:
                schema = opened.infer_schema(record, DISCOVERY_SHARE, noise)
                schema = self._adapt_target(schema) if opened.infers_target else schema
            profile = None
            if self._looks(schema):
                seen = read(describe_finely(schema)) if records is None else records
                profile = release_look(seen, schema, record, noise, rows)
                found = self._use(profile, record)
                schema, rows, reasons = found
                records = None  # those with the ranges of the schema
            elif not self._is_described(schema):
                lines = partial(read, draw_lines(schema))
                found = self._resolve(schema, rows, lines, record, noise)
                schema, rows, reasons = found
            records = read(schema) if records is None else records
            if balanced:
                weights = release_balanced_weights(
                    records, schema, record, noise=noise, max_weight=self.max_weight
                )
                records = read(schema, class_weight=weights)
            if rows is None:
                rows = release_row_count(records, record, COUNT_SHARE, noise=noise)
            ran: tuple[FloatArray, Plan | dict[str, Any], int]
            if self.solver == OWN:
                weighted = opened.weights is not None
                if weighted and self._may_have_errors(schema):
                    release_weights(records, record, noise)
                plan = self._plan(schema, rows, record, reasons)
                ran = self._run(plan, records, weighted, record, noise, engine)
            else:
                loss = self._loss(schema)
                ran = run_solver(self, records, loss, rows, record, noise, engine)
            # All attributes change at once. None changes if the fit is interrupted.
            fitted = self._finish(opened, schema, profile, record, *ran)
            enter(fitted)
            self.__dict__ = fitted.__dict__
        remember_table(self, X)
        warn_if_constant(self)
        warn_if_labels_unknown(self)
        warn_of_doubts(describe_doubts(self))
        return self

    def _check_options(self, target: Target, table: Any = None) -> None:
        """Refuse options that are wrong for every table with such a target."""
        most: Any = self.max_weight
        check(
            isinstance(most, int | float | np.number) and bool(0 < most < 1e30),
            f"max_weight must be in (0, 1e30), got {most!r}.",
        )
        given = self.class_weight
        check(
            given is None or isinstance(given, Mapping) or given == BALANCED,
            "class_weight must be 'balanced' or map classes to weights, got "
            f"{given!r}.",
        )
        loss = self._make_loss(target)
        check(
            given != BALANCED or loss.n_classes > 0,
            "class_weight='balanced' requires a categorical target.",
        )
        if self.solver != OWN:
            check_solver(self, loss, table)
        check_options(
            alpha=self.alpha,
            l1_ratio=self.l1_ratio,
            sampling=self.sampling,
            geometry=self.geometry,
            n_steps=self.n_steps,
        )

    def _check_once(self, asked: PrivacyRequest, opened: OpenedTable) -> None:
        """Refuse a table that can be read only once if this fit must read it again."""
        open_ended = opened.schema is not None and not self._is_described(opened.schema)
        looks = opened.schema is not None and self._looks(opened.schema)
        reads = ["a look (which look=False leaves out)"] if looks else []
        reads += ["the places of knots"] if open_ended and not looks else []
        reads += ["the classes"] if isinstance(self.class_weight, str) else []
        charged = asked.ledger is not None
        counts = self.neighbours != "add-remove" and (charged or open_ended)
        opened.check_once(*reads, "the records", counts=counts)

    def _count(
        self,
        asked: PrivacyRequest,
        opened: OpenedTable,
        read: Callable[[Schema], Records],
    ) -> tuple[int | None, Records | None]:
        """Return the number of rows or persons, or None if it is private.

        Also return the records, if they were read to be counted. This needs no ledger
        to be charged, and a public number of rows.
        """
        if self.neighbours == "add-remove":
            return asked.count_public(opened), None
        records, readable = None, None
        # With a ledger, rows are counted but no record is read before the charge.
        if asked.ledger is None and opened.ids is None and opened.source.n_rows is None:
            readable = opened.schema
        if readable is not None and self._looks(readable):
            readable = describe_finely(readable)
        elif readable is not None and not self._is_described(readable):
            readable = None
        if readable is not None:
            # Counting would read the whole file, so read and count in one pass.
            records = read(readable)
            rows = records.count()
        else:
            rows = opened.count_records(self.verbose)
        what = name_record(opened.ids)
        check(
            rows > 0,
            "The table has no rows."
            if opened.ids is None
            else "No row of the table has an id.",
        )
        check(
            self.n_rows in (None, rows),
            f"n_rows must be {rows}, the number of {what}s, got {self.n_rows}. Under "
            f"{self.neighbours!r} this number is counted, so leave n_rows out.",
        )
        return rows, records

    def _run(
        self,
        plan: Plan,
        records: Records,
        weighted: bool,
        record: PrivacyRecord,
        noise: Randomness,
        engine: MakeEngine,
    ) -> tuple[FloatArray, Plan, int]:
        """Run a plan, and return the weights, the plan that was run and its steps."""
        given = weighted or self.class_weight is not None
        if given and isinstance(self.geometry, str):  # otherwise the user chose caps
            plan = scale_caps(plan, self.max_weight)
        if records.elsewhere:
            plan = replace(plan, engine="dask")
        elif small := choose_small_engine(self.engine, plan.n_computed):
            plan, engine = replace(plan, engine="reference"), small
        else:
            plan = replace(plan, engine=self.engine)
        with show_fitting(plan) if self.verbose else nullcontext() as callback:
            fit = run(
                plan,
                records,
                engine=engine,
                noise=noise,
                record=record,
                callback=callback,
            )
        return fit.weights, plan, plan.n_steps * plan.n_restarts

    def _finish(
        self,
        opened: OpenedTable,
        schema: Schema,
        profile: Profile | None,
        record: PrivacyRecord,
        weights: FloatArray,
        plan: Plan | dict[str, Any],
        n_steps: int,
    ) -> Self:
        """Return a copy with all fitted attributes. They follow from releases alone."""
        fitted = copy(self)
        fitted._set_fitted(weights, schema, opened.named)
        fitted.plan_ = plan
        fitted.profile_ = profile
        fitted.privacy_ = record
        fitted.n_iter_ = n_steps
        weighted = opened.weights is not None
        fitted._weighted = weighted or self.class_weight is not None
        fitted._exposed = isinstance(opened.weights, Exposure)
        fitted._errors = None  # discard those of an earlier fit
        fitted._derive()
        return fitted

    # Decisions, which follow from public or released facts

    @abstractmethod
    def _make_loss(self, target: Target) -> Loss:
        """Return the loss for a target. Raise if the target does not suit the model."""

    def _loss(self, schema: Schema) -> Loss:
        return self._make_loss(schema.target_column)

    def _is_described(self, schema: Schema) -> bool:
        """Return whether the schema already fixes all knots and pairs."""
        return not schema.unresolved

    def _looks(self, schema: Schema) -> bool:
        """Return whether a look comes before the fit.

        The methods of the paper, other solvers and ℓ₁ penalties use the ranges of the
        schema as they are. So do rows of a bounded norm, whose numbers are scaled
        together. Without a range that could be narrowed, there is no look either.
        """
        usual = self._is_usual and self.solver == OWN
        plain = self.l1_ratio == 0 and schema.row_norm is None
        useful = can_be_narrowed(schema)
        return usual and plain and useful and self.look and self.epsilon < math.inf

    @property
    def _is_usual(self) -> bool:
        """Whether all coordinates move in each step, in a metric that is released."""
        named = isinstance(self.geometry, str) and isinstance(self.sampling, str)
        usual = named and self.geometry in ("auto", "matrix")
        return usual and self.sampling in ("auto", "full")

    def _find_curves(self, schema: Schema) -> list[str]:
        """Return the names of the numeric columns whose knots are to be chosen."""
        return find_auto_columns(schema, None)

    def _places_knots(self, schema: Schema, chosen: Schema) -> bool:
        """Return whether a fit must release histograms to place knots."""
        columns = [chosen.columns[name] for name in self._find_curves(schema)]
        return any(isinstance(c, Numeric) and c.n_knots for c in columns)

    def _describe(
        self, schema: Schema, rows: int, record: PrivacyRecord, **options: Any
    ) -> tuple[Schema, tuple[str, ...]]:
        """Return the schema with the chosen knots and pairs, and the reasons why."""
        choice = choose_curves(
            schema,
            loss=self._loss(schema),
            n_rows=rows,
            mu=math.sqrt(record.remaining),
            neighbours=record.neighbours,
            **options,
        )
        return choice.schema, choice.reasons

    def _use(
        self, profile: Profile, record: PrivacyRecord
    ) -> tuple[Schema, int, tuple[str, ...]]:
        """Choose ranges, curves and pairs by what a look found."""
        schema, rows = use_ranges(profile), profile.n_rows
        if self._is_described(schema):
            return schema, rows, ()
        shares = find_knot_shares(profile, schema, N_SHARES)
        chosen, reasons = self._describe(schema, rows, record, shares=shares)
        return chosen, rows, reasons

    def _resolve(
        self,
        schema: Schema,
        rows: int | None,
        read_lines: Callable[[], Records],
        record: PrivacyRecord,
        noise: Randomness,
    ) -> tuple[Schema, int, tuple[str, ...]]:
        """Choose curves and pairs, and release the facts that the choice needs.

        The number of rows is released if it is not known. If knots must be placed,
        histograms of the columns that they belong to are released too.
        """
        lines = None
        if rows is None:
            lines = read_lines()
            rows = release_row_count(lines, record, COUNT_SHARE, noise=noise)
        chosen, reasons = self._describe(schema, rows, record)
        if self._places_knots(schema, chosen):
            lines = read_lines() if lines is None else lines
            z = accountant.noise_multiplier(math.sqrt(record.budget * KNOTS_SHARE), 1)
            names = self._find_curves(schema)
            shares = release_shares(lines, names, z, noise, record)
            chosen, reasons = self._describe(schema, rows, record, shares=shares)
        return chosen, rows, reasons

    def _plan(
        self,
        schema: Schema,
        rows: int,
        record: PrivacyRecord,
        reasons: tuple[str, ...] = (),
    ) -> Plan:
        """Make the plan from public facts and the remaining budget."""
        layout = schema.layout(self.fit_intercept)
        geometry = self._choose_geometry(layout)
        return make_plan(
            layout,
            self._loss(schema),
            n_rows=rows,
            mu_squared=record.remaining,
            neighbours=record.neighbours,
            assumptions=tuple(record.assumptions),
            reasons=reasons,
            epsilon=self.epsilon,
            delta=record.delta,
            alpha=self.alpha,
            l1_ratio=self.l1_ratio,
            sampling=self.sampling,
            geometry=geometry,
            n_steps=self.n_steps,
            calibration=self.calibration,
        )

    def _choose_geometry(self, layout: Layout) -> Any:
        return self.geometry

    def _may_have_errors(self, schema: Schema) -> bool:
        """Return whether the parameters allow the model to have standard errors."""
        full = self.sampling in ("auto", "full") and self.geometry in ("auto", "matrix")
        plain = full and self.fit_intercept and self.l1_ratio == 0
        return plain and self._loss(schema).target_law is not None

    def _adapt_target(self, schema: Schema) -> Schema:
        """Change an inferred description of the target to suit the loss."""
        return schema

    @abstractmethod
    def _target(self) -> Any:
        """Return the description of the target that the parameters give."""

    def _derive(self) -> None:
        """Compute what follows from released values. A ledger's entry covers it too."""

    def _set_fitted(self, weights: FloatArray, schema: Schema, named: bool) -> None:
        """Set the attributes that predictions need."""
        self.schema_ = schema
        self.weights_ = weights
        self.n_features_in_ = len(schema.inputs)
        if named:
            self.feature_names_in_ = np.array(schema.inputs, dtype=object)
        elif hasattr(self, "feature_names_in_"):  # from an earlier fit
            del self.feature_names_in_
        coef, intercept = convert_to_user_units(schema, self._layout, weights)
        self._set_coefficients(coef, intercept)

    def _set_coefficients(self, coef: FloatArray, intercept: FloatArray) -> None:
        """Set ``coef_`` and ``intercept_``, given arrays (k, width) and (k,)."""
        self.coef_: FloatArray = coef
        self.intercept_: FloatArray | float = intercept

    @property
    def _layout(self) -> Layout:
        """The layout of ``weights_``, including the intercept if the model has one."""
        layout = self.schema_.layout(intercept=False)
        if layout.n_features == len(self.weights_):
            return layout
        return self.schema_.layout(intercept=True)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Return the name of each column of ``coef_``, such as age or job=admin."""
        check_is_fitted(self, "weights_")
        names = zip(self._layout.labels, self._layout.penalised, strict=True)
        return np.array([name for name, kept in names if kept], dtype=object)

    def _margins(self, X: Any) -> FloatArray:
        """Compute the margins x·w of new rows, shape (n, k)."""
        check_is_fitted(self, "weights_")
        if is_dask(X) and hasattr(X, "columns"):  # one partition at a time in memory
            parts = [self._margins(part.compute()) for part in X.to_delayed()]
            return np.concatenate(parts)
        table = accept_rows(X)
        check_width(table, self.n_features_in_, type(self).__name__)
        return compute_margins(table, self.schema_, self._layout, self.weights_)

    # Standard errors. They follow from released values, and are computed on first
    # use. If they are not known, reading an attribute raises an AttributeError that
    # says why.

    def _make_centring_matrix(self) -> FloatArray:
        """Return the matrix (d, d) that maps weights to centred weights."""
        return make_centring_matrix(self._layout, self._references)

    def _centre(self, weights: FloatArray) -> FloatArray:
        """Return centred weights. They make the same predictions as `weights`."""
        return centre_categories(self._layout, weights, self._references)

    @property
    def _absorbed(self) -> frozenset[str]:
        """The columns whose effects are shown as part of those of others."""
        return frozenset()

    @property
    def _references(self) -> dict[str, int]:
        """The code of the category with which others are compared, by column."""
        return find_references(self.schema_, self._layout)

    def _list_terms(self, ratios: bool = False) -> tuple[Any, ...]:
        """Return the lines of `summary` for curves and pairs, if the model has any."""
        return ()

    def _standard_errors(self) -> StandardErrors | str:
        """Return the standard errors, or a sentence that says why there are none."""
        known = self._errors
        if known is None:
            known = self._errors = compute_standard_errors(self)
        return known

    def _error(self, name: str, which: str) -> FloatArray:
        if "weights_" not in self.__dict__:
            raise AttributeError(f"The model is not fitted, so it has no {name}.")
        known = self._standard_errors()
        if isinstance(known, str):
            raise AttributeError(f"There is no {name}. {known}")
        return np.asarray(getattr(known, which))

    @property
    def coef_noise_std_(self) -> Any:
        """Standard deviation of ``coef_`` due to the privacy noise."""
        return self._reshape(self._error("coef_noise_std_", "noise_std"), "coef_")

    @property
    def coef_std_(self) -> Any:
        """Standard error of ``coef_``, from sampling and privacy.

        An entry is infinite if noise hides how much its column varies.
        """
        return self._reshape(self._error("coef_std_", "std"), "coef_")

    @property
    def intercept_noise_std_(self) -> Any:
        """Standard deviation of ``intercept_`` due to the privacy noise."""
        errors = self._error("intercept_noise_std_", "noise_std")
        return self._reshape(errors, "intercept_")

    @property
    def intercept_std_(self) -> Any:
        """Standard error of ``intercept_``, from sampling and privacy."""
        return self._reshape(self._error("intercept_std_", "std"), "intercept_")

    def _reshape(self, errors: FloatArray, like: str) -> Any:
        """Return the errors of ``coef_`` or ``intercept_`` in the attribute's shape."""
        part = (errors[:-1] if like == "coef_" else errors[-1:]).T
        form = getattr(self, like)
        return part.item() if isinstance(form, float) else part.reshape(form.shape)

    # What a fitted model shows, and what it can be exported to

    def summary(self, ratios: bool = False) -> Summary:
        """Return a table of coefficients, standard errors and 95 % intervals.

        Print the table, or show it in a notebook. Coefficients of categories are
        relative to the mean of their column. If there are three classes or more, the
        coefficients of a class are relative to the mean of all classes.
        ``docs/guide/intervals.md`` says what intervals cover.

        Parameters
        ----------
        ratios : bool
            Whether to show exp(coefficient) instead of the coefficient. This is an odds
            ratio in models of two classes, and a rate ratio in models of counts. z and
            p remain those of the coefficient.
        """
        return summarise(self, ratios)

    def plot(self, axes: Any = None) -> Any:
        """Draw the effects of all columns with their 95 % intervals.

        Effects can be compared across columns. The effect of a number is the change
        from the lowest to the highest value of its range, and the effect of a category
        is relative to the mean of its column. ``summary()`` has the coefficients in the
        units of the columns. No budget is spent.

        Parameters
        ----------
        axes : matplotlib axes or sequence of them, optional
            Where to draw. By default a new figure is made. Each class has axes of its
            own if there are more than two.

        Returns
        -------
        matplotlib.figure.Figure
            The figure. Save it with ``savefig``.
        """
        from skdp.estimators.plots import draw_coefficients  # needs an extra

        check_is_fitted(self, "weights_")
        return draw_coefficients(self, axes)

    def _repr_html_inner(self) -> str:
        diagram: Any = super()._repr_html_inner
        return f"{diagram()}{render_promise(self)}"

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        bundle: Any = super()._repr_mimebundle_
        shown: dict[str, str] = bundle(**kwargs)
        if "text/html" in shown:  # absent if scikit-learn is set to display text
            shown["text/html"] += render_promise(self)
        return shown

    def to_sklearn(self) -> Pipeline:
        """Return a fitted scikit-learn ``Pipeline`` that makes the same predictions.

        The pipeline is computed from released weights alone, so it is as private as
        this model. It takes the same tables. To load it from a file, skdp must be
        installed.
        """
        from skdp.estimators.sklearn_export import make_pipeline  # slow to import

        check_is_fitted(self, "weights_")
        return make_pipeline(self)

    def to_onnx(self) -> Any:
        """Return an ``onnx.ModelProto`` that makes the same predictions.

        The graph is computed from released weights alone, so it is as private as this
        model. `skdp.estimators.onnx_export.make_onnx_model` describes the graph's
        inputs and outputs.
        """
        from skdp.estimators.onnx_export import make_onnx_model  # needs an extra

        check_is_fitted(self, "weights_")
        return make_onnx_model(self)

    def card(self, format: str = "markdown", **options: Any) -> str:
        """Return a model card, or an entry for a registry of deployments, as text.

        Parameters
        ----------
        format : {"markdown", "json", "registry", "html"}
            A card as model hubs read it, the same facts as JSON, an entry of the
            registry of differential-privacy deployments as YAML, or a page.
        **options
            ``ledger``, ``scores`` and ``answers``, as for `skdp.report`.
        """
        import skdp  # reports are written by a later layer

        return skdp.report(self, form=format, **options)

    def save(self, directory: str | PathLike[str]) -> None:
        """Write the fitted model to a directory of text files; `skdp.load` reads it.

        Nothing is pickled, and a seed is never written. If `directory` is a saved
        model, it is replaced. If it exists and is anything else, an error is raised.
        """
        from skdp.estimators.saving import save  # which imports this file

        check_is_fitted(self, "weights_")
        fitted: Any = self
        save(fitted, directory)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inputs = tags.input_tags
        inputs.sparse = inputs.string = inputs.allow_nan = True
        return tags
