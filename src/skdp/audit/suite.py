"""List the audits for the command line and for the report docs/evidence/audit.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skdp.audit import games
from skdp.audit.fits import fit
from skdp.audit.games import Audit
from skdp.audit.mechanisms import MECHANISMS, mechanism
from skdp.estimators.fit import ESTIMATORS, PrivateLinearModel
from skdp.privacy import accountant
from skdp.privacy.queries import NEIGHBOURS, Neighbours

Progress = Callable[[int], object] | None
#: Settings of short fits on small tables. These make the same claim as long fits.
SHORT: Mapping[str, Any] = {"n_steps": 4, "n_threads": 1}
SMALL: Mapping[str, Any] = {"n_rows": 300, "twins": 0}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The settings of one audit, either of a mechanism or of a model's fits.

    Attributes
    ----------
    name, neighbours, epsilon, delta
        The mechanism or model, and the privacy that it claims.
    group, n_trials : int
        As in `skdp.audit.fit`.
    parameters : dict
        Further parameters of the estimator.
    table : dict
        ``n_rows`` and ``twins`` of `skdp.audit.fit`. It is empty for a mechanism.
    """

    name: str
    neighbours: Neighbours
    epsilon: float
    delta: float
    group: int
    n_trials: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    table: Mapping[str, Any] = field(default_factory=dict)

    def make_estimator(self) -> PrivateLinearModel:
        """Return the model whose fits are audited."""
        return ESTIMATORS[self.name](
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            **self.parameters,
        )

    def run(self, progress: Progress = None) -> Audit:
        """Run the audit."""
        given: dict[str, Any] = {"group": self.group, "n_trials": self.n_trials}
        if self.name in ESTIMATORS:
            return fit(self.make_estimator(), **given, **self.table, progress=progress)
        return mechanism(
            self.name,
            epsilon=self.epsilon,
            delta=self.delta,
            neighbours=self.neighbours,
            progress=progress,
            **given,
        )

    def run_and_confirm(self, progress: Progress = None) -> Audit:
        """Run the audit. If it refutes the claim, return the result of a second run.

        Each of the two lower bounds refutes a correct claim by chance in at most 1 of
        1000 audits. A correct claim is therefore refuted in both runs with probability
        at most 4 in a million.
        """
        first = self.run(progress)
        return first if first.passed else self.run(progress)


def list_mechanism_settings(
    epsilon: float, delta: float = 1e-6, *, single: bool = False
) -> list[Setting]:
    """List an audit of every mechanism under each of its neighbour relations.

    Each audit has enough trials to find noise that is 20 % too small.

    Parameters
    ----------
    epsilon, delta : float
        The claim.
    single : bool
        Whether the tables differ in a single record, which takes more trials. Otherwise
        they differ in the number of records that makes the audit most sensitive. Slow
        mechanisms always use several records, and mechanisms that release decisions
        always use one.
    """
    settings = []
    for name, entry in MECHANISMS.items():
        one = not entry.gaussian or (single and not entry.slow)
        loss = 0.05 if name == "rare level" else delta
        mu = accountant.gdp_mu(epsilon, loss * (1.0 - entry.extra))
        group = 1 if one else games.best_group(mu)
        n_trials = 2 * games.trials_needed(mu * group)
        for neighbours in entry.relations:
            settings.append(
                Setting(
                    name=name,
                    neighbours=neighbours,
                    epsilon=epsilon,
                    delta=loss,
                    group=group,
                    n_trials=min(n_trials, 60_000),
                )
            )
    return settings


def make_fit_setting(
    model: str,
    neighbours: Neighbours,
    epsilon: float,
    delta: float = 1e-6,
    **given: Any,
) -> Setting:
    """Return the settings of an audit of short fits.

    The audit detects noise that is 20 % too small, provided that the sums of its two
    tables differ by as much as the stated sensitivities allow. Under replace-one no two
    tables do, because the tables whose gradients differ most have the same Gram matrix.
    Audits under replace-one therefore need about five times as many trials.
    """
    mu = accountant.gdp_mu(epsilon, delta)
    group = games.best_group(mu)
    settings: dict[str, Any] = {
        "group": group,
        "n_trials": 2 * games.trials_needed(mu * group),
        "parameters": dict(SHORT),
        "table": dict(SMALL),
    }
    return Setting(
        name=model,
        neighbours=neighbours,
        epsilon=epsilon,
        delta=delta,
        **(settings | given),
    )


def list_quick_settings(epsilon: float, delta: float = 1e-6) -> list[Setting]:
    """List audits of all mechanisms and of two models' fits (about two minutes)."""
    return [
        *list_mechanism_settings(epsilon, delta),
        *(
            make_fit_setting("linear", neighbours, epsilon, delta)
            for neighbours in NEIGHBOURS
        ),
        make_fit_setting("logistic", "zero-out", epsilon, delta),
    ]
