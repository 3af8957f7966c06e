"""solver="…": another algorithm than DP-SkGD behind an estimator."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np

from skdp.models.losses import Loss
from skdp.planning.decide import make_penalty
from skdp.planning.plan import Plan
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.randomness import Randomness
from skdp.schema import check
from skdp.typed_files import to_json

#: The estimators' own algorithm, which is planned beforehand.
OWN = "skgd"


class Outcome(NamedTuple):
    """Weights, what they cost, what was decided and how many steps were taken."""

    weights: Any
    record: PrivacyRecord
    plan: Plan | dict[str, Any]
    n_steps: int


def delta_share(model: Any) -> float:
    """Part of δ that the model's solver charges beside μ."""
    return 0.0 if model.solver == OWN else _solver(model.solver).delta_share


def refuse_unfit(model: Any, loss: Loss) -> None:
    """Raise for a solver that is unknown or makes no sense here."""
    if model.solver == OWN:
        return
    solver = _solver(model.solver)
    check(
        not solver.losses or loss.name in solver.losses,
        f"solver={model.solver!r} fits the loss {' or '.join(solver.losses)} only. Got "
        f"{loss.name} of {type(model).__name__}: take solver='skgd'.",
    )
    for name, default in (("sampling", "auto"), ("geometry", "auto")):
        check(
            isinstance(getattr(model, name), str) and getattr(model, name) == default,
            f"{name} belongs to solver='skgd'. Got solver={model.solver!r}: leave it.",
        )
    check(
        model.calibration == "exact",
        "calibration='paper' is that of solver='skgd'. Got "
        f"solver={model.solver!r}: call skdp.solvers.{model.solver} for printed noise.",
    )
    check(
        model.n_steps == "auto"
        or "n_steps" in inspect.signature(solver.run).parameters,
        f"solver={model.solver!r} takes no n_steps. Got {model.n_steps!r}: leave it.",
    )


def solve(
    model: Any,
    records: Records,
    loss: Loss,
    n_rows: int,
    record: PrivacyRecord,
    noise: Randomness,
    engine: Any,
) -> Outcome:
    """Spend what is left of a record by the model's solver, with its own defaults."""
    from skdp.solvers import Problem

    refuse_unfit(model, loss)  # again: labels that were found may ask for another loss
    net = make_penalty(records.layout, loss, model.alpha, model.l1_ratio)
    problem = Problem(
        records=records,
        loss=loss,
        n_rows=n_rows,
        penalty=net,
        neighbours=record.neighbours,
    )
    own = {} if model.n_steps == "auto" else {"n_steps": model.n_steps}
    solved = _solver(model.solver).run(
        problem,
        epsilon=record.epsilon,
        delta=record.delta,
        noise=noise,
        record=record,
        engine=engine,
        **own,
    )
    plan = {
        "solver": model.solver,
        "n_rows": int(n_rows),
        "loss": loss.name,
        "slope_bound": loss.slope_bound,
        "max_weight": float(records.max_weight),
        "l1": net.l1,
        "l2": net.l2,
    }
    return Outcome(
        solved.weights, record, plan | _plain(solved.settings), solved.n_steps
    )


def _solver(name: Any) -> Any:
    from skdp.solvers import SOLVERS

    check(
        isinstance(name, str) and name in SOLVERS,
        f"solver must be 'skgd' or one of {sorted(SOLVERS)}. Got {name!r}: choose one.",
    )
    return SOLVERS[name]


def _plain(settings: Any) -> dict[str, Any]:
    """Settings as numbers, texts and lists, so that they can be saved."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else to_json(value)
        for name, value in settings.items()
    }
