"""Compute the sensitivity of each release from the schema and the settings alone.

This module lists each solver's releases with the sensitivity that public facts imply.
If a privacy record states a smaller sensitivity, the noise was too small for the claim.
If it states a larger one, the record belongs to other settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from skdp.estimators.saving import ReleaseForm
from skdp.privacy.discovery import LEVEL_PARTS, N_SHARES, TEXT
from skdp.privacy.queries import Kind
from skdp.schema import Categorical, Group, Numeric, check
from skdp.verification.costs import Given, bound_solver_error

#: Rounding slopes and features to a grid lowers a bound by at most this fraction.
GRID = 2.0**-14
#: The recorded sensitivity of a minimiser may be this many times the one computed here.
PROVED = 1.5
#: A recorded bound on rounding errors may be this many times the bound computed here.
ROUNDED = 1.2
#: Number of bins of a histogram of the target, and of one of the weights.
BINS = 32
#: Number of bins of the first histogram of a number that a look releases.
LOOK_BINS = 32
#: Caps on gradients may be multiplied by the released spread of a numeric target. This
#: is the smallest possible spread, half the width of a bin.
NARROWEST = 1.0 / BINS
#: A joint column is wide if it has more coordinates than this. For wide columns DP-GCD
#: releases means, and DP-CD does not release squares.
WIDE = 8
#: Geometries of DP-SkGD whose steps are in a matrix metric, and never plain gradients.
MAPPED = ("Matrix", "Sketched", "InterceptOnly")


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Releases of one kind that a fit makes.

    Attributes
    ----------
    kind : Kind
        The kind of the releases.
    least, most : float
        The range in which the sensitivity must lie.
    among : tuple of float
        The possible sensitivities, apart from rounding, if there are only a few.
    times : int or None
        The number of such releases, or None if it is not known.
    noise_multiplier : float or None
        The noise multiplier, or None if the settings do not contain it.
    n_draws : int or None
        The number of noise draws of a release, or None if it is not known.
    n_columns : int
        The number of columns, in each of which a record counts once.
    """

    kind: Kind
    least: float
    most: float = math.inf
    among: tuple[float, ...] = ()
    times: int | None = None
    noise_multiplier: float | None = None
    n_draws: int | None = None
    n_columns: int = 0

    @classmethod
    def at(
        cls,
        kind: Kind,
        sensitivity: float,
        times: int | None = None,
        noise_multiplier: float | None = None,
    ) -> Expected:
        """Return releases with one known sensitivity, apart from rounding."""
        return cls(
            kind=kind,
            least=sensitivity * (1 - GRID),
            most=sensitivity * (1 + 1e-9),
            times=times,
            noise_multiplier=noise_multiplier,
        )

    def matches(self, release: ReleaseForm) -> bool:
        """Return whether a release is one of these."""
        right = self.noise_multiplier is None or math.isclose(
            self.noise_multiplier, release.noise_multiplier, rel_tol=1e-9
        )
        right &= self.n_draws in (None, release.n_draws)
        right &= self.n_columns == release.n_columns
        return right and release.kind == self.kind

    def allows(self, sensitivity: float) -> bool:
        """Return whether a recorded sensitivity agrees with the expected one."""
        least, room = (1 - GRID) * (1 - 1e-9), 1 + 1e-9
        known = any(a * least <= sensitivity <= a * room for a in self.among)
        inside = self.least * (1 - 1e-9) <= sensitivity <= self.most
        return inside and (known or not self.among)


def list_first_releases(given: Given) -> list[Expected]:
    """List the first releases of a fit: counts, ranges, categories and target."""
    target, asked, plan = given.schema.target_column, given.parameters, given.plan
    n_classes = len(target.levels) if isinstance(target, Categorical) else 0
    counted = given.record.neighbours == "add-remove" and asked.get("n_rows") is None
    look = _expect_look(given, counted)
    counted &= given.profile is None  # a look counts the rows too
    balanced = asked.get("class_weight") == "balanced"
    geometry, starts = plan.get("geometry"), None
    if geometry in (*MAPPED, "Diagonal"):  # a user's own geometry may do as it likes
        starts = int(bool(plan.get("target_share")))
        starts *= given.intercept or geometry != "Diagonal"
    kind = Kind.CLASS_COUNTS if given.loss.n_classes else Kind.TARGET_HISTOGRAM
    n_bins = given.loss.n_classes or BINS
    found = [
        *look,
        _expect_counts(given, Kind.ROW_COUNT, 1, times=int(counted)),
        _expect_counts(given, Kind.CLASS_WEIGHTS, n_classes, times=int(balanced)),
        _expect_counts(given, Kind.WEIGHT_HISTOGRAM, BINS),
        _expect_counts(given, kind, n_bins, times=starts),
    ]
    # A record has at most one category of a column, or as many as its person.
    most = int(given.apart) * (LEVEL_PARTS if given.layout.unit else 1)
    bins = {Kind.RANGES: TEXT + 1, Kind.KNOT_SHARES: N_SHARES, Kind.CATEGORIES: most}
    each = {(r.kind, r.n_columns) for r in given.releases if r.kind in bins}
    return found + [
        _expect_counts(given, kind, n * bins[kind], n_columns=n)
        for kind, n in sorted(each)
    ]


def _expect_look(given: Given, counted: bool) -> list[Expected]:
    """Return the releases of a look, which divide counts by the roots of weights.

    Numbers weigh 1, categories and classes ¼, and a numeric target 4. The private
    number of records has three tenths of the sum of all weights. The second release has
    the numbers whose histogram was replaced by one with other edges. Where rows are
    few, the target is looked at once or twice by itself instead.
    """
    weights, draws = [], 1 if counted else 0
    finer, finer_draws = [], 0
    target_draws = [LOOK_BINS + 4 + counted]
    alone = any(one.kind == Kind.TARGET_LOOK for one in given.releases)
    columns = {**given.limits.columns, "": given.limits.target_column}
    for name, column in columns.items():
        if isinstance(column, Numeric) and column.bins is None:
            weights.append(1.0 if name else 4.0)
            draws += LOOK_BINS + 4
            if given.profile is not None:
                edges = given.profile.numbers[name].edges.tolist()
                even = list(range(0, edges[-1] + 1, edges[-1] // LOOK_BINS))
                if edges != even and alone and not name:
                    target_draws.append(len(edges) + 3 + counted)
                elif edges != even:
                    finer.append(weights[-1])
                    finer_draws += len(edges) + 3
        elif isinstance(column, (Numeric, Categorical)):
            weights.append(0.25)
            draws += column.width + 1
    squares = [math.fsum(weights) / (0.7 if counted else 1.0), math.fsum(finer)]
    reach = [math.sqrt(given.apart * square) for square in squares]
    target = math.sqrt(given.apart / (0.7 if counted else 1.0))
    # Which columns the trials of a search looked at again is not known.
    known = given.search is None
    return [
        Expected(
            kind=Kind.LOOK,
            least=reach[0] * (1 - 1e-9),
            most=reach[0] * (1 + 1e-9),
            times=int(given.profile is not None) if known else None,
            n_draws=draws,
        ),
        Expected(
            kind=Kind.FINER_LOOK,
            least=(reach[1] if known else math.sqrt(given.apart)) * (1 - 1e-9),
            most=reach[1] * (1 + 1e-9) if known else math.inf,
            times=int(bool(finer)) if known else None,
            n_draws=finer_draws if known else None,
        ),
        *(
            Expected(
                kind=Kind.TARGET_LOOK,
                least=target * (1 - 1e-9),
                most=target * (1 + 1e-9),
                times=target_draws.count(n) * alone if known else None,
                n_draws=n if known else None,
            )
            for n in dict.fromkeys(target_draws)
        ),
    ]


def _expect_counts(
    given: Given,
    kind: Kind,
    n_draws: int,
    *,
    times: int | None = None,
    n_columns: int = 0,
) -> Expected:
    """Return counts to which a record adds one, or one in each of several columns.

    In a search, other candidates count too, so it is not known how often.
    """
    size = math.sqrt(given.apart * max(1, n_columns))
    return Expected(
        kind=kind,
        least=size,
        most=size * (1 + 1e-9),
        times=times if given.search is None else None,
        n_draws=n_draws,
        n_columns=n_columns,
    )


def list_skgd(given: Given) -> list[Expected]:
    """List the releases of DP-SkGD. Caps or the loss bound its gradients."""
    plan, apart = given.plan, given.apart
    square = math.fsum(
        _bound_centred(g) * g.scale**2 if given.intercept else g.scale**2
        for g in given.layout.groups
        if g.kind != "ones"
    )
    if given.layout.row_norm is not None:
        square = min(square, given.layout.row_norm**2)
    square += given.intercept
    known = given.intercept and given.layout.unit is None  # the sum of ones
    gram = math.sqrt(apart * max(square**2 - known, 0.0))
    radius = plan.get("radius")
    cap = 0.0 if radius is None else apart * float(radius)
    if follows_spread(given):
        cap *= min(NARROWEST, given.loss.slope_bound)
    if plan.get("sampling") != "Full":  # a set of coordinates has a part of the radius
        cap *= math.sqrt(1.0 / given.layout.n_features)
    level = plan.get("level_cap")
    least = given.loss.slope_bound if level is None else float(level)
    if follows_spread(given):
        least *= NARROWEST
    least = apart * given.weight * min(least, given.loss.slope_bound)
    return [
        Expected(kind=Kind.GRAM, least=gram),
        Expected(
            kind=Kind.MAPPED_GRADIENT,
            least=cap,
            times=0 if plan.get("geometry") == "Diagonal" else None,
        ),
        Expected(
            kind=Kind.LEVEL,
            least=least * (1 - GRID),
            most=apart * given.slope * (1 + 1e-9),
            times=1 if plan.get("level_share") else 0,
        ),
        # Some coordinates may have less noise, which only raises the sensitivity.
        Expected(
            kind=Kind.GRADIENT,
            least=apart * given.slope * given.single * (1 - GRID),
            times=0 if plan.get("geometry") in MAPPED else None,
        ),
    ]


def _bound_centred(group: Group) -> float:
    """Return the largest squared norm of a column's coordinates after centring.

    A number in [a, b] is at most (b - a)/2 from the middle, which is rounded to the
    grid. The w hats of a curve or pair have
    a sum s ≤ 1 and a squared norm of at most s². Subtracting c from each of them lowers
    this bound by 2cs - wc². The result is convex in s, so s = 0 or s = 1 is the worst.
    """
    if group.kind == "dense":
        single = group.width == 1 and not group.signed
        return (group.inner[1] - group.inner[0]) ** 2 / 4 if single else 1.0
    if group.kind == "hats":
        c = (2**14 // group.width) / 2**14
        return max((s - c) ** 2 + (group.width - 1) * c * c for s in (0.0, 1.0))
    return 1.0


def follows_spread(given: Given) -> bool:
    """Return whether caps on gradients depend on a released spread of the target.

    The released spread is not saved.
    """
    return "solver" not in given.plan and any(
        r.kind == Kind.TARGET_HISTOGRAM for r in given.releases
    )


def list_dp_sgd(given: Given) -> list[Expected]:
    """List DP-SGD's single charge for all batches.

    Gradients are clipped to half their bound.
    """
    clip = given.slope * math.sqrt(given.reach()) / 2
    return [Expected.at(Kind.BATCHES, clip, 1)]


def list_dp_svrg(given: Given) -> list[Expected]:
    """List DP-SVRG's full gradients and its single charge for all corrections.

    A correction is a difference of two gradients.
    """
    size = given.slope * math.sqrt(given.reach())
    epochs = int(given.number("n_epochs"))
    z = given.number("full_noise_multiplier")
    corrections = epochs * (int(given.number("n_inner")) - 1)
    return [
        Expected.at(Kind.GRADIENT, given.apart * size, epochs, z),
        Expected.at(Kind.BATCHES, 2 * size, 1 if corrections else 0),
    ]


def list_dp_cd(given: Given) -> list[Expected]:
    """List DP-CD's releases: mean squares of columns, and one derivative per step."""
    smoothness: Any = given.plan.get("smoothness")
    clip, d = given.number("clip"), given.layout.n_features
    check(
        isinstance(smoothness, list)
        and len(smoothness) == d
        and all(isinstance(m, float) and 0 < m < 1e100 for m in smoothness),
        f"The plan in model.json was changed: it must have {d} smoothness values.",
    )
    total = math.fsum(smoothness)
    bounds = [
        given.apart
        * min(given.slope, clip * math.sqrt(m / total))
        * (given.single if penalised else 1.0)
        for m, penalised in zip(smoothness, given.layout.penalised, strict=True)
    ]
    steps = Expected(
        kind=Kind.GRADIENT,
        least=min(bounds) * (1 - GRID),
        most=max(bounds) * (1 + 1e-9),
        among=tuple(bounds),
        times=int(given.number("n_steps") * given.number("n_restarts")),
        noise_multiplier=given.number("noise_multiplier"),
    )
    codes = [
        j
        for group in given.layout.groups
        if group.kind in ("code", "hats")
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
    squares = Expected(
        kind=Kind.SQUARES,
        least=min(single, wide) * (1 - GRID),
        most=max(single, wide) * (1 + 1e-9),
        times=bool(codes) + sum(group.width for group in numbers),
    )
    return [steps, squares]


def list_dp_gcd(given: Given) -> list[Expected]:
    """List DP-GCD's releases: means of wide columns, and a full gradient per step."""
    size = given.apart * math.sqrt(given.reach())
    wide = any(g.signed and g.width > WIDE for g in given.layout.groups)
    means = wide and given.intercept
    n_steps = int(given.number("n_steps"))
    return [
        Expected.at(Kind.GRADIENT, size * given.slope, n_steps),
        Expected.at(Kind.MEANS, size * given.weight, int(means)),
    ]


def list_dp_sega(given: Given) -> list[Expected]:
    """List DP-SEGA's releases: the gradient of one column per step."""
    size, z = given.apart * given.slope, given.number("noise_multiplier")
    steps = Expected.at(Kind.GRADIENT, size, int(given.number("n_steps")), z)
    return [replace(steps, least=steps.least * given.single)]


def list_output_perturbation(given: Given) -> list[Expected]:
    """List the only release of output perturbation, the minimiser.

    The release's sensitivity is at least the distance by which one record can move the
    exact minimiser. It also includes the solver's tolerance and rounding.
    """
    quadratic = given.quadratic()
    reach = math.sqrt(given.reach([1.0 / q for q in quadratic]))
    moved = given.apart * given.slope * reach
    rest = 2 * given.number("tolerance") + 2.0**-30 * math.sqrt(len(quadratic))
    if given.record.neighbours == "add-remove":  # solutions of long tables are shrunk
        rest += moved
    z = given.number("noise_multiplier")
    return [
        Expected(
            kind=Kind.MINIMISER,
            least=moved,
            most=PROVED * (moved + rest),
            times=1,
            noise_multiplier=z,
        )
    ]


def list_objective_perturbation(given: Given) -> list[Expected]:
    """List the releases of objective perturbation.

    The first is the tilt, a random linear term that is added to the objective. The
    second covers the distance of the computed minimiser from the exact one.
    """
    size = given.apart * given.slope * math.sqrt(given.reach())
    away = bound_solver_error(given)
    return [
        Expected.at(Kind.TILT, size, 1),
        Expected(
            kind=Kind.DISTANCE,
            least=away * (1 - 1e-6),
            most=away * ROUNDED,
            times=1,
        ),
    ]


def list_adassp(given: Given) -> list[Expected]:
    """List AdaSSP's releases: the Gram matrix, and the gradient at zero weights.

    At zero weights, slopes are at most 1.
    """
    known = given.intercept and given.record.neighbours != "add-remove"
    known = known and given.layout.unit is None
    signed = any(group.signed for group in given.layout.groups)
    acute = given.record.neighbours == "zero-out" or not signed
    square = given.reach() ** 2 - (1.0 if known and acute else 0.0)
    moment = given.apart * given.weight * math.sqrt(given.reach())
    return [
        Expected.at(
            Kind.GRAM,
            math.sqrt(given.apart * square),
            1,
            given.number("gram_noise_multiplier"),
        ),
        Expected.at(Kind.MOMENTS, moment, 1, given.number("moment_noise_multiplier")),
    ]


#: Functions that list each solver's releases. A test checks that none is missing.
RELEASES_OF: dict[str, Callable[[Given], list[Expected]]] = {
    "skgd": list_skgd,
    "dp_sgd": list_dp_sgd,
    "dp_svrg": list_dp_svrg,
    "dp_cd": list_dp_cd,
    "dp_gcd": list_dp_gcd,
    "dp_sega": list_dp_sega,
    "output_perturbation": list_output_perturbation,
    "objective_perturbation": list_objective_perturbation,
    "adassp": list_adassp,
}


@dataclass(frozen=True)
class Comparison:
    """The releases with a wrong sensitivity or count, and those of an unknown kind."""

    wrong: list[str]
    unknown: list[str]


def compare_sensitivities(given: Given) -> Comparison:
    """Compare the recorded releases with those that the solver should have made.

    The record of a search also contains the releases of other candidates, whose
    settings are not saved. The releases of the chosen model must be among them.
    """
    solver = given.plan.get("solver", "skgd")
    own = RELEASES_OF[solver](given) if solver in RELEASES_OF else []
    asked = [*own, *list_first_releases(given)]
    wrong: list[str] = []
    unknown: list[str] = []
    times = dict.fromkeys(range(len(asked)), 0)
    for release in given.releases:
        query, sensitivity = release.query, release.sensitivity
        at = next((i for i, one in enumerate(asked) if one.matches(release)), None)
        if at is None:
            unknown.append(f"{query} ({release.kind})")
            continue
        one = asked[at]
        if one.allows(sensitivity):
            times[at] += release.times
        elif given.search is not None:
            unknown.append(f"{query} ({release.kind})")
        else:
            wrong.append(f"{query}: {sensitivity:.6g}, {_describe_range(one)}")
    for i, one in enumerate(asked):
        if one.times is None:
            continue
        found = times[i]
        if found != one.times if given.search is None else found < one.times:
            wrong.append(f"{found} found, {one.times} expected: {one.kind}")
    return Comparison(wrong, sorted(set(unknown)))


def _describe_range(one: Expected) -> str:
    if one.most == math.inf:
        return f"expected at least {one.least:.6g}"
    return f"expected {one.least:.6g} to {one.most:.6g}, from schema and settings"
