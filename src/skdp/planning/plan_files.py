"""Write plans as JSON and read them back."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from skdp.descent import averages, intercept, matrix, samplings  # noqa: F401
from skdp.descent.geometry import Geometry
from skdp.models.losses import Loss
from skdp.models.penalties import Penalty
from skdp.planning import theory
from skdp.planning.plan import Plan
from skdp.schema import Group, Layout, check

FORMAT = 1
_FIELDS = ("n_rows", "epsilon", "delta", "n_steps", "n_restarts", "neighbours")


def dumps(plan: Plan) -> str:
    """Return a plan as JSON; its average must be a named one."""
    names = [name for name, rule in averages.AVERAGES.items() if rule is plan.average]
    check(bool(names), "Only plans whose average is in AVERAGES can be written.")
    state: dict[str, Any] = {"format": FORMAT}
    state |= {name: getattr(plan, name) for name in _FIELDS}
    state["epsilon"] = "inf" if plan.epsilon == math.inf else plan.epsilon
    state |= {
        "calibration": plan.calibration,
        "average": names[0],
        "assumptions": list(plan.assumptions),
        "layout": {
            "groups": [asdict(group) for group in plan.layout.groups],
            "row_norm": plan.layout.row_norm,
        },
        "loss": plan.loss.to_dict(),
        "penalty": plan.penalty.to_dict(),
        "sampling": plan.sampling.to_dict(),
        "geometry": plan.geometry.to_dict(),
        "rate": None if plan.rate is None else asdict(plan.rate),
    }
    return json.dumps(state, indent=1, ensure_ascii=False)


# Raised by texts of other content: wrong types, too deep, too large.
_NOT_A_PLAN = (KeyError, TypeError, AttributeError, RecursionError, OverflowError)


def loads(text: str) -> Plan:
    """Read a plan from JSON; raise ValueError if it is not a plan of this version."""
    try:
        state = json.loads(text)
        check(state["format"] == FORMAT, "")
        return _read_plan(state)
    except (*_NOT_A_PLAN, ValueError) as error:
        reason = f": {error}" if isinstance(error, ValueError) and str(error) else "."
        raise ValueError(f"This is not a plan of format {FORMAT}{reason}") from None


def _read_plan(state: dict[str, Any]) -> Plan:
    groups = []
    for group in state["layout"]["groups"]:
        groups.append(Group(**(group | {"labels": tuple(group["labels"])})))
    layout = Layout(groups=tuple(groups), row_norm=state["layout"]["row_norm"])
    epsilon = state["epsilon"]
    return Plan(
        layout=layout,
        loss=Loss.from_dict(state["loss"]),
        n_rows=state["n_rows"],
        epsilon=math.inf if epsilon == "inf" else epsilon,
        delta=state["delta"],
        sampling=samplings.Sampling.from_dict(state["sampling"]),
        geometry=Geometry.from_dict(state["geometry"]),
        n_steps=state["n_steps"],
        n_restarts=state["n_restarts"],
        penalty=Penalty.from_dict(state["penalty"]),
        average=averages.AVERAGES[state["average"]],
        neighbours=state["neighbours"],
        calibration=state["calibration"],
        rate=None if state["rate"] is None else theory.Rate(**state["rate"]),
        assumptions=tuple(state["assumptions"]),
    )
