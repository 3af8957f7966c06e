"""What more rows or budget would give, from public facts and measured tables."""

from __future__ import annotations

import math
from dataclasses import dataclass

from skdp.descent.intercept import InterceptOnly
from skdp.planning.decide import replan
from skdp.planning.forecast import forecast, range_in_words
from skdp.planning.plan import Plan
from skdp.reporting.formatting import Scale

#: Factors of rows or budget that are looked at.
FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
#: Height of the part of a panel that has the curves, in percent.
TOP, BOTTOM = 4.0, 96.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """Expected cost at another number of rows, or another ε: typical, and its range.

    `constant` says that noise would drown a model, and only a constant is fitted.
    """

    value: float
    privacy: float
    range: str
    sampling: float
    constant: bool
    here: bool

    @property
    def both(self) -> float:
        """The whole cost."""
        return self.privacy + self.sampling


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A curve over ε or over rows; all panels have one vertical scale."""

    what: str
    score: str
    points: tuple[Point, ...]
    across: Scale
    up: Scale

    @property
    def drawn(self) -> list[Point]:
        """Points of the curve: a constant has none of these costs."""
        return [point for point in self.points if not point.constant]

    @property
    def here(self) -> Point | None:
        """What this fit has, if it is on the curve."""
        return next((point for point in self.drawn if point.here), None)

    @property
    def first_constant(self) -> float | None:
        """Largest value at which only a constant would be fitted."""
        return max((p.value for p in self.points if p.constant), default=None)

    @property
    def lines(self) -> dict[str, str]:
        """Corners of each curve."""
        return {
            name: " ".join(
                f"{self.across(point.value):g},{self.up(getattr(point, name)):g}"
                for point in self.drawn
            )
            for name in ("sampling", "privacy", "both")
        }


def panels(plan: Plan) -> list[Panel]:
    """Curves over ε and over the number of rows, around a plan; no record is read."""
    if plan.epsilon == math.inf:
        return []
    # Around the plan; beyond it, if it has too little for a model.
    lift = FACTORS[-1] if isinstance(plan.geometry, InterceptOnly) else 1
    factors = [factor * lift for factor in FACTORS]
    asked = {
        "ε": [(plan.epsilon * f, plan.n_rows) for f in factors],
        "rows": [(plan.epsilon, round(plan.n_rows * f)) for f in factors],
    }
    curves = {}
    for what, facts in asked.items():
        made = [_point(plan, what, *fact) for fact in facts if fact[1] >= 1]
        curves[what] = tuple(point for point in made if point is not None)
    drawn = [p for points in curves.values() for p in points if not p.constant]
    if not drawn:
        return []
    # A curve that is nearly none would stretch the scale of the others for nothing.
    most = max(p.both for p in drawn)
    least = max(min(min(p.privacy, p.sampling) for p in drawn), most * 1e-5)
    up = Scale(low=least, high=most * 1.001, start=BOTTOM, end=TOP, log=True)
    found = []
    score = forecast(plan).score
    for what, points in curves.items():
        if len([p for p in points if not p.constant]) < 2:
            continue
        ends = points[0].value, points[-1].value
        across = Scale(low=ends[0], high=ends[1], start=14, end=96, log=True)
        found.append(Panel(what=what, score=score, points=points, across=across, up=up))
    return found


def _point(plan: Plan, what: str, epsilon: float, rows: int) -> Point | None:
    delta = min(plan.delta, 0.1 / rows)
    try:
        made = replan(plan, epsilon=epsilon, n_rows=rows, delta=delta)
    except ValueError:  # the paper's constant is for a small ε
        return None
    seen = forecast(made)
    return Point(
        value=epsilon if what == "ε" else rows,
        privacy=seen.privacy_excess,
        range=range_in_words(seen),
        sampling=seen.sampling_excess,
        constant=isinstance(made.geometry, InterceptOnly),
        here=(epsilon, rows) == (plan.epsilon, plan.n_rows),
    )
