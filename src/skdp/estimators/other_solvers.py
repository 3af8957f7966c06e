"""Fit an estimator by an algorithm of `skdp.solvers` instead of DP-SkGD."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from skdp.descent.rule import make_penalty
from skdp.models.losses import Loss
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, check
from skdp.tables.placed import PlacedTable
from skdp.typed_files import to_json

#: Name of DP-SkGD, the default algorithm, which is planned before the data is read.
OWN = "skgd"


def find_delta_share(solver: Any) -> float:
    """Return the share of δ that a solver spends outside of Gaussian accounting."""
    return float(_find_solver(solver).delta_share)


def check_solver(model: Any, loss: Loss, table: Any = None) -> None:
    """Refuse a solver that is unknown or does not support the model's parameters.

    A solver that reads rows itself does not support a table on a cluster.
    """
    solver = _find_solver(model.solver)
    check(
        not (solver.reads_rows and isinstance(table, PlacedTable)),
        f"solver={model.solver!r} {solver.reads_rows}, so it needs all rows in one "
        "process, but a cluster keeps them on its workers. On a cluster, use one of "
        f"{_list_summing(loss)}.",
    )
    check(
        not solver.losses or loss.kind in solver.losses,
        f"solver={model.solver!r} supports only the loss {' or '.join(solver.losses)}, "
        f"got {loss.kind} from {type(model).__name__}.",
    )
    for name, default in (("sampling", "auto"), ("geometry", "auto")):
        check(
            isinstance(getattr(model, name), str) and getattr(model, name) == default,
            f"{name} is an option of solver='skgd' only, got solver={model.solver!r}.",
        )
    check(
        model.calibration == "exact",
        "calibration='paper' is an option of solver='skgd' only, got "
        f"solver={model.solver!r}.",
    )
    check(
        model.n_steps == "auto"
        or "n_steps" in inspect.signature(solver.run).parameters,
        f"n_steps is not an option of solver={model.solver!r}, got {model.n_steps!r}.",
    )


def run_solver(
    model: Any,
    records: Records,
    loss: Loss,
    n_rows: int,
    record: PrivacyRecord,
    noise: Randomness,
    engine: Any,
) -> tuple[FloatArray, dict[str, Any], int]:
    """Run the model's solver on the rest of the budget.

    Return the weights, the settings in place of a plan, and the number of steps.
    The solver uses its default settings, except for `n_steps` if the user has set it.
    """
    from skdp.solvers import Problem

    check_solver(model, loss)  # again, because inferred labels may need another loss
    net = make_penalty(records.layout, loss, model.alpha, model.l1_ratio)
    problem = Problem(
        records=records,
        loss=loss,
        n_rows=n_rows,
        penalty=net,
        neighbours=record.neighbours,
    )
    own = {} if model.n_steps == "auto" else {"n_steps": model.n_steps}
    solved = _find_solver(model.solver).run(
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
        "loss": loss.kind,
        "slope_bound": loss.slope_bound,
        "max_weight": float(records.max_weight),
        "l1": net.l1,
        "l2": net.l2,
    }
    return solved.weights, plan | _list_settings(solved.settings), solved.n_steps


def _find_solver(name: Any) -> Any:
    from skdp.solvers import SOLVERS

    check(
        isinstance(name, str) and name in SOLVERS,
        f"solver must be 'skgd' or one of {sorted(SOLVERS)}, got {name!r}.",
    )
    return SOLVERS[name]


def _list_summing(loss: Loss) -> list[str]:
    """Return the solvers for a loss that only need sums over rows."""
    from skdp.solvers import SOLVERS

    fit = {n: s for n, s in SOLVERS.items() if not s.losses or loss.kind in s.losses}
    return [OWN, *(name for name, solver in fit.items() if not solver.reads_rows)]


def _list_settings(settings: Any) -> dict[str, Any]:
    """Convert settings to numbers, texts and lists, so that they can be saved."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else to_json(value)
        for name, value in settings.items()
    }
