"""Choose an estimator's knots, pairs and plan from public or released facts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from skdp.estimators.balanced import BALANCED
from skdp.estimators.other_solvers import OWN, check_solver
from skdp.estimators.preparation import OpenedTable
from skdp.models.losses import Loss
from skdp.planning.curves import choose_curves, find_auto_columns
from skdp.planning.decide import check_options, make_plan
from skdp.planning.plan import Plan, check_budget, default_delta, release_row_count
from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.discovery import release_shares
from skdp.privacy.encoding import Records
from skdp.privacy.randomness import Randomness
from skdp.schema import Layout, Numeric, Schema, Target, check

#: Share of the budget (of μ²) spent on releasing the number of rows, if that number is
#: private and not given.
COUNT_SHARE = 0.01
#: Share of the budget (of μ²) spent on histograms that determine where knots are.
KNOTS_SHARE = 0.05


class DecisionsMixin(ABC):
    """The methods of `PrivateLinearModel` that make decisions.

    The attributes declared here are parameters of that class.
    """

    epsilon: float
    delta: float | None
    alpha: float | str
    l1_ratio: float
    fit_intercept: bool
    class_weight: Mapping[Any, float] | str | None
    max_weight: float
    sampling: Any
    geometry: Any
    n_steps: Any
    solver: str
    calibration: str
    engine: str
    n_threads: int | None

    @abstractmethod
    def _make_loss(self, target: Target) -> Loss:
        """Return the loss for a target. Raise if the target does not suit the model."""

    def _loss(self, schema: Schema) -> Loss:
        return self._make_loss(schema.target_column)

    def _is_described(self, schema: Schema) -> bool:
        """Return whether the schema already fixes all knots and pairs."""
        return not schema.unresolved

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
            **self._list_options(record.delta, geometry),
        )

    def _list_options(self, delta: float, geometry: Any) -> dict[str, Any]:
        """Return the parameters that a plan is made from."""
        return {
            "epsilon": self.epsilon,
            "delta": delta,
            "alpha": self.alpha,
            "l1_ratio": self.l1_ratio,
            "sampling": self.sampling,
            "geometry": geometry,
            "n_steps": self.n_steps,
            "calibration": self.calibration,
        }

    def _choose_geometry(self, layout: Layout) -> Any:
        return self.geometry

    def _check_parameters(self, opened: OpenedTable, rows: int | None) -> float:
        """Refuse wrong parameters before anything is spent, and return δ."""
        check(
            0 < self.max_weight < 1e30,
            f"max_weight must be in (0, 1e30), got {self.max_weight}.",
        )
        given = self.class_weight
        check(
            given is None or isinstance(given, Mapping) or given == BALANCED,
            "class_weight must be 'balanced' or map classes to weights, got "
            f"{given!r}.",
        )
        loss = self._make_loss(opened.typical_target)
        check(
            given != BALANCED or loss.n_classes > 0,
            "class_weight='balanced' requires a categorical target.",
        )
        if self.solver != OWN:
            check_solver(self, loss, opened.table)
        delta = default_delta(rows) if self.delta is None else self.delta
        check_budget(self.epsilon, delta, rows)
        check_options(**self._list_options(delta, self.geometry))
        return delta
