"""Check that a privacy record adds up, matches the settings, and was paid for."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skdp.estimators.privacy_json import RecordForm, ReleaseForm
from skdp.ledger import Ledger
from skdp.planning.plan_files import summary_digest
from skdp.schema import count_in_words
from skdp.solvers import SOLVERS
from skdp.verification import costs
from skdp.verification.given import Given, read, read_evaluation
from skdp.verification.independent_epsilon import (
    closed_form_epsilon,
    mu_squared,
    pld_epsilon,
)
from skdp.verification.sensitivities import RELEASES_OF, compare, follows_spread
from skdp.verification.stated import are_assumptions_right, find_differences

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
    given = read(model)
    checks = [*_check_plan(given), *_check_stated(given)]
    if not _is_noiseless(given.record):
        checks += _check_releases(given)
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
        agrees = None if pld is None else _close(pld, closed, PLD_CLOSE)
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


def _close(a: float, b: float, tolerance: float) -> bool:
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-7)


def _check_epsilon(closed: float, plan: dict[str, Any], record: RecordForm) -> Check:
    """Check that the claimed ε, the ε of the releases and the budget agree."""
    claimed, budget = float(record.spent_epsilon), float(record.epsilon)
    found = f"ε = {closed:.9g} from the releases, {claimed:.9g} claimed"
    search = record.search
    right = _close(closed, claimed, CLOSE if search is None else SEARCH_CLOSE)
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
    found = any(r.query.startswith("magnitudes of") for r in record.releases)
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
    step = plan.get("noise_multiplier")
    steps = [r for r in record.releases if r.query.startswith("gradient of")]
    asked = any(r.noise_multiplier != step for r in steps)
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
    name, bound = given.loss.name, given.loss.slope_bound
    same = (given.plan.get("loss"), given.plan.get("slope_bound")) == (name, bound)
    return Check("loss", same, f"{name}, slopes of at most {bound:g}")


def _check_steps(given: Given) -> Iterator[Check]:
    """Check that DP-SkGD made as many releases as its plan says."""
    plan, search = given.plan, given.search
    steps = [r for r in given.releases if r.query.startswith("gradient of")]
    taken = sum(r.times for r in steps)
    grams = sum(r.times for r in given.releases if r.query.endswith("Gram matrix"))
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
    found, listed = compare(given), solver in RELEASES_OF
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
    if given.search is not None or found.wrong or not listed:
        return
    if any("Poisson batch" in release.query for release in given.releases):
        yield Check("cost of the batches", *costs.check_batches(given))
    if any(release.query.startswith("objective") for release in given.releases):
        yield Check("cost of the tilt", *costs.check_tilt(given))
    if "tolerance" in given.plan:
        said = (
            f"{given.plan['tolerance']:.3g}, proved during the fit, not checked again"
        )
        yield Check("distance to the exact minimiser", None, said)
    if "solver" in given.plan and given.plan.keys() & {"n_steps", "n_epochs"}:
        asked = given.n_iter == _count_planned_steps(given)
        yield Check("number of steps", asked, f"{given.n_iter} reported")


def _count_planned_steps(given: Given) -> int:
    """Return the planned number of steps of a solver other than DP-SkGD."""
    if "n_epochs" in given.plan:
        return int(given.number("n_epochs") * given.number("n_inner"))
    restarts = given.number("n_restarts") if "n_restarts" in given.plan else 1
    return int(given.number("n_steps") * restarts)
