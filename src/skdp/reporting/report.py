"""skdp.report: write a self-contained HTML page about a model."""

from __future__ import annotations

import base64
import hashlib
import math
import platform
import shlex
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

import skdp
from skdp import formatting
from skdp.descent.forecast import describe_outlook
from skdp.descent.plan import Plan
from skdp.descent.plan_files import plan_summary, summary_digest
from skdp.estimators import plots, saving
from skdp.estimators.fit import PrivateLinearModel
from skdp.estimators.saving import ModelForm, load, model_digest, read_form
from skdp.evaluation.results import Evaluation
from skdp.evaluation.search import PrivateSearchCV
from skdp.privacy import accountant
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.queries import Kind
from skdp.privacy.selection import SearchRecord
from skdp.reporting import deployment_entry, model_card, pictures
from skdp.reporting.statement import (
    FALSE_ALARMS,
    describe_neighbours,
    detection_rate,
    failure_rate,
    write_parts,
)
from skdp.schema import check, name_record
from skdp.verification.verify import Verification, closed_form_epsilon, verify

#: The forms of a report.
FORMS = ("html", "markdown", "json", "registry")
#: What the names of pages end in. A ledger with such a name is a page to be written.
PAGES = (".html", ".htm", ".md", ".json", ".yaml", ".yml")
#: Maximum number of releases that the page lists.
MOST_RELEASES = 500
#: `remake_plan` makes the plan of a saved model again. The two plans must agree in
#: these fields.
KEPT = (
    *("n_rows", "geometry", "sampling", "n_steps", "n_restarts", "calibration"),
    *("loss", "penalty", "l1", "l2"),
)
#: Largest accepted relative difference between the clipping radii of the saved plan and
#: of the remade plan. Rounding of the budget may cause a small difference.
NEAR = 0.01
#: The kinds of releases that are made before the plan.
BEFORE = (
    *(Kind.LOOK, Kind.FINER_LOOK, Kind.TARGET_LOOK),
    *(Kind.ROW_COUNT, Kind.RANGES, Kind.CATEGORIES, Kind.KNOT_SHARES),
    *(Kind.CLASS_WEIGHTS, Kind.WEIGHT_HISTOGRAM),
)


def report(
    model: Any,
    ledger: Any = None,
    *,
    form: str = "html",
    scores: Any = None,
    answers: Mapping[str, Any] | None = None,
) -> str:
    """Write a page about a model, for data-protection officers and colleagues.

    Parameters
    ----------
    model : path, fitted estimator, PrivateSearchCV or Evaluation
        A directory written by ``save``, a fitted model or search, or an evaluation.
    ledger : Ledger or path, optional
        The ledger that was charged. It is checked as in `skdp.verify`.
    form : {"html", "markdown", "json", "registry"}
        A page, a model card as model hubs read it (Markdown that starts with a block of
        metadata, or the same facts as JSON), or an entry for the registry of
        differential-privacy deployments, as YAML.
    scores : Evaluation, optional
        Released scores of the model, which become part of a model card.
    answers : mapping of str to str, optional
        For a registry entry, what only its author knows, by field, such as
        ``{"intended_use": "..."}``. Open questions are written into the entry.

    Returns
    -------
    str
        A model card, or one HTML page for screens, phones and paper. The page loads no
        other file and runs no script. Both contain only public and released values.

    Raises
    ------
    ValueError
        If the directory is not a saved model, or if the privacy record fails a check.

    Examples
    --------
    >>> import numpy as np, skdp
    >>> X = np.random.default_rng(0).uniform(size=(5000, 2))
    >>> clf = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1])
    >>> page = skdp.report(clf.fit(X, X[:, 0] > X[:, 1]))
    >>> page.startswith("<!doctype html>")
    True
    """
    check(form in FORMS, f"form must be one of {FORMS}, got {form!r}.")
    if isinstance(ledger, (str, PathLike)):
        check(
            Path(ledger).suffix not in PAGES,
            f"The second argument of skdp.report is a ledger, got {str(ledger)!r}. The "
            f"page is what it returns: Path({str(ledger)!r}).write_text(skdp.report("
            "model), encoding='utf-8').",
        )
    if form == "html":  # before a record is verified, which takes longer
        _load_templates()
        plots.import_matplotlib()
    about = read_subject(model, ledger)
    check(answers is None or form == "registry", "answers= requires form='registry'.")
    if form == "registry":
        check(scores is None, "scores= requires form='markdown' or form='json'.")
        entry = deployment_entry.make_entry(about, answers)
        return deployment_entry.render_entry(entry)
    if form == "html":
        check(
            scores is None,
            "scores= requires form='markdown' or form='json'. For an HTML page about "
            "the scores, call skdp.report(scores).",
        )
        return render_page(about)
    card = model_card.make_card(about, scores)
    write = model_card.render_json if form == "json" else model_card.render_markdown
    return write(card)


def render_page(about: Subject) -> str:
    """Return the HTML page about a subject."""
    templates = _load_templates()
    css = templates.loader.get_source(templates, "page.css")[0]
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    with plots.drawing(**{"svg.fonttype": "none", "svg.hashsalt": "skdp"}):
        contents = collect_contents(about)
    text: str = templates.get_template("page.html").render(
        css=css, css_digest=digest, **contents
    )
    return text + "\n"


def collect_contents(about: Subject) -> dict[str, Any]:
    """Return the values that the page's template shows, by name."""
    model, record = about.model, about.record
    scored = isinstance(model, Evaluation)
    published, promised, public, unprotected, checked = (
        lines for _, lines in write_parts(model)
    )
    found: dict[str, Any] = {
        "title": model_card.title_evaluation(model) if scored else _title(model),
        "kind": "evaluation" if scored else "model",
        "claims": about.claims,
        "why_not": promised[0].removeprefix("NOTHING: ") if not about.claims else "",
        "record": record,
        "neighbours": describe_neighbours(record),
        "protected": name_record(record.unit),
        "odds": _odds(record) if about.claims else math.nan,
        "failing": failure_rate(record) if about.claims else math.nan,
        "detected": detection_rate(record) if about.claims else math.nan,
        "false_alarms": FALSE_ALARMS,
        "rows": model_card.describe_evaluation_rows(model)
        if scored
        else model_card.describe_rows(model),
        "noisy": record.spent < math.inf and record.budget < math.inf,
        "search": _describe_search(record),
        "facts": model_card.describe_evaluation(model)
        if scored
        else list(model_card.describe_fit(model)),
        "columns": [] if scored else model_card.describe_columns(model),
        "n_columns": 0 if scored else len(model.schema_.columns),
        "promised": promised if about.claims else [],
        "public": public,
        "unprotected": unprotected,
        "published": published[0],
        "purposes": model_card.group_by_purpose(record),
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
    if found["noisy"]:
        found["shares"] = pictures.draw_shares(found["purposes"])
    return found | (_describe_evaluation(about) if scored else _describe_model(model))


def _odds(record: PrivacyRecord) -> float:
    return math.exp(record.spent_epsilon) if record.spent_epsilon < 700 else math.inf


def _describe_evaluation(about: Subject) -> dict[str, Any]:
    scored = about.model
    return {
        "scores": scored.scores,
        "by": scored.by,
        "groups": scored.groups,
        "confusion": scored.confusion,
        "confidence": scored.confidence,
        "calibration": scored.calibration,
        "drawn_bins": pictures.draw_bins(scored) if scored.calibration else None,
        "positive": scored.classes[1] if len(scored.classes) == 2 else "class 1",
        "closed_form": _closed_form(about),
    }


def _describe_model(model: Any) -> dict[str, Any]:
    plan = remake_plan(model)
    summary = plan_summary(model.plan_)
    paid = model.ledger is not None
    forecasts = [] if plan is None else pictures.make_forecasts(plan)
    return {
        "coefficients": pictures.picture_coefficients(model),
        "limits": _describe_limits(plan, summary),
        "forecasts": forecasts,
        "drawn_forecasts": pictures.draw_forecasts(forecasts),
        "digest": summary_digest(summary),
        "ledger_digest": model_digest(model) if paid else None,
    }


def _describe_limits(plan: Plan | None, summary: dict[str, Any]) -> str:
    if plan is not None:
        return describe_outlook(plan)
    if "solver" in summary:
        return (
            f"There is no forecast for solver {summary['solver']!r}, because only "
            "DP-SkGD (solver 'skgd') is planned in advance. `skdp plan` shows a "
            "forecast for DP-SkGD with the same schema, rows and budget."
        )
    return (
        "There is no forecast, because the plan cannot be made again here: parts of "
        "it were not saved, or another version of skdp made it. `skdp plan` forecasts "
        "a fit with default settings for the same schema and budget."
    )


def _closed_form(about: Subject) -> float | None:
    if not about.claims:
        return None
    stored = saving.make_record_form(about.record, {})
    return closed_form_epsilon(stored.releases, about.record.delta, stored.search)


def _describe_search(record: PrivacyRecord) -> str:
    if not isinstance(record, SearchRecord):
        return ""
    if record.stop is None:
        return f"the releases of all {record.n_trials:,} trials are listed"
    return "the best of a random number of trials; the releases of one trial are listed"


def _title(model: Any) -> str:
    target = model.schema_.target_name
    return type(model).__name__ + (f" of {target}" if target else "")


@cache
def _load_templates() -> Any:
    """Return the templates. They are compiled once, which takes longer than a page."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ModuleNotFoundError:
        raise ImportError(
            "skdp.report requires jinja2: pip install 'skdp[report]'."
        ) from None
    made = Environment(
        loader=PackageLoader("skdp.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=formatting.escape_unprintable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "number": formatting.format_number,
        "percent": formatting.format_percent,
    }
    return made


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject:
    """The evaluation, or the verified model, that a page is about.

    Attributes
    ----------
    model : estimator or Evaluation
        The model or evaluation.
    record : PrivacyRecord
        The privacy record of the model or evaluation.
    place : str
        The name of the directory that it was read from, or an empty string.
    versions : dict of str to str
        The versions of the packages with which it was made.
    found : Verification, optional
        The result of `verify`. It is None for an evaluation, which cannot be verified
        because it has no plan.
    """

    model: Any
    record: PrivacyRecord
    place: str
    versions: dict[str, str]
    found: Verification | None

    @property
    def claims(self) -> bool:
        """Whether privacy is claimed.

        This requires that no seed was set, that the budget is finite, and that every
        release has noise.
        """
        noisy = all(event.noise_multiplier for event in self.record.events)
        return not self.record.seeded and self.record.budget < math.inf and noisy


def read_subject(model: Any, ledger: Any = None) -> Subject:
    """Load and verify the subject of a page.

    Raise ValueError if the privacy record fails a check.
    """
    if isinstance(model, PrivateSearchCV):
        check(
            hasattr(model, "best_estimator_"),
            "The search must be fitted before a report is made.",
        )
        model = model.best_estimator_
    if isinstance(model, Evaluation):
        return Subject(
            model=model,
            record=model.privacy_,
            place="",
            versions=_list_versions(),
            found=None,
        )
    place, versions, asked = "", _list_versions(), model
    if isinstance(model, (str, PathLike)):
        source = Path(model)
        model, place = load(source), source.resolve().name
        versions = read_form(source, "model.json", ModelForm).versions
    check(
        isinstance(model, PrivateLinearModel) and hasattr(model, "privacy_"),
        "model must be a fitted model, its directory, a search or an evaluation, got "
        f"{type(model).__name__}.",
    )
    found = verify(asked, ledger)
    failed = [one for one in found.checks if one.passed is False]
    check(
        not failed,
        "No report is made, because the privacy record failed a check: "
        + "; ".join(f"{one.name}: {one.found}" for one in failed)
        + ". `skdp verify` shows every check.",
    )
    return Subject(
        model=model,
        record=model.privacy_,
        place=place,
        versions=versions,
        found=found,
    )


def _list_versions() -> dict[str, str]:
    return {
        "skdp": skdp.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def remake_plan(model: Any) -> Plan | None:
    """Return the plan of a model, or None if it is not known.

    A loaded model has only a summary of its plan. The plan is then made again from the
    schema, the number of rows and the budget, without records. If the new plan does not
    agree with the summary, the result is None.
    """
    plan = model.plan_
    if isinstance(plan, Plan):
        return plan
    own = not (isinstance(model.sampling, str) and isinstance(model.geometry, str))
    if "solver" in plan or own:
        return None
    left = copy(model.privacy_)
    left.events = {
        event: times for event, times in left.events.items() if event.kind in BEFORE
    }
    if isinstance(left, SearchRecord):  # a trial has a part of the budget
        left.budget = accountant.gdp_mu(model.epsilon, left.delta) ** 2
    try:
        made: Plan = model._plan(model.schema_, plan["n_rows"], left)
    except (ValueError, KeyError, TypeError):
        return None
    again = plan_summary(made)
    same = all(again[name] == plan.get(name) for name in KEPT)
    caps = again["radius"] or 0.0, plan.get("radius") or 0.0
    return made if same and math.isclose(*caps, rel_tol=NEAR) else None
