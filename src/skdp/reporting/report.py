"""skdp.report: one page about a model, complete in itself."""

from __future__ import annotations

import base64
import hashlib
import math
import shlex
from typing import Any

import skdp
from skdp.estimators import stored_model, stored_record
from skdp.evaluation.results import Evaluation
from skdp.planning.forecast import in_words
from skdp.planning.plan import Plan
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.selection import SearchRecord
from skdp.reporting import coefficients, facts, outlook, purposes, score_rows, words
from skdp.reporting.statement import (
    FALSE_ALARMS,
    RELATIONS,
    detection_rate,
    failure_rate,
    parts,
)
from skdp.reporting.subject import Subject, planned, subject
from skdp.verification.independent_epsilon import closed_form_epsilon

#: Most releases that the record's table lists one by one.
MOST_RELEASES = 500


def report(model: Any, ledger: Any = None) -> str:
    """Write a page about a model, for a data-protection officer and a colleague.

    Parameters
    ----------
    model : path, fitted estimator, PrivateSearchCV or Evaluation
        A directory that ``save`` wrote, or what was fitted, searched or evaluated.
    ledger : Ledger or path, optional
        The ledger that was charged, to be looked into as `skdp.verify` does.

    Returns
    -------
    str
        HTML, complete in itself: it loads nothing, runs no script and reads well on a
        phone and on paper. It holds public and released values only.

    Raises
    ------
    ValueError
        If the directory is no saved model, or if its record fails a check.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> clf = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1])
    >>> page = skdp.report(clf.fit(X, X[:, 0] > X[:, 1]))
    >>> page.startswith("<!doctype html>")
    True
    """
    return page(subject(model, ledger))


def page(about: Subject) -> str:
    """Write the page of a subject."""
    templates = _templates()
    css = templates.loader.get_source(templates, "page.css")[0]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    text: str = templates.get_template("page.html").render(
        css=css, css_digest=digest, **contents(about)
    )
    return text + "\n"


def contents(about: Subject) -> dict[str, Any]:
    """All that the page says, as plain values."""
    model, record = about.model, about.record
    scored = isinstance(model, Evaluation)
    published, promised, public, unprotected, checked = (
        lines for _, lines in parts(model)
    )
    found: dict[str, Any] = {
        "title": score_rows.TITLE if scored else _title(model),
        "kind": "evaluation" if scored else "model",
        "claims": about.claims,
        "why_not": promised[0].removeprefix("NOTHING: ") if not about.claims else "",
        "record": record,
        "relation": RELATIONS[record.relation],
        "odds": _odds(record) if about.claims else math.nan,
        "failing": failure_rate(record) if about.claims else math.nan,
        "detected": detection_rate(record) if about.claims else math.nan,
        "false_alarms": FALSE_ALARMS,
        "rows": score_rows.rows(model) if scored else facts.rows(model),
        "noisy": record.spent < math.inf and record.budget < math.inf,
        "search": _searched(record),
        "facts": score_rows.facts(model) if scored else facts.fitted(model),
        "columns": [] if scored else facts.columns(model),
        "n_columns": 0 if scored else len(model.schema_.columns),
        "promised": promised if about.claims else [],
        "public": public,
        "unprotected": unprotected,
        "published": published[0],
        "purposes": purposes.purposes(record),
        "one_trial": isinstance(record, SearchRecord) and record.stop is not None,
        "releases": list(record.events.items())[:MOST_RELEASES],
        "n_releases": len(record.events),
        "checked": checked,
        "place": about.place,
        "quoted": shlex.quote(about.place),
        "found": about.found,
        "versions": about.versions,
        "version": skdp.__version__,
    }
    if scored:
        return found | score_rows.contents(model) | {"closed_form": _closed_form(about)}
    return found | _of_a_model(model)


def _odds(record: PrivacyRecord) -> float:
    return math.exp(record.spent_epsilon) if record.spent_epsilon < 700 else math.inf


def _of_a_model(model: Any) -> dict[str, Any]:
    plan = planned(model)
    summary = stored_model.plan_summary(model.plan_)
    paid = model.ledger is not None
    return {
        "coefficients": coefficients.coefficients(model),
        "limits": _limits(plan, summary),
        "panels": [] if plan is None else outlook.panels(plan),
        "digest": stored_record.summary_digest(summary),
        "ledger_digest": stored_record.model_digest(model) if paid else None,
    }


def _limits(plan: Plan | None, summary: dict[str, Any]) -> str:
    if plan is not None:
        return in_words(plan)
    if "solver" in summary:
        return (
            f"Nothing is forecast for solver {summary['solver']!r}: only DP-SkGD, "
            "solver 'skgd', is planned beforehand. `skdp plan` shows what that "
            "would give for the same schema, rows and budget."
        )
    return (
        "The plan that was run has parts that were not saved, or is of another "
        "version, and cannot be made again here: nothing is forecast. "
        "`skdp plan` shows what the defaults give for the same schema and budget."
    )


def _closed_form(about: Subject) -> float | None:
    if not about.claims:
        return None
    stored = stored_record.described(about.record, {})
    search = stored.get("search")
    return closed_form_epsilon(stored["releases"], about.record.delta, search)


def _searched(record: PrivacyRecord) -> str:
    if not isinstance(record, SearchRecord):
        return ""
    if record.stop is None:
        return f"all {record.n_trials:,} trials are listed"
    return "the best of a random number of trials, one of which is listed"


def _title(model: Any) -> str:
    target = model.schema_.target_name
    return type(model).__name__ + (f" of {target}" if target else "")


def _templates() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError:
        raise ImportError(
            "A report needs an extra: pip install 'skdp[report]'."
        ) from None
    made = Environment(
        loader=PackageLoader("skdp.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=words.shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"number": words.number, "percent": words.percent}
    return made
