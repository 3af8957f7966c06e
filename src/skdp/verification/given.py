"""Read the facts that verification uses: a model's public facts and its privacy record.

Bounds on records are computed from the schema's groups and the parameters. This code is
independent of the code that makes the queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from skdp.estimators import privacy_json
from skdp.estimators.privacy_json import RecordForm, ReleaseForm, SearchForm
from skdp.estimators.saving import (
    list_parameters,
    make_model,
    make_unrecorded,
    model_digest,
    read_saved,
    saved_digest,
)
from skdp.ledger import released_digest
from skdp.models.losses import Loss
from skdp.models.penalties import ElasticNet
from skdp.planning.decide import make_penalty
from skdp.planning.plan_files import plan_summary
from skdp.schema import Layout, Schema, check


@dataclass(frozen=True, kw_only=True, eq=False)
class Given:
    """A model's public facts and its privacy record.

    Attributes
    ----------
    parameters, plan : dict
        The parameters and the plan of the model, as they are saved.
    record : RecordForm
        The privacy record, as it is saved.
    n_iter : int
        The number of steps that the model reports.
    schema : Schema
        The schema of the fit.
    layout : Layout
        The coordinates of an encoded row.
    loss : Loss
        The loss that the parameters and the schema imply.
    digest : callable
        A function that returns the digest of this model's releases. A ledger's entry
        that paid for the model has the same digest.
    """

    parameters: dict[str, Any]
    plan: dict[str, Any]
    record: RecordForm
    n_iter: int
    schema: Schema
    layout: Layout
    loss: Loss
    digest: Callable[[], str]

    @property
    def releases(self) -> list[ReleaseForm]:
        """The releases of the record, each with the number of times it was made."""
        return self.record.releases

    @property
    def search(self) -> SearchForm | None:
        """The search that chose the model, if any."""
        return self.record.search

    @property
    def apart(self) -> float:
        """The number of records in which neighbouring tables differ.

        It is 2 for replace-one, because one record is removed and another is added.
        """
        return 2.0 if self.record.neighbours == "replace-one" else 1.0

    @property
    def weight(self) -> float:
        """Bound on a record's weight."""
        return float(self.parameters.get("max_weight", 1.0))

    @property
    def slope(self) -> float:
        """Bound on a record's slope times its weight."""
        return self.loss.slope_bound * self.weight

    @property
    def intercept(self) -> bool:
        """Whether encoded rows have an intercept coordinate."""
        return any(group.kind == "ones" for group in self.layout.groups)

    def reach(self, scale: Any = None, at: Any = None) -> float:
        """Return a bound on Σ scaleⱼ xⱼ² over the coordinates `at`, for every row x.

        By default every scale is one and `at` contains all coordinates. In each column
        a row has norm at most one. Over all columns together its norm is at most the
        schema's row norm. The intercept is one and is not part of the row norm.
        """
        wanted = set(range(self.layout.n_features) if at is None else at)
        parts, constant = [], 0.0
        for group in self.layout.groups:
            inside = [j for j in group.coordinates.tolist() if j in wanted]
            most = max([1.0 if scale is None else scale[j] for j in inside], default=0)
            if group.kind == "ones":
                constant += most
            else:
                parts.append(most)
        total = math.fsum(parts)
        if self.layout.row_norm is not None and parts:
            total = min(total, self.layout.row_norm**2 * max(parts))
        return total + constant

    @property
    def single(self) -> float:
        """The largest possible |xⱼ| of a coordinate other than the intercept."""
        return min(1.0, self.layout.row_norm or 1.0)

    @property
    def penalty(self) -> ElasticNet:
        """The penalty that follows from the parameters."""
        return make_penalty(
            self.layout,
            self.loss,
            self.parameters.get("alpha", "auto"),
            self.parameters.get("l1_ratio", 0.0),
        )

    def quadratic(self) -> list[float]:
        """Return the quadratic penalty on each coordinate, times the number of rows n.

        The penalty includes the ridge term that the solver adds.
        """
        net = self.penalty
        n, own = self.number("n_rows"), self.number("ridge")
        return [n * (net.l2 * on + own) for on in self.layout.penalised.tolist()]

    def number(self, name: str) -> float:
        """Return a number from the plan, or raise ValueError if there is none."""
        value = self.plan.get(name)
        right = isinstance(value, (int, float)) and not isinstance(value, bool)
        check(
            right and 0 <= float(value or 0) < 1e100,
            f"The plan in model.json was changed: it has no number {name!r}.",
        )
        return float(value or 0)


def read(model: Any) -> Given:
    """Return the facts of a saved model's directory or of a fitted estimator."""
    if isinstance(model, (str, PathLike)):
        return _read_directory(Path(model))
    model = getattr(model, "best_estimator_", model)
    check(
        hasattr(model, "privacy_") and hasattr(model, "plan_"),
        "verify takes a saved model's directory, a fitted estimator or an evaluation, "
        f"got {type(model).__name__}.",
    )
    parameters, _ = list_parameters(model)
    plan = plan_summary(model.plan_)
    return Given(
        parameters=parameters,
        plan=plan,
        record=privacy_json.make_form(model.privacy_, plan),
        n_iter=model.n_iter_,
        schema=model.schema_,
        layout=model._layout,
        loss=model._loss(model.schema_),
        digest=lambda: model_digest(model),
    )


def _read_directory(source: Path) -> Given:
    saved = read_saved(source)
    about, record, schema = saved.about, saved.record, saved.schema
    model = make_unrecorded(saved)  # refuses what does not fit together

    def digest() -> str:
        make_model(saved)  # what cannot be loaded is not a model that was paid for
        return saved_digest(saved)

    return Given(
        parameters=about.parameters,
        plan=about.plan,
        record=record,
        n_iter=about.n_iter,
        schema=schema,
        layout=model._layout,
        loss=model._loss(schema),
        digest=digest,
    )


def read_evaluation(found: Any) -> tuple[RecordForm, str]:
    """Return the privacy record of an evaluation, and the digest of its releases."""
    record = found.privacy_
    return privacy_json.make_form(record, {}), released_digest(record)
