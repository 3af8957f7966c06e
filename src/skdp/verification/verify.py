"""Verify a saved model: compute again what it claims, by other means."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skdp.descent.plan_files import summary_digest
from skdp.estimators.opening import (
    QUERY_IS_STABLE,
    SCHEMA_IS_PUBLIC,
    assume_given_count,
    check_unit,
    count_given,
    describe_public,
)
from skdp.estimators.other_solvers import OWN
from skdp.estimators.saving import RecordForm, ReleaseForm
from skdp.ledger import Ledger
from skdp.privacy.queries import Kind
from skdp.privacy.selection import describe_scope, find_held_out
from skdp.schema import Categorical, Numeric, count_in_words
from skdp.solvers import SOLVERS
from skdp.verification import costs
from skdp.verification.costs import Given, read_evaluation, read_given
from skdp.verification.sensitivities import (
    MAPPED,
    RELEASES_OF,
    compare_sensitivities,
    follows_spread,
)

if TYPE_CHECKING:
    from skdp.estimators.saving import ReleaseForm, SearchForm

# ---- Compute ε from a list of releases, in closed form and from loss distributions
#
# This module is independent of the code that it checks: it does not import
# `skdp.privacy.accountant` or any code that spends a budget.


#: Number of decimal digits in which the closed form is computed.
DIGITS = 60
#: dp-accounting is reliable and takes only seconds if μ is in the range PLD_MU, δ is at
#: least PLD_DELTA, and there are at most PLD_KINDS different noise multipliers. The
#: grid of losses has a width of PLD_GRID times μ. The error is then 1e-6 for ten
#: multipliers, and the time does not depend on μ.
PLD_MU, PLD_DELTA, PLD_KINDS = (0.01, 30.0), 1e-12, 100
PLD_GRID = 1e-3
#: Largest μ for which ε is computed. For larger μ, `skdp.privacy.accountant` claims no
#: privacy.
LARGEST_MU = 1e9
#: Parameter r of the distribution of the number of trials in a random search.
SEARCH_SHAPE = 3
#: Bound on the error of the log-probability of one draw of the sampler. It is derived
#: in `skdp.privacy.randomness`.
SLACK = 2.0**-50


def closed_form_epsilon(
    releases: list[ReleaseForm], delta: float, search: SearchForm | None = None
) -> float:
    """Return the smallest ε at δ, from the closed form of the Gaussian mechanism.

    Let zᵢ be the noise multiplier of release i, which was made tᵢ times. A record takes
    part in at most the share aᵢ of them, and each cost δᵢ. Let μ² = Σ tᵢaᵢ/zᵢ², let D
    be the number of noise draws, and let η = 2⁻⁵⁰. The function solves

        Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2) = δ e^{-Dη} - Σ tᵢ δᵢ

    for ε and adds 2Dη. For a search with a random number of trials, `releases` lists
    the releases of one trial. The ε of the search then follows from the theorem of
    `skdp.privacy.selection`, with 2²⁴ draws per trial.
    """
    mp = _import_mpmath()
    with mp.workdps(DIGITS):
        squares = [
            r.times * mp.mpf(r.presence) / mp.mpf(r.noise_multiplier) ** 2
            for r in releases
        ]
        mu = mp.sqrt(mp.fsum(squares))

        def curve(epsilon: Any) -> Any:
            t, h = epsilon / mu, mu / 2
            return mp.ncdf(h - t) - mp.exp(epsilon) * mp.ncdf(-t - h)

        if mu == 0:
            return 0.0
        if mu > LARGEST_MU:  # this would take thousands of digits and minutes
            return math.inf
        draws = sum(r.times * r.n_draws for r in releases)
        slack = draws * mp.mpf(SLACK)
        if search is None or search.stop is None:
            extra = mp.fsum(r.times * mp.mpf(r.delta) for r in releases)
            left = mp.mpf(delta) * mp.exp(-slack) - extra
            if left <= 0:
                return math.inf
            return float(_find_least(lambda e: curve(e) <= left) + 2 * slack)
        stop, slack = mp.mpf(search.stop), 2**24 * mp.mpf(SLACK)
        shape = SEARCH_SHAPE
        trials = shape * (1 - stop) / stop / (1 - stop**shape) if stop < 1 else 1
        left = mp.mpf(delta) / trials * mp.exp(-slack)
        ratio = mp.mpf(0)
        if stop < 1:
            odds = mp.exp(-slack) * stop / (1 - stop)
            ratio = _find_least(lambda c: curve(c - 2 * slack) <= mp.expm1(c) * odds)
        reached = _find_least(lambda e: curve(e) <= left)
        return float(reached + 2 * slack + (shape + 1) * ratio)


def _find_least(holds: Callable[[Any], bool]) -> Any:
    """Return the smallest number ≥ 0 at and above which a condition holds."""
    mp = _import_mpmath()
    low, high = mp.mpf(0), mp.mpf(1)
    if holds(low):
        return low
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(100):
        if high - low <= mp.ldexp(high, -64):
            break
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def pld_epsilon(releases: list[ReleaseForm], delta: float) -> tuple[float | None, str]:
    """Return ε from dp-accounting's privacy loss distributions, and a description.

    If ε cannot be computed, return None and the reason.
    """
    extra = math.fsum(r.times * r.delta for r in releases)
    mu = math.sqrt(mu_squared(releases))
    kinds: Counter[float] = Counter()
    for r in releases:  # as if a record took part in all of them, with less effect
        kinds[r.noise_multiplier / math.sqrt(r.presence)] += r.times
    low, high = PLD_MU
    if not low <= mu <= high or delta - extra < PLD_DELTA:
        return None, (
            f"dp-accounting is reliable only for μ in [{low:g}, {high:g}] and δ ≥ "
            f"{PLD_DELTA:g}; here they are {mu:.3g} and {delta - extra:.3g}"
        )
    if len(kinds) > PLD_KINDS:
        return None, (
            f"dp-accounting takes too long for more than {PLD_KINDS} noise "
            f"multipliers; here there are {len(kinds)}"
        )
    try:
        epsilon = _compose_losses(tuple(kinds.items()), PLD_GRID * mu, delta - extra)
    except ModuleNotFoundError:
        return None, "dp-accounting is not installed: pip install 'skdp[verify]'"
    return epsilon, f"ε = {epsilon:.6g} by dp-accounting"


@lru_cache  # a report verifies its model too
def _compose_losses(
    kinds: tuple[tuple[float, int], ...], grid: float, delta: float
) -> float:
    """Return ε at δ of Gaussian releases, given by noise multipliers and numbers.

    Noise multipliers are already relative to the sensitivity under the record's
    neighbour relation. ADD_OR_REMOVE_ONE takes them as they are, so it is used for
    every relation.
    """
    dp = import_module("dp_accounting")
    neighbours = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    account = dp.pld.PLDAccountant(neighbours, grid)
    for noise_multiplier, times in kinds:
        one = dp.GaussianDpEvent(noise_multiplier)
        account.compose(dp.SelfComposedDpEvent(one, times))
    return float(account.get_epsilon(delta))


def mu_squared(releases: list[ReleaseForm]) -> float:
    """Return μ², the sum of a/z² over all releases.

    z is the noise multiplier of a release, and a the share of such releases that a
    record takes part in.
    """
    return math.fsum(r.times * r.presence / r.noise_multiplier**2 for r in releases)


def _import_mpmath() -> Any:
    try:
        return import_module("mpmath").mp
    except ModuleNotFoundError:
        raise ImportError(
            "Verification requires mpmath: pip install 'skdp[verify]'."
        ) from None


# ---- Compare what a saved model states twice: in its parameters and in its privacy
# record
#
# Parameters are what a user asked for, and the record, the plan and the schema are what
# was done. People read either. Without a ledger, nothing else shows that a parameter
# was changed afterwards.


def find_differences(given: Given) -> list[str]:
    """Return sentences about parameters that contradict the record or the plan."""
    return [
        f"{name} = {str(asked)[:99]!r}, but {done} was done"
        for name, asked, done in _list_contradictions(given)
    ]


def _list_contradictions(given: Given) -> Iterator[tuple[str, Any, Any]]:
    """Yield each parameter that differs from what was done, with both values."""
    asked, plan, record = given.parameters, given.plan, given.record
    unit, own = given.layout.unit, plan.get("solver", OWN)
    done: dict[str, Any] = {"neighbours": record.neighbours, "solver": own}
    if asked.get("delta") is not None:  # otherwise the fit chooses it
        done["delta"] = record.delta
    if given.search is None:  # a trial gets a part of ε
        done["epsilon"] = record.epsilon
    elif own == OWN:
        done["epsilon"] = plan.get("epsilon")
    if own == OWN:
        done["calibration"] = plan.get("calibration")
        if plan.get("penalty") == "ElasticNet":
            yield from _compare_penalty(given)
    if own == OWN and asked.get("n_steps") != "auto":
        done["n_steps"] = plan.get("n_steps")
    for name, value in done.items():
        if asked.get(name) != value:
            yield name, asked.get(name), value
    most, rows = asked.get("max_rows_per_unit", 1), asked.get("n_rows")
    try:
        check_unit(unit, max_rows_per_unit=most, neighbours=record.neighbours)
    except ValueError:
        yield "max_rows_per_unit", most, 1
        return
    if rows is not None and own == OWN:
        right = isinstance(rows, int) and rows >= 1
        if not right or count_given(rows, unit, most) != plan.get("n_rows"):
            yield "n_rows", rows, plan.get("n_rows")
    if not asked.get("look", True) and any(
        one.kind == Kind.LOOK for one in given.releases
    ):
        yield "look", False, True
    target = given.limits.target_column
    classes, ends = asked.get("classes"), asked.get("target_bounds")
    if classes is not None:
        levels = target.levels if isinstance(target, Categorical) else ()
        named = classes if isinstance(classes, list) else [classes]
        if sorted(map(repr, named)) != sorted(map(repr, _list_levels(levels))):
            yield "classes", classes, list(levels)
    if isinstance(target, Numeric) and ends not in (None, [target.low, target.high]):
        yield "target_bounds", ends, [target.low, target.high]


def _list_levels(levels: Any) -> list[Any]:
    """Return levels with Python's own types."""
    return [getattr(level, "item", lambda level=level: level)() for level in levels]


def _compare_penalty(given: Given) -> Iterator[tuple[str, Any, Any]]:
    """Yield `alpha` if it and `l1_ratio` do not give the plan's penalty."""
    found = given.plan.get("l1"), given.plan.get("l2")
    asked = given.parameters.get("alpha"), given.parameters.get("l1_ratio")
    try:
        net = given.penalty
    except (TypeError, ValueError):
        yield "alpha and l1_ratio", asked, found
        return
    if (net.l1, net.l2) != found:
        yield "alpha and l1_ratio", asked, found


def are_assumptions_right(given: Given) -> bool:
    """Return whether the record states the assumptions that follow from the fit."""
    asked, record, search = given.parameters, given.record, given.search
    unit = given.layout.unit
    bounds = asked.get("bounds") is not None
    first = [SCHEMA_IS_PUBLIC]
    if asked.get("schema") is None:
        first = [describe_public(categories, bounds) for categories in (False, True)]
    rest = assume_given_count(asked.get("n_rows"), record.neighbours, unit)
    if search is not None:
        rest += (find_held_out(unit), describe_scope(search.n_trials, search.stop))
    return any(
        record.assumptions == [one, *stable, *rest]
        for one in first
        for stable in ([], [QUERY_IS_STABLE])
    )


# ---- Check that a privacy record adds up, matches the settings, and was paid for


#: Largest relative differences at which two values of ε count as equal: for the closed
#: form, for dp-accounting (which puts losses on a grid), and for a search (which rounds
#: the μ of its trials down).
CLOSE, PLD_CLOSE, SEARCH_CLOSE = 1e-6, 1e-3, 1e-4
#: Share of μ² that DP-CD reserves for the mean squares of columns.
SMOOTHNESS = 0.1
#: What a report says without a ledger.
UNPAID = (
    "weights, standard errors, shares of rows and settings that leave no trace in the "
    "record; only a ledger's entry vouches for them"
)
#: Part of δ that is set aside for finding categories.
DISCOVERY = 0.1
#: The kinds of releases that steps of DP-SkGD make.
STEPS = (Kind.GRADIENT, Kind.MAPPED_GRADIENT)


@dataclass(frozen=True)
class Check:
    """The result of one check. `passed` is None if the check was not possible.

    If it is `required` but was not possible, the record does not count as verified.
    """

    name: str
    passed: bool | None
    found: str
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of `verify`.

    Attributes
    ----------
    claim : str
        The record's claim in words.
    claims : bool
        Whether the record claims privacy. Seeded runs and runs without noise do not.
    epsilon : float
        The spent ε according to the record.
    closed_form, pld : float or None
        The spent ε, recomputed in closed form and from privacy loss distributions. None
        if that was not possible.
    checks : tuple of Check
        The results of all checks.
    """

    claim: str
    claims: bool
    epsilon: float
    delta: float
    closed_form: float | None
    pld: float | None
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether privacy is claimed, required checks were made and no check failed."""
        right = (not c.required if c.passed is None else c.passed for c in self.checks)
        return self.claims and all(right)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole result as a dict of plain values."""
        return asdict(self) | {
            "passed": self.passed,
            "checks": [asdict(one) for one in self.checks],
        }

    def to_json(self) -> str:
        """Return the whole result as JSON, with null for an infinite ε."""
        plain = {
            key: None if value == math.inf else value
            for key, value in self.to_dict().items()
        }
        return json.dumps(plain, indent=1, ensure_ascii=False)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # for notebooks

    def __str__(self) -> str:
        words = {True: "ok", False: "FAILED", None: "not checked"}
        lines = [self.claim]
        for c in self.checks:  # one line each: no text of a file can forge another
            found = "".join(a if a.isprintable() else ascii(a)[1:-1] for a in c.found)
            lines.append(f"{words[c.passed]:>11}  {c.name}: {found}")
        failed = sum(c.passed is False for c in self.checks)
        if failed:
            many = count_in_words(failed, "check")
            lines.append(f"FAILED: {many} did not pass. Do not rely on this record.")
        elif self.passed:
            lines.append("VERIFIED: the releases add up to the claim.")
        elif self.claims:
            lines.append("NOT VERIFIED: a required check was not possible.")
        else:
            lines.append("NO CLAIM: this model is not private.")
        return "\n".join(lines)


def verify(model: Any, ledger: Any = None) -> Verification:
    """Recompute ε from a record, and compare the record with all public facts.

    Parameters
    ----------
    model : path, fitted estimator, search or evaluation
        A directory that ``save`` wrote, a model, the search that chose it, or the
        result of `skdp.evaluate`.
    ledger : Ledger or path, optional
        The ledger that was charged. It must be intact and have an entry with the digest
        of these releases, for at least the cost in the record.

    Returns
    -------
    Verification
        The result, which can be printed. ``passed`` says whether privacy is claimed and
        all checks hold. Checks that were not possible have ``passed`` None. If the
        sensitivities of a solver cannot be checked, the result has not passed.

    Raises
    ------
    ValueError
        If the directory is not one that ``save`` wrote.

    Notes
    -----
    Without a ledger, this shows that a record adds up and agrees with schema and
    settings. Anyone who can write to the directory could have written such a record.
    The ledger shows that the record belongs to this model and was paid for. Its entry
    was written at the time of the fit and has a digest of all that the saved model
    states, except what `skdp.estimators.saving.COSMETIC` lists.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> clf = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1])
    >>> skdp.verify(clf.fit(X, X[:, 0] > X[:, 1])).passed
    True
    """
    if hasattr(model, "scores") and hasattr(model, "privacy_"):
        record, digest = read_evaluation(model)
        none = Check("sensitivities", None, "not recomputed for scores")
        return _verify_record(record, [none], {}, ledger, lambda: digest)
    given = read_given(model)
    checks = [*_check_plan(given), *_check_stated(given)]
    if not _is_noiseless(given.record):
        checks += _check_releases(given)
        checks += _check_visits(given)
    return _verify_record(given.record, checks, given.plan, ledger, given.digest)


def _is_noiseless(record: RecordForm) -> bool:
    """Return whether a run claims no privacy because a release has no noise."""
    if float(record.epsilon) == math.inf:
        return True
    return not all(release.noise_multiplier for release in record.releases)


def _verify_record(
    record: RecordForm,
    checks: list[Check],
    plan: dict[str, Any],
    ledger: Any,
    digest: Callable[[], str],
) -> Verification:
    """Add the checks that apply to any record, and return the result.

    These checks recompute ε in two ways and look for the entry in the ledger.
    """
    delta, seeded, noiseless = record.delta, record.seeded, _is_noiseless(record)
    claimed = float(record.spent_epsilon)
    if seeded or noiseless:
        claim = ("seeded" if seeded else "no noise") + ": no privacy claim"
    else:
        claim = f"claim: ({claimed:.6g}, {delta:g})-differential privacy"
    closed = pld = None
    if not noiseless:
        search = record.search
        closed = closed_form_epsilon(record.releases, delta, search)
        checks.append(_check_epsilon(closed, plan, record))
        pld, why = None, "not applicable to a random search"
        if search is None or search.stop is None:
            pld, why = pld_epsilon(record.releases, delta)
        agrees = None if pld is None else _is_close(pld, closed, PLD_CLOSE)
        checks.append(Check("privacy loss distributions", agrees, why))
    if ledger is not None and not noiseless:
        checks.append(_check_entry(ledger, digest, record.releases))
    elif not noiseless:
        checks.append(Check("released values", None, UNPAID))
    return Verification(
        claim=claim,
        claims=not (seeded or noiseless),
        epsilon=claimed,
        delta=delta,
        closed_form=closed,
        pld=pld,
        checks=tuple(checks),
    )


def _check_entry(
    ledger: Any, digest: Callable[[], str], releases: list[ReleaseForm]
) -> Check:
    """Check that the ledger is intact and has an entry that paid for these releases."""
    book = ledger if isinstance(ledger, Ledger) else Ledger(Path(ledger).resolve())
    book.check()
    try:
        mine = digest()
    except ValueError as error:  # a directory that cannot be loaded
        return Check("ledger", False, str(error))
    spent = mu_squared(releases)
    extra = math.fsum(r.times * r.delta for r in releases)
    found = "no entry paid for the releases of this model"
    for entry in book.entries():
        if entry.kind != "commit" or entry.released != mine:
            continue
        found = "the entry of this model is for a smaller cost"
        if entry.mu_squared >= spent * (1 - 1e-9) and entry.delta >= extra * (1 - 1e-9):
            paid = f"entry {entry.seq} of {entry.time}, by {entry.user}"
            return Check("ledger", True, f"{paid}, purpose: {entry.purpose}")
    return Check("ledger", False, found)


def _is_close(a: float, b: float, tolerance: float) -> bool:
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-7)


def _check_epsilon(closed: float, plan: dict[str, Any], record: RecordForm) -> Check:
    """Check that the claimed ε, the ε of the releases and the budget agree."""
    claimed, budget = float(record.spent_epsilon), float(record.epsilon)
    found = f"ε = {closed:.9g} from the releases, {claimed:.9g} claimed"
    search = record.search
    right = _is_close(closed, claimed, CLOSE if search is None else SEARCH_CLOSE)
    right &= claimed <= budget * (1 + 1e-9)
    least = budget * (1 - _allow_rest(plan, record))
    spends_all = plan.get("calibration") == "exact" or "solver" in plan
    if spends_all and closed < least and _with_reserve(record) < least:
        right = False
        found += f", but the plan should spend all of ε = {budget:g}"
    return Check("closed form", right, found)


def _with_reserve(record: RecordForm) -> float:
    """Return the ε of a record as if the δ reserved for categories were all spent.

    This δ is left over if every column of unknown type turns out to contain numbers.
    """
    used = math.fsum(r.times * r.delta for r in record.releases)
    found = any(r.kind == Kind.RANGES for r in record.releases)
    unused = max(0.0, DISCOVERY * record.delta - used) if found else 0.0
    return closed_form_epsilon(record.releases, record.delta - unused, record.search)


def _allow_rest(plan: dict[str, Any], record: RecordForm) -> float:
    """Return the share of ε that an honest fit may leave unspent.

    A fit that is paid from a ledger may get slightly less than its ε, because a ledger
    allows for more noise draws. Solvers other than DP-SkGD reserve a part of δ that
    they may not need. DP-CD reserves a tenth of μ² for mean squares of columns, even if
    it releases none.
    """
    if "solver" not in plan:
        return 1e-3
    asked = any(r.kind == Kind.SQUARES for r in record.releases)
    return SMOOTHNESS if plan["solver"] == "dp_cd" and not asked else 0.02


def _check_plan(given: Given) -> Iterator[Check]:
    """Check each value of the plan against the record and the parameters."""
    plan, record, search = given.plan, given.record, given.search
    digest = record.plan_digest
    same = digest == summary_digest(plan)
    yield Check("digest of the plan", same, f"{digest[:16]}…")
    unit = given.layout.unit
    yield Check("unit", record.unit == unit, unit or "single rows")
    if "solver" in plan:
        for name in ("neighbours", "epsilon", "delta"):
            asked = given.parameters.get(name)
            if (name != "neighbours" and search) or asked is None:
                continue  # a trial gets a part of ε, and a fit may choose δ itself
            told = getattr(record, name)
            found = f"{told}" + ("" if asked == told else f", asked for {asked}")
            yield Check(name, asked == told, found)
        yield _check_loss(given)
        net = given.penalty
        same = (plan.get("l1"), plan.get("l2")) == (net.l1, net.l2)
        same &= plan.get("max_weight") == given.weight
        found = f"l1 = {net.l1:g}, l2 = {net.l2:g}, weights of at most {given.weight:g}"
        yield Check("penalty and weights", same, found)
        return
    # If a search chose the model, the model's plan has only a part of the search's ε.
    for name in (
        ("neighbours", "delta") if search else ("neighbours", "delta", "epsilon")
    ):
        claimed, planned = getattr(record, name), plan.get(name)
        same = planned == claimed
        found = f"{claimed}" + ("" if same else f", planned {planned}")
        yield Check(name, same, found)
    yield _check_loss(given)
    yield from _check_steps(given)


def _check_stated(given: Given) -> Iterator[Check]:
    """Check parameters and assumptions against the record, the plan and the schema."""
    wrong = find_differences(given)
    said = "; ".join(wrong) or "as in the record, the plan and the schema"
    yield Check("parameters", not wrong, said)
    right = are_assumptions_right(given)
    said = f"{'those' if right else 'not those'} of the parameters and the schema"
    yield Check("assumptions", right, said)


def _check_loss(given: Given) -> Check:
    """Check that the plan has the loss that the parameters and the schema imply."""
    name, bound = given.loss.kind, given.loss.slope_bound
    same = (given.plan.get("loss"), given.plan.get("slope_bound")) == (name, bound)
    return Check("loss", same, f"{name}, slopes of at most {bound:g}")


def _check_steps(given: Given) -> Iterator[Check]:
    """Check that DP-SkGD made as many releases as its plan says."""
    plan, search = given.plan, given.search
    steps = [r for r in given.releases if r.kind in STEPS]
    taken = sum(r.times for r in steps)
    grams = sum(r.times for r in given.releases if r.kind == Kind.GRAM)
    planned = plan.get("n_steps", 0) * plan.get("n_restarts", 1)
    wanted = 1 if plan.get("geometry") == "Matrix" else 0
    if plan.get("geometry") == "Sketched":  # may have no Gram matrix
        wanted = min(grams, 1)
    right = planned == given.n_iter
    if search and search.stop is None:  # other candidates' plans are not saved
        fits = count_in_words(search.n_trials, "fit")
        right &= planned + search.n_trials - 1 <= taken
        yield Check("number of steps", right, f"{taken} released in {fits}")
        right = wanted <= grams <= search.n_trials
        yield Check("releases of the Gram matrix", right, f"{grams} in {fits}")
        return
    found = f"{taken} released, {planned} planned, {given.n_iter} reported"
    yield Check("number of steps", right and taken == planned, found)
    noise = sorted({r.noise_multiplier for r in steps})
    found = ", ".join(f"{z:.6g}" for z in noise)
    yield Check("one noise multiplier for all steps", len(noise) == 1, found)
    yield Check("releases of the Gram matrix", grams == wanted, f"{grams} of {wanted}")


def _check_releases(given: Given) -> Iterator[Check]:
    """Check the releases against those that the schema, settings and solver imply."""
    solver = given.plan.get("solver", "skgd")
    if solver not in [*RELEASES_OF, *SOLVERS]:
        said = f"there is no solver {solver!r}; if it is your own, import it first"
        yield Check("sensitivities", False, said)
        return
    found, listed = compare_sensitivities(given), solver in RELEASES_OF
    good = "all agree with schema and settings"
    good = "none is too small" if solver == "skgd" else good
    if listed or found.wrong:
        yield Check("sensitivities", not found.wrong, "; ".join(found.wrong) or good)
    else:
        said = f"RELEASES_OF in verification/sensitivities.py has no entry {solver!r}"
        yield Check("sensitivities", None, said, required=True)
    if found.unknown:
        whose = (
            "those of other candidates, or not known" if given.search else "not known"
        )
        said = f"their bounds are {whose}: {'; '.join(found.unknown)}"
        # Of one fit by a listed solver, every release is known.
        foreign = given.search is not None or not listed
        yield Check("other sensitivities", None, said, required=not foreign)
    if follows_spread(given):
        said = (
            "they depend on the target's spread, which is not saved; the smallest "
            "possible spread is assumed"
        )
        yield Check("caps of the steps", None, said)
    if given.search is not None or found.wrong or found.unknown or not listed:
        return
    kinds = {release.kind for release in given.releases}
    if Kind.BATCHES in kinds:
        yield Check("cost of the batches", *costs.check_batches(given))
    if Kind.TILT in kinds:
        yield Check("cost of the tilt", *costs.check_tilt(given))
    if "tolerance" in given.plan:
        said = (
            f"{given.plan['tolerance']:.3g}, proved during the fit, not checked again"
        )
        yield Check("distance to the exact minimiser", None, said)
    if "solver" in given.plan and given.plan.keys() & {"n_steps", "n_epochs"}:
        asked = given.n_iter == _count_planned_steps(given)
        yield Check("number of steps", asked, f"{given.n_iter} reported")


def _check_visits(given: Given) -> Iterator[Check]:
    """Check how many steps of each run on public sets a record can take part in.

    The record has the profile v of each run. A row x takes part in Σ vⱼxⱼ² steps. Two
    things follow from the schema alone. The largest such sum is the number that was
    paid for. And the sum of all vⱼ is at least the number of steps, because some row
    takes part in each step in full, and no |xⱼ| exceeds 1. So a profile that forgets a
    step is noticed.
    """
    steps = [r for r in given.releases if r.presence < 1]
    runs = given.record.visits
    if not steps and not runs:
        return
    found, right = [], True
    allowed = Counter[float]()
    for run in runs:
        fits = len(run.profile) == given.layout.n_features
        most = _find_longest(given, run.profile) if fits else math.inf
        most = min(most, float(run.n_steps))
        total = math.fsum(run.profile)
        fits &= math.isclose(run.most, most, rel_tol=1e-8)
        fits &= (
            total >= run.n_steps * (1 - 1e-9) or given.plan.get("geometry") in MAPPED
        )
        right &= fits
        allowed[run.most / run.n_steps] += run.n_steps
        found.append(f"{run.most:.6g} of {run.n_steps}, {most:.6g} from the schema")
    for release in steps:
        allowed[release.presence] -= release.times
    right &= not any(allowed.values())
    right &= all(release.kind in STEPS for release in steps)
    said = "; ".join(found) or "there is no profile of the steps"
    yield Check("steps that a record can take part in", right, said)


def _find_longest(given: Given, profile: list[float]) -> float:
    """Return the largest Σ vⱼxⱼ² of a row x, for a profile v.

    Each column has a squared norm of at most 1, and all of them together have at most
    the square of the schema's row norm. The intercept comes on
    top.
    """
    best = [
        (max(profile[j] for j in group.coordinates.tolist()), group.kind == "ones")
        for group in given.layout.groups
    ]
    room = math.inf if given.layout.row_norm is None else given.layout.row_norm**2
    total = math.fsum(most for most, fixed in best if fixed)
    for most in sorted((most for most, fixed in best if not fixed), reverse=True):
        total += most * min(1.0, room)
        room = max(0.0, room - 1.0)
    return total


def _count_planned_steps(given: Given) -> int:
    """Return the planned number of steps of a solver other than DP-SkGD."""
    if "n_epochs" in given.plan:
        return int(given.number("n_epochs") * given.number("n_inner"))
    restarts = given.number("n_restarts") if "n_restarts" in given.plan else 1
    return int(given.number("n_steps") * restarts)
