"""Forecast the effect of more rows or a larger budget, for the report page.

Forecasts use public facts and experience with other tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from skdp.planning.decide import replan
from skdp.planning.forecast import forecast, format_range, linearise_cost
from skdp.planning.plan import Plan
from skdp.reporting.formatting import Axis

#: Factors by which the number of rows or the budget is multiplied.
FACTORS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16)
#: Vertical positions of the largest and the smallest value, in percent of the panel.
TOP, BOTTOM = 4.0, 96.0


@dataclass(frozen=True, kw_only=True)
class Point:
    """The forecast for one number of rows, or for one ε.

    Attributes
    ----------
    value : float
        The number of rows, or ε.
    privacy, sampling : float
        The expected cost of privacy, and the expected cost of having only this many
        rows.
    range : str
        The likely range of the cost of privacy.
    constant : bool
        Whether only a constant would be fitted, because the noise would hide anything
        else.
    here : bool
        Whether this point has the rows and the budget of the fit itself.
    """

    value: float
    privacy: float
    range: str
    sampling: float
    constant: bool
    here: bool

    @property
    def both(self) -> float:
        """The cost of privacy plus the cost of sampling."""
        return self.privacy + self.sampling


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Curves of the expected cost over ε or over the number of rows.

    All panels of a page have the same vertical scale.
    """

    what: str
    score: str
    points: tuple[Point, ...]
    across: Axis
    up: Axis

    @property
    def drawn(self) -> list[Point]:
        """The points of the curves, except those at which only a constant is fitted."""
        return [point for point in self.points if not point.constant]

    @property
    def here(self) -> Point | None:
        """The point of the fit itself, or None if it is not on the curves."""
        return next((point for point in self.drawn if point.here), None)

    @property
    def first_constant(self) -> float | None:
        """The largest ε or number of rows that allows only a constant, or None."""
        return max((p.value for p in self.points if p.constant), default=None)

    @property
    def lines(self) -> dict[str, str]:
        """The positions of each curve's points, as text for SVG."""
        return {
            name: " ".join(
                f"{self.across(point.value):g},{self.up(getattr(point, name)):g}"
                for point in self.drawn
            )
            for name in ("sampling", "privacy", "both")
        }


def panels(plan: Plan) -> list[Panel]:
    """Return panels with curves over ε and over the number of rows.

    No record is read. A panel with fewer than two points is left out. There are no
    panels if the plan has no noise or no forecast.
    """
    if plan.epsilon == math.inf or linearise_cost(plan) is None:
        return []
    # Show values around the values of the plan. If its rows and budget allow only a
    # constant model, show larger values.
    lift = FACTORS[-1] if plan.geometry.is_constant else 1
    factors = [factor * lift for factor in FACTORS]
    asked = {
        "ε": [(plan.epsilon * f, plan.n_rows) for f in factors],
        "rows": [(plan.epsilon, round(plan.n_rows * f)) for f in factors],
    }
    curves = {}
    for what, facts in asked.items():
        made = [_make_point(plan, what, *fact) for fact in facts if fact[1] >= 1]
        curves[what] = tuple(point for point in made if point is not None)
    drawn = [p for points in curves.values() for p in points if not p.constant]
    if not drawn:
        return []
    # Cut off values near zero. On a log scale they would flatten all other curves.
    most = max(p.both for p in drawn)
    least = max(min(min(p.privacy, p.sampling) for p in drawn), most * 1e-5)
    up = Axis(low=least, high=most * 1.001, start=BOTTOM, end=TOP, log=True)
    found = []
    score = forecast(plan).score
    for what, points in curves.items():
        if len([p for p in points if not p.constant]) < 2:
            continue
        ends = points[0].value, points[-1].value
        across = Axis(low=ends[0], high=ends[1], start=14, end=96, log=True)
        found.append(Panel(what=what, score=score, points=points, across=across, up=up))
    return found


def _make_point(plan: Plan, what: str, epsilon: float, rows: int) -> Point | None:
    delta = min(plan.delta, 0.1 / rows)
    try:
        made = replan(plan, epsilon=epsilon, n_rows=rows, delta=delta)
    except ValueError:  # the paper's formula needs a small ε
        return None
    seen = forecast(made)
    return Point(
        value=epsilon if what == "ε" else rows,
        privacy=seen.privacy_excess,
        range=format_range(seen),
        sampling=seen.sampling_excess,
        constant=made.geometry.is_constant,
        here=(epsilon, rows) == (plan.epsilon, plan.n_rows),
    )
