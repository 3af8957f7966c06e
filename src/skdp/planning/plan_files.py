"""Plans as JSON: what was decided, to be read, argued about and run elsewhere."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

import numpy as np

from skdp.descent import averages, samplings
from skdp.descent.geometry import Diagonal
from skdp.descent.intercept import InterceptOnly
from skdp.descent.matrix import Matrix
from skdp.models import losses
from skdp.models.penalties import ElasticNet
from skdp.planning import theory
from skdp.planning.plan import Plan
from skdp.schema import Group, Layout, check

FORMAT = 1
_PLAIN = ("n_rows", "epsilon", "delta", "n_steps", "n_restarts", "relation")


def dumps(plan: Plan) -> str:
    """Write a plan of the kinds that `make_plan` and `preset` make."""
    penalty = plan.penalty
    check(
        isinstance(penalty, ElasticNet),
        "Only plans with ridge and L1 penalties can be written: run this one directly.",
    )
    assert isinstance(penalty, ElasticNet)
    penalised = penalty.penalised
    names = [name for name, rule in averages.AVERAGES.items() if rule is plan.average]
    check(bool(names), "Only plans with a named average can be written.")
    state: dict[str, Any] = {"format": FORMAT}
    state |= {name: getattr(plan, name) for name in _PLAIN}
    state["epsilon"] = "inf" if plan.epsilon == math.inf else plan.epsilon
    state |= {
        "calibration": plan.calibration,
        "average": names[0],
        "assumptions": list(plan.assumptions),
        "layout": {
            "groups": [asdict(group) for group in plan.layout.groups],
            "row_norm": plan.layout.row_norm,
        },
        "loss": {"name": plan.loss.name} | _fields(plan.loss),
        "penalty": {
            "l1": penalty.l1,
            "l2": penalty.l2,
            "penalised": None if penalised is None else penalised.tolist(),
        },
        "sampling": _sampling_state(plan.sampling),
        "geometry": _geometry_state(plan.geometry),
        "rate": None if plan.rate is None else asdict(plan.rate),
    }
    return json.dumps(state, indent=1, ensure_ascii=False)


# What texts of other content raise: of other types, too deep, too large.
_NO_PLAN = (KeyError, TypeError, AttributeError, RecursionError, OverflowError)


def loads(text: str) -> Plan:
    """Read a plan; refuses what is no plan of this version, in one sentence."""
    try:
        state = json.loads(text)
        check(state["format"] == FORMAT, "")
        return _plan(state)
    except (*_NO_PLAN, ValueError) as error:
        said = f" ({error})" if isinstance(error, ValueError) and str(error) else ""
        raise ValueError(
            f"This is no plan of format {FORMAT}{said}: write it with plan_files.dumps."
        ) from None


def _plan(state: dict[str, Any]) -> Plan:
    groups = []
    for group in state["layout"]["groups"]:
        groups.append(Group(**(group | {"labels": tuple(group["labels"])})))
    layout = Layout(groups=tuple(groups), row_norm=state["layout"]["row_norm"])
    penalty = state["penalty"]
    penalised = penalty["penalised"]
    loss = dict(state["loss"])
    kind = _LOSSES[loss.pop("name")]
    epsilon = state["epsilon"]
    return Plan(
        layout=layout,
        loss=kind(**loss),
        n_rows=state["n_rows"],
        epsilon=math.inf if epsilon == "inf" else epsilon,
        delta=state["delta"],
        sampling=_sampling(state["sampling"]),
        geometry=_geometry(state["geometry"]),
        n_steps=state["n_steps"],
        n_restarts=state["n_restarts"],
        penalty=ElasticNet(
            penalty["l1"],
            penalty["l2"],
            None if penalised is None else np.array(penalised, dtype=np.float64),
        ),
        average=averages.AVERAGES[state["average"]],
        relation=state["relation"],
        calibration=state["calibration"],
        rate=None if state["rate"] is None else theory.Rate(**state["rate"]),
        assumptions=tuple(state["assumptions"]),
    )


_LOSSES: dict[str, Any] = {
    kind.name: kind
    for kind in (
        losses.Logistic,
        losses.Softmax,
        losses.Squared,
        losses.Huber,
        losses.SmoothedHinge,
        losses.Poisson,
    )
}


def _fields(loss: Any) -> dict[str, Any]:
    return asdict(loss)


def _sampling_state(sampling: samplings.Sampling) -> dict[str, Any]:
    kind = type(sampling).__name__
    if isinstance(sampling, samplings.Full):
        return {"kind": kind, "n_coordinates": sampling.n_coordinates}
    if isinstance(sampling, samplings.SingleCoordinate):
        return {"kind": kind, "probabilities": sampling.probabilities.tolist()}
    if isinstance(sampling, samplings.ShuffledBlocks):
        blocks = [block.tolist() for block in sampling.blocks]
        return {"kind": kind, "blocks": blocks, "counts": sampling.counts.tolist()}
    if isinstance(sampling, samplings.Blocks):
        q = sampling.set_probabilities
        assert q is not None
        blocks = [block.tolist() for block in sampling.blocks]
        return {"kind": kind, "blocks": blocks, "probabilities": q.tolist()}
    if isinstance(sampling, samplings.Nice):
        return {
            "kind": kind,
            "n_coordinates": sampling.n_coordinates,
            "tau": sampling.tau,
        }
    if isinstance(sampling, samplings.Independent):
        return {"kind": kind, "probabilities": sampling.inclusion.tolist()}
    raise ValueError(f"A plan with {kind} sampling cannot be written: run it directly.")


def _sampling(state: dict[str, Any]) -> samplings.Sampling:
    known = ("Full", "SingleCoordinate", "Blocks", "ShuffledBlocks", "Nice")
    kind = state["kind"]
    check(kind in (*known, "Independent"), f"unknown sampling {kind!r}")
    made: samplings.Sampling = getattr(samplings, kind)(
        **{name: value for name, value in state.items() if name != "kind"}
    )
    return made


def _geometry_state(geometry: Any) -> dict[str, Any]:
    if isinstance(geometry, (Matrix, InterceptOnly)):
        return {"kind": _KINDS[type(geometry)]} | asdict(geometry)
    assert isinstance(geometry, Diagonal)
    return {
        "kind": "diagonal",
        "smoothness": geometry.smoothness.tolist(),
        "elliptical": geometry.elliptical,
        "momentum": geometry.momentum,
        "share": geometry.share,
    }


_KINDS: dict[type[Matrix | InterceptOnly], str] = {
    Matrix: "matrix",
    InterceptOnly: "intercept",
}


def _geometry(state: dict[str, Any]) -> Matrix | InterceptOnly | Diagonal:
    fields = {name: value for name, value in state.items() if name != "kind"}
    for made, kind in _KINDS.items():
        if state["kind"] == kind:
            return made(**fields)
    check(state["kind"] == "diagonal", f"unknown geometry {state['kind']!r}")
    fields["smoothness"] = np.array(fields["smoothness"], dtype=np.float64)
    return Diagonal(**fields)
