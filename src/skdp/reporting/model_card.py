"""Collect the facts about a fit, and write them as a model card."""

from __future__ import annotations

import html
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from skdp import formatting
from skdp.descent.plan import Plan
from skdp.descent.plan_files import find_geometry, plan_summary
from skdp.evaluation.results import NO_LEVEL, TOO_NOISY, Evaluation
from skdp.formatting import format_number, shorten
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.queries import Kind
from skdp.reporting.statement import describe_neighbours, write_parts
from skdp.schema import Column, Numeric, check, count_in_words, name_record

# ---- Collect the facts that a report lists: what was fitted or scored, and what it
# cost
#
# All of these facts are public or released.


#: The purposes of releases, by their kind. A release of another kind is named by its
#: own description.
PURPOSES = {
    Kind.RANGES: "Ranges, found in the table",
    Kind.CATEGORIES: "Categories, found in the table",
    Kind.LOOK: "A look at what rows fill: histograms of all columns",
    Kind.FINER_LOOK: "Finer histograms of columns that fill little of their range",
    Kind.TARGET_LOOK: "Histograms of the target alone, because rows are few",
    Kind.KNOT_SHARES: "Knots, placed where the rows are",
    Kind.CLASS_WEIGHTS: "Weights of the classes",
    Kind.WEIGHT_HISTOGRAM: "Weights of the rows",
    Kind.GRAM: "Gram matrix of the columns",
    Kind.CLASS_COUNTS: "Histogram of the target",
    Kind.TARGET_HISTOGRAM: "Histogram of the target",
    Kind.GRADIENT: "Gradients, the steps of the fit",
    Kind.MAPPED_GRADIENT: "Gradients, the steps of the fit",
    Kind.BATCHES: "Gradients, the steps of the fit",
    Kind.LEVEL: "Correction of the intercept",
    Kind.SCORES: "Scores",
}
UNSPENT = "Not spent"
#: Kinds of columns that are named by adjectives, which have no plural.
ADJECTIVES = ("numeric", "categorical")
#: A remaining share of the budget is listed only if it is larger than this.
LITTLE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Purpose:
    """The releases for one purpose, and their cost.

    `share` is the share of the budget that the releases cost together, or nan if the
    budget is infinite.
    """

    name: str
    times: int
    mu_squared: float
    delta: float
    share: float
    spent: bool = True


def name_purpose(event: Event) -> str:
    """Return the purpose of a release."""
    return PURPOSES.get(event.kind, event.query[:1].upper() + event.query[1:])


def group_by_purpose(record: PrivacyRecord) -> list[Purpose]:
    """Group a record's releases by purpose, and list the unspent budget last."""
    groups: dict[str, list[tuple[Event, int]]] = {}
    for event, times in record.events.items():
        groups.setdefault(name_purpose(event), []).append((event, times))
    found = []
    for name, events in groups.items():
        cost = math.fsum(times * event.mu_squared for event, times in events)
        found.append(
            Purpose(
                name=name,
                times=sum(times for _, times in events),
                mu_squared=cost,
                delta=math.fsum(times * event.delta for event, times in events),
                share=cost / record.budget if record.budget < math.inf else math.nan,
            )
        )
    left = 1.0 - math.fsum(one.share for one in found)
    if left > LITTLE:
        found.append(
            Purpose(
                name=UNSPENT,
                times=0,
                mu_squared=left * record.budget,
                delta=0.0,
                share=left,
                spent=False,
            )
        )
    return found


#: Parameters that are listed if they differ from their defaults. The page states all
#: others elsewhere.
SETTINGS = (
    *("alpha", "l1_ratio", "fit_intercept", "class_weight", "max_weight", "sampling"),
    *("geometry", "n_steps", "slope_bound", "calibration", "look"),
)
#: Largest number of characters that describe a column, and of columns on a page.
LONGEST, MOST_COLUMNS = 500, 500


def describe_fit(model: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each fact about a fit."""
    schema, record = model.schema_, model.privacy_
    yield "Model", f"{model.title} ({type(model).__name__})"
    target = f"{schema.target_name}: " if schema.target_name else ""
    yield "Target", target + describe_column(schema.target_column)
    kinds = Counter(_name_kind(column) for column in schema.columns.values())
    each = ", ".join(
        count_in_words(f"{times:,}", name, name if name in ADJECTIVES else None)
        for name, times in kinds.items()
    )
    n = sum(group.kind != "ones" for group in model._layout.groups)
    weights = model.weights_.size
    coefficients = count_in_words(f"{weights:,}", "coefficient")
    yield "Columns", f"{n:,} ({each}); {coefficients}"
    if schema.unit is not None:
        yield "Unit", describe_unit(model)
    yield name_record(record.unit).title() + "s", ", ".join(describe_rows(model))
    yield (
        "Budget",
        f"ε = {format_number(record.epsilon)}, δ = {format_number(record.delta)}",
    )
    yield "Neighbouring tables", f"{record.neighbours}: {describe_neighbours(record)}"
    yield "Method", _method(model)
    settings = _settings(model)
    if settings:
        yield "Settings that differ from the default", settings
    if model.ledger is not None:
        yield "Ledger", "charged to a ledger, which keeps the data set's total budget"


def describe_unit(model: Any) -> str:
    """Describe how the rows of a person are weighted."""
    most = model.max_rows_per_unit
    if most == 1:
        return (
            f"{model.privacy_.unit}; every person counts as one record, with any "
            "number of rows"
        )
    return (
        f"{model.privacy_.unit}; every row counts as at most 1/{most} of a record, and "
        "every person as at most one record"
    )


def describe_rows(model: Any) -> tuple[str, str]:
    """Return the number of rows or persons, and the reason why it may be shown."""
    plan, record = model.plan_, model.privacy_
    count = plan.n_rows if isinstance(plan, Plan) else plan.get("n_rows")
    check(
        isinstance(count, int),
        f"n_rows of the model's plan must be an integer, got {count!r}.",
    )
    if record.neighbours != "add-remove":
        return f"{count:,}", "a public number"
    counted = f"Number of {name_record(record.unit)}s"
    looked = model.profile_ is not None and model.n_rows is None
    if looked or any(one.name == counted for one in group_by_purpose(record)):
        return f"{count:,}", "approximate, because released with noise"
    return f"{count:,}", "given as public"


def describe_column(column: Column) -> str:
    """Describe a column in at most `LONGEST` characters."""
    return shorten(f"{column.title}: {column.describe()}", LONGEST)


def describe_columns(model: Any) -> list[tuple[str, str]]:
    """Return the name and description of each of the first `MOST_COLUMNS` columns."""
    listed = list(model.schema_.columns.items())
    return [
        (str(name), describe_column(column)) for name, column in listed[:MOST_COLUMNS]
    ]


def _name_kind(column: Column) -> str:
    curve = isinstance(column, Numeric) and column.n_knots is not None
    return "curve" if curve else column.title


def _method(model: Any) -> str:
    plan = plan_summary(model.plan_)
    steps = count_in_words(f"{model.n_iter_:,}", "step")
    if "solver" in plan:
        return f"solver {plan['solver']!r}, {steps}"
    for name in ("l2", "l1"):
        strength = plan.get(name)
        if isinstance(strength, float) and strength:
            steps += f"; penalty {name} {format_number(strength)}"
    return f"DP-SkGD {find_geometry(plan).title}; {steps}"


def _settings(model: Any) -> str:
    default, listed = type(model)(), []
    for name in SETTINGS:
        value = getattr(model, name)
        if value is getattr(default, name) or value == getattr(default, name):
            continue
        plain = isinstance(value, (str, int, float, Mapping))
        listed.append(f"{name} = {shorten(str(value)) if plain else 'an object'}")
    return ", ".join(listed)


def describe_evaluation_rows(found: Evaluation) -> tuple[str, str]:
    """Return the number of rows, and the reason why it may be shown."""
    count = f"{found.n_rows:,.0f}"
    if found.rows_released:
        return count, "approximate, because released with noise"
    given = found.privacy_.neighbours == "add-remove"
    return count, "given as public" if given else "a public number"


def title_evaluation(found: Evaluation) -> str:
    """Return the title of a page about an evaluation."""
    target = f" of {found.target}" if found.target else ""
    return f"Evaluation of {found.model}{target}"


def describe_evaluation(found: Evaluation) -> list[tuple[str, str]]:
    """Return the name and the value of each fact about an evaluation."""
    record = found.privacy_
    target = [("Target", found.target)] if found.target else []
    listed = [
        ("Model", found.model),
        *target,
        ("Scores", ", ".join(found.scores) or "calibration alone"),
        (
            name_record(record.unit).title() + "s",
            ", ".join(describe_evaluation_rows(found)),
        ),
        (
            "Budget",
            f"ε = {format_number(record.epsilon)}, δ = {format_number(record.delta)}",
        ),
        (
            "Neighbouring tables",
            f"{record.neighbours}: {describe_neighbours(record)}",
        ),
    ]
    return listed + [("Note", note) for note in found.notes]


# ---- Write a model card: the facts about a model in the form that model hubs read
#
# A card is a dict of plain values. `skdp.report` writes it as JSON or as Markdown. The
# Markdown starts with a block of YAML metadata between two lines of dashes, which
# Hugging Face and others read. Values in that block are written as JSON, which is valid
# YAML.


#: Matches a skdp command between backticks, which is shown as code. Other backticks may
#: come from the names of columns.
COMMAND = re.compile(r"`skdp [\w ./-]+`")
#: Names of scores on model hubs, where they differ from ours.
HUB_NAMES = {"auc": "roc_auc", "r2": "r_squared"}


def make_card(about: Any, scores: Evaluation | None = None) -> dict[str, Any]:
    """Return the facts about a verified model, as plain values.

    Parameters
    ----------
    about : Subject
        The model, from `report.read_subject`.
    scores : Evaluation, optional
        Released scores of the model.
    """
    model, record = about.model, about.record
    check(
        not isinstance(model, Evaluation),
        "A model card requires a model, got an evaluation. Pass the model, and the "
        "evaluation as scores=.",
    )
    check(
        scores is None or isinstance(scores, Evaluation),
        f"scores must be the result of skdp.evaluate, got {type(scores).__name__}.",
    )
    _, promised, public, unprotected, checked = (
        lines for _, lines in write_parts(model)
    )
    classes = getattr(model, "classes_", None)
    listed = model.schema_.columns.items()
    return {
        "name": type(model).__name__
        + (f" of {model.schema_.target_name}" if model.schema_.target_name else ""),
        "library": "skdp",
        "versions": about.versions,
        "task": "tabular-regression" if classes is None else "tabular-classification",
        "target": model.schema_.target_name,
        "classes": None if classes is None else classes.tolist(),
        "facts": dict(describe_fit(model)),
        "columns": {str(n): describe_column(column) for n, column in listed},
        "privacy": {
            "claimed": about.claims,
            "claim": str(record).partition("\n")[0],
            "epsilon": record.spent_epsilon if about.claims else None,
            "delta": record.delta,
            "neighbours": record.neighbours,
            "promised": list(promised),
            "assumptions": list(public),
            "not_protected": list(unprotected),
            "how_to_check": list(checked),
            "releases": [
                {
                    "kind": event.kind,
                    "query": event.query,
                    "times": times,
                    "mu_squared": event.mu_squared,
                }
                for event, times in record.events.items()
            ],
        },
        "summary": model.summary().to_dict(),
        "scores": None if scores is None else scores.to_dict(),
    }


def render_json(card: dict[str, Any]) -> str:
    """Return the card as JSON, in which infinity and nan are null."""
    plain = formatting.replace_infinities(card)
    return json.dumps(plain, indent=1, ensure_ascii=False) + "\n"


def render_markdown(card: dict[str, Any]) -> str:
    """Return the card as Markdown with a block of metadata."""
    lines = ["---", *_list_metadata(card), "---", "", f"# {_escape(card['name'])}", ""]
    privacy = card["privacy"]
    lines += [f"**{_escape(privacy['claim'])}**", ""]
    lines += [*_list_table(("", ""), card["facts"].items()), ""]
    lines += ["## Promise", "", *_list_items(privacy["promised"])]
    lines += ["## Assumptions", "", *_list_items(privacy["assumptions"])]
    lines += ["## Not protected", "", *_list_items(privacy["not_protected"])]
    lines += ["## Columns", ""]
    lines += [*_list_table(("column", "values"), card["columns"].items()), ""]
    lines += ["## Coefficients", "", *_list_coefficients(card["summary"])]
    if card["scores"] is not None:
        lines += ["## Scores", "", *_list_scores(card["scores"])]
    lines += ["## Releases", "", *_list_releases(privacy["releases"]), ""]
    lines += ["## How to check", "", *_list_items(privacy["how_to_check"])]
    return "\n".join(lines).rstrip() + "\n"


def _list_metadata(card: dict[str, Any]) -> Iterator[str]:
    yield "library_name: skdp"
    yield f"pipeline_tag: {card['task']}"
    yield "tags:"
    for tag in ("differential-privacy", "tabular", "linear-model", "skdp"):
        yield f"- {tag}"
    if card["scores"] is None:
        return
    yield "model-index:"
    yield f"- name: {json.dumps(card['name'])}"
    yield "  results:"
    yield "  - task:"
    yield f"      type: {card['task']}"
    yield "    dataset:"
    yield "      type: private"
    yield "      name: a table that is not published"
    yield "    metrics:"
    for name, score in card["scores"]["scores"].items():
        if not score["too_noisy"]:
            yield f"    - type: {HUB_NAMES.get(name, name)}"
            yield f"      value: {score['value']:.4g}"
            yield f"      name: {name}, released with noise"


def _list_coefficients(summary: dict[str, Any]) -> Iterator[str]:
    yield from (f"{_escape(fact)}  " for fact in summary["facts"])
    yield ""
    lines = summary["terms"] or summary["coefficients"]
    by_class = any("coefs" in line for line in lines)
    keys: tuple[str, ...]
    keys = ("coef", "sampling_std", "noise_std", "std", "z", "p", "low", "high")
    head = summary["head"]
    if summary["terms"]:
        head = keys = ("points", "lowest", "highest", "at", "effect", "low", "high")
    if not by_class:  # leave out what is not known of any line
        known = [any(line[key] is not None for line in lines) for key in keys]
        keys, head = (tuple(itertools.compress(part, known)) for part in (keys, head))
    tables: dict[str, list[tuple[str, ...]]] = {}
    for line in lines:
        name = label = line.get("label", line["column"])
        if line["column"] != label:
            name = f"{line['column']}: {label}"
        values = line["coefs"] if by_class else [line[key] for key in keys]
        rows = tables.setdefault(line.get("class", ""), [])
        rows.append((name, *(_format(value) for value in values)))
    for output, rows in tables.items():
        yield from _list_table((output, *head), rows)
        yield ""
    yield from _list_items(summary["notes"])


def _list_scores(scores: dict[str, Any]) -> Iterator[str]:
    rows = [
        (
            name,
            TOO_NOISY if one["too_noisy"] else _format(one["value"]),
            *(_format(one[key]) for key in ("low", "high", "noise_std")),
        )
        for name, one in scores["scores"].items()
    ]
    level = f"{scores['confidence']:.0%}"
    yield from _list_table(("score", "value", f"{level} from", "to", "noise"), rows)
    yield ""
    if scores["by"] is not None:
        rows = [
            (
                NO_LEVEL if group["level"] is None else str(group["level"]),
                f"{group['n_rows']:,.0f}",
                name,
                TOO_NOISY if one["too_noisy"] else _format(one["value"]),
                *(_format(one[key]) for key in ("low", "high")),
            )
            for group in scores["groups"]
            for name, one in group["scores"].items()
        ]
        head = (scores["by"], "rows", "score", "value", f"{level} from", "to")
        yield from _list_table(head, rows)
        yield ""
    if scores["confusion"] is not None:
        names = [str(level) for level in scores["confusion"]["classes"]]
        counts = scores["confusion"]["counts"]
        rows = [
            (name, *(f"{count:.0f}" for count in row))
            for name, row in zip(names, counts, strict=True)
        ]
        yield from _list_table(("true \\ predicted", *names), rows)
        yield ""
    yield from _list_items([*scores["notes"], scores["privacy"]["claim"]])


def _list_releases(releases: list[dict[str, Any]]) -> Iterator[str]:
    rows = [
        (one["query"], str(one["times"]), _format(one["mu_squared"]))
        for one in releases
    ]
    yield from _list_table(("released sum", "times", "μ² each"), rows)


def _list_items(sentences: Iterable[str]) -> Iterator[str]:
    yield from (f"- {_escape(sentence)}" for sentence in sentences)
    yield ""


def _list_table(
    head: tuple[str, ...], rows: Iterable[tuple[str, ...]]
) -> Iterator[str]:
    yield f"| {' | '.join(map(_escape, head))} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(map(_escape, row))} |" for row in rows)


def _escape(text: str) -> str:
    """Escape a text so that Markdown shows it unchanged, on one line.

    Commands between backticks stay code.
    """
    parts = str(text).split("`")
    if len(parts) % 2 and len(parts) > 1:
        code = {i: f"`{part}`" for i, part in enumerate(parts) if i % 2}
        if all(COMMAND.fullmatch(part) for part in code.values()):
            return "".join(code.get(i) or _escape(part) for i, part in enumerate(parts))
    plain = formatting.escape_unprintable(str(text).replace("\n", " "))
    shown = html.escape(str(plain), quote=False)
    return "".join(
        f"\\{letter}" if letter in "|*_`[]\\" else letter for letter in shown
    )


def _format(value: float | str | None) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else f"{value:.4g}"
