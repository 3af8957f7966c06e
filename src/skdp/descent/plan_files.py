"""Write plans as JSON and read them back."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, fields
from typing import Annotated, Any, Literal

from msgspec import Meta, structs

from skdp.descent import algorithm1, bounds, matrix, samplings, sketches  # noqa: F401 (registers)
from skdp.descent.geometry import Geometry
from skdp.descent.plan import Plan
from skdp.models.losses import Loss
from skdp.models.penalties import Penalty
from skdp.privacy.queries import Neighbours
from skdp.schema import Group, Layout, check
from skdp.typed_files import Count, Epsilon, Form, parse_json, refuse, to_json

FORMAT = 1
_WHAT = f"This is not a plan of format {FORMAT}"


class GroupForm(Form, frozen=True, kw_only=True):
    """The keys and types of a saved `Group`."""

    name: str
    kind: Literal["ones", "dense", "code", "hats"]
    start: int
    labels: tuple[str, ...]
    signed: bool = False
    axes: tuple[int, ...] = ()
    scale: float = 1.0
    sides: tuple[tuple[int, int], ...] = ()
    inner: tuple[float, float] = (0.0, 1.0)
    along: int = 0
    heights: tuple[float, ...] = ()


class LayoutForm(Form, frozen=True, kw_only=True):
    """The keys and types of a saved `Layout`."""

    groups: tuple[GroupForm, ...]
    row_norm: float | None = None
    unit: str | None = None


class PlanForm(Form, frozen=True, kw_only=True):
    """The keys and types of a saved `Plan`.

    The loss, penalty, sampling and geometry are saved by kind and parameters.
    """

    format: Literal[1]
    n_rows: Count
    epsilon: Epsilon
    delta: Annotated[float, Meta(ge=0, lt=1)]
    n_steps: Count
    n_restarts: Count
    neighbours: Neighbours
    calibration: Literal["exact", "paper"]
    average: str
    assumptions: list[str]
    layout: LayoutForm
    loss: dict[str, Any]
    penalty: dict[str, Any]
    sampling: dict[str, Any]
    geometry: dict[str, Any]
    rate: bounds.Rate | None
    reasons: tuple[str, ...] = ()


def dump_plan(plan: Plan) -> str:
    """Return a plan as JSON. Raise if the plan's average is not in `AVERAGES`."""
    names = [name for name, rule in algorithm1.AVERAGES.items() if rule is plan.average]
    check(bool(names), "A plan can be written only if its average is in AVERAGES.")
    state = {name: getattr(plan, name) for name in PlanForm.__struct_fields__[1:]}
    state |= {
        "n_rows": int(plan.n_rows),  # a user may have passed numpy's integers
        "n_steps": int(plan.n_steps),
        "n_restarts": int(plan.n_restarts),
        "epsilon": to_json(plan.epsilon),
        "average": names[0],
        "layout": _write_layout(plan.layout),
        "rate": None if plan.rate is None else asdict(plan.rate),
    }
    for part in ("loss", "penalty", "sampling", "geometry"):
        values = getattr(plan, part).to_dict()
        state[part] = {name: to_json(value) for name, value in values.items()}
    if not plan.reasons:
        del state["reasons"]  # as in plans without curves
    whole = {"format": FORMAT} | state
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)


def _write_layout(layout: Layout) -> dict[str, Any]:
    """Return a layout as a dict, without unused fields of curves, pairs and units."""
    state = _list_given(layout)
    if layout.unit is None:
        del state["unit"]
    state["groups"] = [_list_given(group) for group in layout.groups]
    for group in state["groups"]:
        for name in ("axes", "sides"):
            if not group[name]:
                del group[name]
        if group["scale"] == 1.0:
            del group["scale"]
        if group["inner"] == (0.0, 1.0):
            del group["inner"]
        if not group["heights"]:
            del group["along"], group["heights"]
    return state


def _list_given(made: Layout | Group) -> dict[str, Any]:
    """Return the arguments from which a layout or a group was made."""
    return {one.name: getattr(made, one.name) for one in fields(made) if one.init}


def parse_plan(text: str) -> Plan:
    """Read a plan from JSON.

    Raise ValueError if the text is not a plan of this version of the format.
    """
    form = parse_json(text, PlanForm, _WHAT)
    try:
        plan = _read_plan(form)
        same = json.loads(dump_plan(plan)) == json.loads(text)
        check(same, "it has unknown keys")  # e.g. in its loss
        return plan
    except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
        refuse(_WHAT, error)  # a part has parameters that its kind refuses


def plan_summary(plan: Any) -> dict[str, Any]:
    """Summarise a plan in numbers and names.

    A loaded model has this summary instead of a plan. The ledger's entry contains the
    same ``digest`` as the summary.
    """
    if isinstance(plan, dict):
        return plan
    penalty, level_cap = plan.penalty, getattr(plan.geometry, "level_cap", math.inf)
    found = {
        "n_rows": int(plan.n_rows),
        "epsilon": to_json(plan.epsilon),
        "delta": plan.delta,
        "neighbours": plan.neighbours,
        "calibration": plan.calibration,
        "loss": plan.loss.kind,
        "slope_bound": plan.loss.slope_bound,
        "sampling": type(plan.sampling).__name__,
        "geometry": type(plan.geometry).__name__,
        "radius": getattr(plan.geometry, "radius", None),
        "target_share": getattr(plan.geometry, "target_share", 0.0),
        "level_share": getattr(plan.geometry, "level_share", 0.0),
        "level_cap": None if level_cap == math.inf else level_cap,
        "n_steps": int(plan.n_steps),
        "n_restarts": int(plan.n_restarts),
        "average": getattr(plan.average, "__name__", "average"),
        "penalty": type(penalty).__name__,
        "l1": getattr(penalty, "l1", None),
        "l2": getattr(penalty, "l2", None),
        "digest": plan_digest(plan),
    }
    return {name: to_json(value) for name, value in found.items()}


def find_geometry(summary: dict[str, Any]) -> type[Geometry]:
    """Return the class of the geometry that `plan_summary` named.

    The base class stands for a geometry that is not registered, and for the plan of
    another solver, which has no geometry.
    """
    by_name = {found.__name__: found for found in Geometry.kinds.values()}
    return by_name.get(str(summary.get("geometry")), Geometry)


def plan_digest(plan: Any) -> str | None:
    """Return the SHA-256 of a plan's JSON, or None if the plan cannot be written.

    A plan cannot be written if it is only a summary, if a user defined one of its
    parts, or if its average is not in `AVERAGES`.
    """
    if isinstance(plan, dict):
        return None
    try:
        return hashlib.sha256(plan.to_json().encode()).hexdigest()
    except ValueError:
        return None


def summary_digest(summary: dict[str, Any]) -> str:
    """Return the SHA-256, in hexadecimal, of the summary of a plan.

    The digest does not depend on the order of the entries.
    """
    text = json.dumps(summary, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _read_plan(form: PlanForm) -> Plan:
    given = form.layout
    groups = tuple(Group(**structs.asdict(group)) for group in given.groups)
    layout = Layout(groups=groups, row_norm=given.row_norm, unit=given.unit)
    geometry = Geometry.from_dict(_read_part(form.geometry))
    directions = geometry.count_directions(layout)
    # A sampling makes arrays of the size that the file states.
    stated = form.sampling.get("n_coordinates", directions)
    check(stated == directions, f"its sampling must have {directions} coordinates")
    return Plan(
        layout=layout,
        loss=Loss.from_dict(_read_part(form.loss)),
        n_rows=form.n_rows,
        epsilon=float(form.epsilon),
        delta=form.delta,
        sampling=samplings.Sampling.from_dict(_read_part(form.sampling)),
        geometry=geometry,
        n_steps=form.n_steps,
        n_restarts=form.n_restarts,
        penalty=Penalty.from_dict(_read_part(form.penalty)),
        average=algorithm1.AVERAGES[form.average],
        neighbours=form.neighbours,
        calibration=form.calibration,
        rate=form.rate,
        assumptions=tuple(form.assumptions),
        reasons=tuple(form.reasons),
    )


def _read_part(state: dict[str, Any]) -> dict[str, Any]:
    """Return a saved part with the strings "inf" and "-inf" replaced by numbers."""
    infinite = ("inf", "-inf")
    return {
        name: float(value) if isinstance(value, str) and value in infinite else value
        for name, value in state.items()
    }
