"""Lists of audits, for the command line and for the report in docs/audit.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skdp.audit import bounds
from skdp.audit.fits import fit
from skdp.audit.judge import Audit
from skdp.audit.mechanisms import MECHANISMS, mechanism
from skdp.estimators.base import PrivateLinearModel
from skdp.estimators.planning import MODELS
from skdp.privacy import accountant
from skdp.privacy.queries import RELATIONS, Relation

Progress = Callable[[int], object] | None
#: Short fits on small tables: as private as long ones, and quick.
SHORT: Mapping[str, Any] = {"n_steps": 4, "n_threads": 1}
SMALL: Mapping[str, Any] = {"n_rows": 300, "twins": 0}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One audit: of a mechanism, or of the fits of a model of `skdp.plan`.

    Attributes
    ----------
    name, relation, epsilon, delta
        What is audited.
    group, n_trials : int
        As in `skdp.audit.fit`.
    parameters : dict
        Further ones of the estimator.
    table : dict
        ``n_rows`` and ``twins``, for fits.
    """

    name: str
    relation: Relation
    epsilon: float
    delta: float
    group: int
    n_trials: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    table: Mapping[str, Any] = field(default_factory=dict)

    def estimator(self) -> PrivateLinearModel:
        """Return the model whose fits are audited."""
        return MODELS[self.name](
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.relation,
            **self.parameters,
        )

    def run(self, progress: Progress = None) -> Audit:
        """Play the games."""
        given: dict[str, Any] = {"group": self.group, "n_trials": self.n_trials}
        if self.name in MODELS:
            return fit(self.estimator(), **given, **self.table, progress=progress)
        return mechanism(
            self.name,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.relation,
            progress=progress,
            **given,
        )

    def confirmed(self, progress: Progress = None) -> Audit:
        """Play, and play again if the claim was refuted: both must refute it.

        A right claim is refuted by chance once in a thousand games at most for each of
        two bounds, so that it fails twice with a chance of 4 in a million.
        """
        first = self.run(progress)
        return first if first.passed else self.run(progress)


def mechanism_settings(
    epsilon: float, delta: float = 1e-6, *, single: bool = False
) -> list[Setting]:
    """Every mechanism under every relation, with the power to find 20 %.

    Parameters
    ----------
    epsilon, delta : float
        The claim.
    single : bool
        Tables that differ in one record, at the price of more trials; otherwise in as
        many as show most. Slow mechanisms always take groups.
    """
    settings = []
    for name, entry in MECHANISMS.items():
        one = not entry.gaussian or (single and not entry.slow)
        loss = 0.05 if name == "rare level" else delta
        mu = accountant.gdp_mu(epsilon, loss * (1.0 - entry.extra))
        group = 1 if one else bounds.best_group(mu)
        n_trials = 2 * bounds.trials_needed(mu * group)
        for relation in entry.relations:
            settings.append(
                Setting(
                    name=name,
                    relation=relation,
                    epsilon=epsilon,
                    delta=loss,
                    group=group,
                    n_trials=min(n_trials, 60_000),
                )
            )
    return settings


def fit_setting(
    model: str, relation: Relation, epsilon: float, delta: float = 1e-6, **given: Any
) -> Setting:
    """Short fits of a model, with the power to find 20 % where tables reach the claim.

    Under replace-one no pair of tables does: what is furthest apart in its gradients
    has the same Gram matrix. Such settings need about five times the trials for that.
    """
    mu = accountant.gdp_mu(epsilon, delta)
    group = bounds.best_group(mu)
    settings: dict[str, Any] = {
        "group": group,
        "n_trials": 2 * bounds.trials_needed(mu * group),
        "parameters": dict(SHORT),
        "table": dict(SMALL),
    }
    return Setting(
        name=model,
        relation=relation,
        epsilon=epsilon,
        delta=delta,
        **(settings | given),
    )


def quick(epsilon: float, delta: float = 1e-6) -> list[Setting]:
    """All mechanisms, and fits of two models under all relations: two minutes."""
    return [
        *mechanism_settings(epsilon, delta),
        *(fit_setting("linear", relation, epsilon, delta) for relation in RELATIONS),
        fit_setting("logistic", "zero-out", epsilon, delta),
    ]
