"""What one record can do to each release, from the schema and the settings alone.

Each solver's releases are listed with the sensitivity that public facts imply. A record
that says less has too little noise for what it claims; one that says more is not the
record of these settings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from skdp.schema import check
from skdp.verification.given import Given

#: How much less, relatively, the grids of slopes and features make a bound.
GRID = 2.0**-14
#: Bounds that include a proved distance to a minimiser may be that much larger.
PROVED = 1.5
#: Bounds on what rounding changes may be that much larger.
ROUNDED = 1.2
#: Rounding of a float64, relatively.
U = 2.0**-53
#: Narrowest spread of a numeric target that caps can follow: half of one of 32 bins.
NARROWEST = 1.0 / 32
#: Joint columns that are wider have their means (DP-GCD) released, or their squares not
#: asked for (DP-CD).
WIDE = 8


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A kind of release that a fit makes.

    Attributes
    ----------
    what : str
        A pattern that its query matches.
    least, most : float
        Between which its sensitivity must be.
    times : int or None
        How often it is made; None if that is not known beforehand.
    noise_multiplier : float or None
        What the settings say, where they do.
    """

    what: str
    least: float
    most: float = math.inf
    times: int | None = None
    noise_multiplier: float | None = None

    @classmethod
    def exactly(
        cls,
        what: str,
        sensitivity: float,
        times: int | None = None,
        noise_multiplier: float | None = None,
    ) -> Asked:
        """One whose sensitivity is known but for the grid's rounding."""
        return cls(
            what=what,
            least=sensitivity * (1 - GRID),
            most=sensitivity * (1 + 1e-9),
            times=times,
            noise_multiplier=noise_multiplier,
        )

    def names(self, query: str, noise_multiplier: float) -> bool:
        """Whether a release is of this kind."""
        right = self.noise_multiplier is None or math.isclose(
            self.noise_multiplier, noise_multiplier, rel_tol=1e-9
        )
        return right and re.fullmatch(self.what, query) is not None

    def allows(self, sensitivity: float) -> bool:
        """Whether a sensitivity is between the two."""
        return self.least * (1 - 1e-9) <= sensitivity <= self.most


GRADIENT = r"gradient of \d+ coordinates?"
BATCHES = r"gradients of \d+ Poisson batch(es)?, .*"
GRAM = r"\d+ entries of the Gram matrix"
MINIMISER = "minimiser of the penalised loss, charged beforehand"
TILT = "objective perturbation,.*"
DISTANCE = "distance to minimiser, charged beforehand"


def before(given: Given) -> list[Asked]:
    """What any fit may release first: a count, ranges and categories, the target."""
    one = math.sqrt(given.apart)
    found = [
        Asked(what=r"counts of \d+ class(es)?", least=one, most=one * (1 + 1e-9)),
        Asked(what="number of rows", least=one, most=one * (1 + 1e-9)),
        Asked(what="histogram of the target.*", least=one, most=one * (1 + 1e-9)),
    ]
    for release in given.releases:
        told = re.fullmatch(
            r"(categories|magnitudes) of (\d+) columns?", release["query"]
        )
        if told and len(told[2]) < 9:
            size = math.sqrt(given.apart * max(1, int(told[2])))
            found.append(Asked.exactly(re.escape(release["query"]), size))
    return found


def of_skgd(given: Given) -> list[Asked]:
    """DP-SkGD: steps in a matrix metric are capped by the plan, others by the loss."""
    plan, apart = given.plan, given.apart
    halved = [
        g.kind == "dense" and g.width == 1 and not g.signed and given.intercept
        for g in given.layout.groups
        if g.kind != "ones"
    ]
    square = math.fsum(0.25 if half else 1.0 for half in halved)
    if given.layout.row_norm is not None:
        square = min(square, given.layout.row_norm**2)
    square += given.intercept
    gram = math.sqrt(apart * max(square**2 - given.intercept, 0.0))
    radius = plan.get("radius")
    cap = 0.0 if radius is None else apart * float(radius)
    if follows_spread(given):
        cap *= min(NARROWEST, given.loss.slope_bound)
    if plan.get("sampling") != "Full":  # a set has its part of the radius
        cap *= math.sqrt(1.0 / given.layout.n_features)
    return [
        Asked(what=GRAM, least=gram),
        Asked(what=f"{GRADIENT} in a matrix metric", least=cap),
        # The noise's shape is at most one.
        Asked(what=GRADIENT, least=apart * given.slope * given.single * (1 - GRID)),
    ]


def follows_spread(given: Given) -> bool:
    """Whether caps follow the released spread of the target, which is not saved."""
    return "solver" not in given.plan and any(
        r["query"].startswith("histogram of the target") for r in given.releases
    )


def of_dp_sgd(given: Given) -> list[Asked]:
    """One charge for all batches: a record's gradient is clipped to half its bound."""
    clip = given.slope * math.sqrt(given.reach()) / 2
    return [Asked.exactly(BATCHES, clip, 1)]


def of_dp_svrg(given: Given) -> list[Asked]:
    """Full gradients, and one charge for the corrections, of two gradients each."""
    size = given.slope * math.sqrt(given.reach())
    epochs = int(given.number("n_epochs"))
    z = given.number("full_noise_multiplier")
    corrections = epochs * (int(given.number("n_inner")) - 1)
    return [
        Asked.exactly(GRADIENT, given.apart * size, epochs, z),
        Asked.exactly(BATCHES, 2 * size, 1 if corrections else 0),
    ]


def of_dp_cd(given: Given) -> list[Asked]:
    """One coordinate at a time, slopes clipped; squares of columns before."""
    smoothness: Any = given.plan.get("smoothness")
    clip, d = given.number("clip"), given.layout.n_features
    check(
        isinstance(smoothness, list)
        and len(smoothness) == d
        and all(isinstance(m, float) and 0 < m < 1e100 for m in smoothness),
        f"model.json has a plan without {d} numbers of smoothness: it was changed.",
    )
    total = math.fsum(smoothness)
    bounds = [
        given.apart
        * min(given.slope, clip * math.sqrt(m / total))
        * (given.single if penalised else 1.0)
        for m, penalised in zip(smoothness, given.layout.penalised, strict=True)
    ]
    steps = Asked(
        what=GRADIENT,
        least=min(bounds) * (1 - GRID),
        most=max(bounds) * (1 + 1e-9),
        times=int(given.number("n_steps") * given.number("n_restarts")),
        noise_multiplier=given.number("noise_multiplier"),
    )
    codes = [
        j
        for group in given.layout.groups
        if group.kind == "code"
        for j in group.coordinates.tolist()
    ]
    numbers = [
        group
        for group in given.layout.groups
        if group.kind == "dense" and group.width <= WIDE
    ]
    weight = given.apart * given.weight
    single = weight * given.single
    wide = weight * math.sqrt(given.reach(at=codes)) if codes else single
    squares = Asked(
        what=GRADIENT,
        least=min(single, wide) * (1 - GRID),
        most=max(single, wide) * (1 + 1e-9),
        times=bool(codes) + sum(group.width for group in numbers),
    )
    return [steps, squares]


def of_dp_gcd(given: Given) -> list[Asked]:
    """The whole gradient in each step; means of wide joint columns before."""
    size = given.apart * math.sqrt(given.reach())
    wide = any(g.signed and g.width > WIDE for g in given.layout.groups)
    means = wide and given.intercept
    bounds = [size * given.slope, *([size * given.weight] if means else [])]
    return [
        Asked(
            what=GRADIENT,
            least=min(bounds) * (1 - GRID),
            most=max(bounds) * (1 + 1e-9),
            times=int(given.number("n_steps")) + means,
        )
    ]


def of_output_perturbation(given: Given) -> list[Asked]:
    """A minimiser moves by r·sup‖x‖ in the penalty's norm, plus what is not solved."""
    quadratic = given.quadratic()
    reach = math.sqrt(given.reach([1.0 / q for q in quadratic]))
    moved = given.apart * given.slope * reach
    rest = 2 * given.number("tolerance") + 2.0**-30 * math.sqrt(len(quadratic))
    if given.record["neighbours"] == "add-remove":  # tables of very many rows fade
        rest += moved
    z = given.number("noise_multiplier")
    return [
        Asked(
            what=MINIMISER,
            least=moved,
            most=PROVED * (moved + rest),
            times=1,
            noise_multiplier=z,
        )
    ]


def of_objective_perturbation(given: Given) -> list[Asked]:
    """The tilt hides a record's gradient; a release hides what is not solved."""
    size = given.apart * given.slope * math.sqrt(given.reach())
    away = solved_apart(given)
    return [
        Asked.exactly(TILT, size, 1),
        Asked(what=DISTANCE, least=away * (1 - 1e-6), most=away * ROUNDED, times=1),
    ]


def solved_apart(given: Given) -> float:
    """Distance of solutions of neighbouring tables that have the same tilted minimum.

    What rounding can change, by the bounds of `skdp.solvers.certified`, computed anew.
    """
    quadratic, n = given.quadratic(), int(given.number("n_rows"))
    full = max(2**24, 4 * n) if given.record["neighbours"] == "add-remove" else n
    most = 2 * full if full > n else n
    d, reach = len(quadratic), math.sqrt(given.reach([1.0 / q for q in quadratic]))
    cells = sum(g.width if g.kind == "dense" else 1 for g in given.layout.groups)
    summed = (4096 + most / 2048 + 4) * given.slope
    fixed = 2 * most * reach * (512 * (given.weight + given.slope) + summed) * U
    bend = 1.01 * given.loss.curvature * given.weight * (cells + 4) * reach
    growth = (2 * most * reach * bend + 32) * U
    floor, std = math.sqrt(min(quadratic)), given.number("noise_std")
    pull = std * (1 + 2.0**-8) * (math.sqrt(d) + 8) / floor
    start = 1.01 * most * given.weight * max(1.0, given.loss.slope_bound)
    radius = 2 * pull + math.sqrt(2 * start)
    found = 2 * 4.1 * (1.01 * fixed + 2 * growth * radius) + 16 * U * radius
    found += radius / full if most > full else 0.0
    return found + 2 * math.sqrt(d) * (std * 2.0**-35 / floor + 2.0**-31)


def of_adassp(given: Given) -> list[Asked]:
    """The Gram matrix of rows, and the gradient at zero of slopes of at most one."""
    known = given.intercept and given.record["neighbours"] != "add-remove"
    signed = any(group.signed for group in given.layout.groups)
    acute = given.record["neighbours"] == "zero-out" or not signed
    square = given.reach() ** 2 - (1.0 if known and acute else 0.0)
    moment = given.apart * given.weight * math.sqrt(given.reach())
    return [
        Asked.exactly(
            GRAM,
            math.sqrt(given.apart * square),
            1,
            given.number("gram_noise_multiplier"),
        ),
        Asked.exactly(GRADIENT, moment, 1, given.number("moment_noise_multiplier")),
    ]


#: What each solver releases; the tests run through all of `skdp.solvers`.
SOLVERS: dict[str, Callable[[Given], list[Asked]]] = {
    "skgd": of_skgd,
    "dp_sgd": of_dp_sgd,
    "dp_svrg": of_dp_svrg,
    "dp_cd": of_dp_cd,
    "dp_gcd": of_dp_gcd,
    "output_perturbation": of_output_perturbation,
    "objective_perturbation": of_objective_perturbation,
    "adassp": of_adassp,
}


@dataclass(frozen=True)
class Compared:
    """What differs, and what nothing is known of."""

    wrong: list[str]
    unknown: list[str]


def compared(given: Given) -> Compared:
    """Compare all releases of a fit with what its solver asks for.

    A search has the releases of other candidates too, whose settings are not saved:
    those of the model itself must be among them.
    """
    solver = given.plan.get("solver", "skgd")
    own = SOLVERS[solver](given) if solver in SOLVERS else []
    asked = [*own, *before(given)]
    wrong: list[str] = []
    unknown: list[str] = []
    times = dict.fromkeys(range(len(asked)), 0)
    for release in given.releases:
        query, sensitivity = release["query"], release["sensitivity"]
        kinds = [
            i
            for i, one in enumerate(asked)
            if one.names(query, release["noise_multiplier"])
        ]
        if not kinds:
            unknown.append(query)
            continue
        one = asked[kinds[0]]
        if one.allows(sensitivity):
            times[kinds[0]] += release["times"]
        elif given.search is not None:
            unknown.append(query)
        else:
            wrong.append(f"{query}: {sensitivity:.6g}, {_range(one)}")
    for i, one in enumerate(asked):
        if one.times is None:
            continue
        found = times[i]
        if found != one.times if given.search is None else found < one.times:
            wrong.append(f"{found} of {one.times} releases: {one.what}")
    return Compared(wrong, sorted(set(unknown)))


def _range(one: Asked) -> str:
    if one.most == math.inf:
        return f"at least {one.least:.6g}"
    return f"{one.least:.6g} to {one.most:.6g} follow from schema and settings"
