"""Check a model's privacy record: that it adds up, and fits the plan."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from skdp.estimators import stored_model, stored_record
from skdp.estimators.plain import check_keys, loads, read_number
from skdp.estimators.storage import MODEL_KEYS, check_files
from skdp.ledger import Ledger
from skdp.schema import Layout, check, toml_files
from skdp.verification.independent_epsilon import (
    closed_form_epsilon,
    mu_squared,
    pld_epsilon,
)

#: Relative difference that counts as equal: for the closed form, for dp-accounting,
#: which puts losses on a grid, and for a search, whose trials round down.
CLOSE, PLD_CLOSE, SEARCH_CLOSE = 1e-6, 1e-3, 1e-4


@dataclass(frozen=True)
class Check:
    """One thing that was looked at: `passed` is None if it could not be."""

    name: str
    passed: bool | None
    found: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What `verify` found.

    Attributes
    ----------
    claim : str
        What the record claims, in words.
    claims : bool
        Whether it claims privacy at all: a seeded run, or one without noise, does not.
    epsilon : float
        The ε that the record says was spent.
    closed_form, pld : float or None
        The same, computed anew in two ways; None where it could not be.
    checks : tuple of Check
        All that was looked at.
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
        """Whether privacy is claimed and no check has failed."""
        return self.claims and all(c.passed is not False for c in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return asdict(self) | {
            "passed": self.passed,
            "checks": [asdict(one) for one in self.checks],
        }

    def to_json(self) -> str:
        """Everything as JSON; null stands for an infinite ε."""
        plain = {
            key: None if value == math.inf else value
            for key, value in self.to_dict().items()
        }
        return json.dumps(plain, indent=1, ensure_ascii=False)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # what a notebook shows

    def __str__(self) -> str:
        words = {True: "ok", False: "FAILED", None: "not checked"}
        lines = [self.claim]
        lines += [f"{words[c.passed]:>11}  {c.name}: {c.found}" for c in self.checks]
        failed = sum(c.passed is False for c in self.checks)
        if failed:
            many = "1 check" if failed == 1 else f"{failed} checks"
            lines.append(f"FAILED: {many} did not pass. Do not rely on this record.")
        elif self.claims:
            lines.append("VERIFIED: the releases add up to the claim.")
        else:
            lines.append("NO CLAIM: this model is not private.")
        return "\n".join(lines)


def verify(model: Any, ledger: Any = None) -> Verification:
    """Compute ε anew from a model's record, and compare the record with the plan.

    Parameters
    ----------
    model : path or fitted estimator
        A directory that ``save`` wrote, or a model itself.
    ledger : Ledger or path, optional
        The ledger that was charged: it must have an entry of this plan that is not
        smaller than the record, and its chain must be sound.

    Returns
    -------
    Verification
        Print it; ``passed`` says whether privacy is claimed and all checks hold.

    Raises
    ------
    ValueError
        If the directory is not one that ``save`` wrote.

    Notes
    -----
    It shows that a record adds up and fits its plan. Whoever can write the directory
    can write a record that does: that this is the record of the run is shown by the
    ledger, where it was entered when it happened.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> clf = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1])
    >>> skdp.verify(clf.fit(X, X[:, 0] > X[:, 1])).passed
    True
    """
    about, record, layout = _read(model)
    plan = about["plan"]
    delta, seeded = record["delta"], record["seeded"]
    claimed = read_number(record["spent_epsilon"], "spent_epsilon")
    budget = read_number(record["epsilon"], "epsilon")
    noiseless = budget == math.inf or not all(
        release["noise_multiplier"] for release in record["releases"]
    )
    if seeded or noiseless:
        claim = ("seeded" if seeded else "no noise") + ": no privacy claim"
    else:
        claim = f"claim: ({claimed:.6g}, {delta:g})-differential privacy"
    checks = list(_agreements(about, record, layout))
    closed = pld = None
    if not noiseless:
        search = record.get("search")
        closed = closed_form_epsilon(record["releases"], delta, search)
        checks.append(_spent(claimed, closed, budget, plan, search))
        pld, why = None, "not used: they are for releases that are all handed out"
        if search is None or search["stop"] is None:
            pld, why = pld_epsilon(record["releases"], delta)
        agrees = None if pld is None else _close(pld, closed, PLD_CLOSE)
        checks.append(Check("privacy loss distributions", agrees, why))
    if ledger is not None and not noiseless:
        checks.append(_entered(ledger, plan.get("digest"), record["releases"]))
    return Verification(
        claim=claim,
        claims=not (seeded or noiseless),
        epsilon=claimed,
        delta=delta,
        closed_form=closed,
        pld=pld,
        checks=tuple(checks),
    )


def _entered(ledger: Any, digest: str | None, releases: list[dict[str, Any]]) -> Check:
    """Whether a sound ledger has an entry of the plan that covers the releases."""
    book = ledger if isinstance(ledger, Ledger) else Ledger(Path(ledger).resolve())
    book.check()
    mine = [e for e in book.entries() if e.kind == "commit" and e.plan == digest]
    spent = mu_squared(releases)
    extra = math.fsum(r["times"] * r["delta"] for r in releases)
    for entry in mine if digest is not None else []:
        if entry.mu_squared >= spent * (1 - 1e-9) and entry.delta >= extra * (1 - 1e-9):
            return Check("ledger", True, f"entry {entry.seq} of {entry.time}")
    found = "no entry of this plan" if not mine else "its entry says less"
    return Check("ledger", False, found)


def _close(a: float, b: float, tolerance: float) -> bool:
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-7)


def _spent(
    claimed: float, closed: float, budget: float, plan: Any, search: Any
) -> Check:
    """Whether the ε claimed, the ε of the releases and the budget are one number."""
    found = f"ε = {closed:.9g} from the releases, {claimed:.9g} claimed"
    right = _close(closed, claimed, CLOSE if search is None else SEARCH_CLOSE)
    right &= claimed <= budget * (1 + 1e-9)
    # A ledger may allow a little less, for the slack of all its draws.
    if plan.get("calibration") == "exact" and closed < budget * (1 - 1e-3):
        right = False
        found += f", but a plan for ε = {budget:g} spends all of it"
    return Check("closed form", right, found)


def _agreements(
    about: dict[str, Any], record: dict[str, Any], layout: Layout
) -> Iterator[Check]:
    """Compare the record with the plan, value by value."""
    plan, search = about["plan"], record.get("search")
    digest = record.get("plan_digest")
    right = None if digest is None else digest == stored_record.summary_digest(plan)
    told = "none was saved" if digest is None else f"{digest[:16]}…"
    yield Check("digest of the plan", right, told)
    if "solver" in plan:
        yield from _solved(plan["solver"], about["parameters"], record)
        return
    # The plan of a model that a search chose has a part of the search's ε.
    for name in ("relation", "delta") if search else ("relation", "delta", "epsilon"):
        same = plan.get(name) == record[name]
        found = f"{record[name]}" + ("" if same else f", planned {plan.get(name)}")
        yield Check(name, same, found)
    releases = record["releases"]
    steps = [r for r in releases if r["query"].startswith("gradient of")]
    taken = sum(r["times"] for r in steps)
    grams = sum(r["times"] for r in releases if r["query"].endswith("Gram matrix"))
    planned = plan.get("n_steps", 0) * plan.get("n_restarts", 1)
    wanted = 1 if plan.get("geometry") == "Matrix" else 0
    right = planned == about["n_iter"]
    if search and search["stop"] is None:  # other candidates' plans are not saved
        fits = search["n_trials"]
        right &= planned + fits - 1 <= taken
        yield Check("number of steps", right, f"{taken} releases in {fits} fits")
        right = wanted <= grams <= fits
        yield Check("releases of the Gram matrix", right, f"{grams} in {fits} fits")
    else:
        found = f"{taken} releases, {planned} planned, {about['n_iter']} reported"
        yield Check("number of steps", right and taken == planned, found)
        noise = sorted({r["noise_multiplier"] for r in steps})
        found = ", ".join(f"{z:.6g}" for z in noise)
        yield Check("one noise multiplier for all steps", len(noise) == 1, found)
        found = f"{grams} of {wanted}"
        yield Check("releases of the Gram matrix", grams == wanted, found)
    yield _sensitivities(plan, record, about["parameters"], layout)


def _solved(
    solver: str, parameters: dict[str, Any], record: dict[str, Any]
) -> Iterator[Check]:
    """Compare the record of another solver with the parameters: it has no plan."""
    for name, given in (("relation", "neighbours"), ("epsilon", "epsilon")):
        same = parameters.get(given) == record[name]
        found = f"{record[name]}" + ("" if same else f", not {parameters.get(given)}")
        yield Check(name, same, found)
    yield Check("number of steps", None, f"solver {solver!r} is not planned beforehand")


def _sensitivities(
    plan: dict[str, Any],
    record: dict[str, Any],
    parameters: dict[str, Any],
    layout: Layout,
) -> Check:
    """Whether no release says that a record can do less than schema and plan say."""
    twice = 2.0 if plan.get("relation") == "replace-one" else 1.0
    weight = read_number(parameters.get("max_weight", 1.0), "max_weight")
    slope = plan.get("slope_bound", math.inf) * weight
    radius = plan.get("radius")
    # A row has norm one in each group, half of it in a number taken from its middle.
    groups = [group for group in layout.groups if group.kind != "ones"]
    constant = len(groups) < len(layout.groups)
    halved = [g.kind == "dense" and g.width == 1 and not g.signed for g in groups]
    square = math.fsum(0.25 if half and constant else 1.0 for half in halved)
    square = min(square, layout.row_norm**2 if layout.row_norm else square) + constant
    # Caps that follow the released spread of a numeric target are not in the plan.
    releases = record["releases"]
    if any(r["query"].startswith("histogram of the target") for r in releases):
        radius = None
    low = []
    search = record.get("search") is not None
    for r in releases:
        least = 0.0
        if search and r["query"].startswith("gradient of"):
            continue  # of other candidates too, whose radius is theirs
        if r["query"].endswith("in a matrix metric"):
            least = 0.0 if radius is None else twice * radius
        elif r["query"].startswith("gradient of"):
            least = twice * slope * (1 - 2.0**-15)  # shapes are at most one
        elif r["query"].endswith("Gram matrix"):
            least = math.sqrt(twice * max(square**2 - constant, 0.0))
        elif r["query"].startswith(("counts of", "categories of", "magnitudes of")):
            least = math.sqrt(twice)
        if r["sensitivity"] < least * (1 - 1e-9):
            low.append(f"{r['query']}: {r['sensitivity']:.6g}, at least {least:.6g}")
    return Check("sensitivities", not low, "; ".join(low) or "none is too small")


def _read(model: Any) -> tuple[dict[str, Any], dict[str, Any], Layout]:
    """Model, record and layout as JSON has them, from a directory or an estimator."""
    if not isinstance(model, (str, PathLike)):
        check(
            hasattr(model, "privacy_"),
            "verify takes a saved model's directory or a fitted estimator: fit it.",
        )
        parameters, _ = stored_model.parameters(model)
        plan = stored_model.plan_summary(model.plan_)
        about = {"plan": plan, "parameters": parameters, "n_iter": model.n_iter_}
        return about, stored_record.described(model.privacy_, plan), model._layout
    source = Path(model)
    check_files(source)
    about = loads(source / "model.json")
    check_keys(about, MODEL_KEYS, "model.json")
    stored_model.check_plan(about["plan"])
    record = loads(source / "privacy.json")
    stored_record.check_types(record)
    schema = toml_files.read(source / "schema.toml")
    intercept = about["parameters"].get("fit_intercept") is not False
    return about, record, schema.layout(intercept)
