"""Write a model card: the facts about a model in the form that model hubs read.

A card is a dict of plain values. `skdp.report` writes it as JSON or as Markdown. The
Markdown starts with a block of YAML metadata between two lines of dashes, which Hugging
Face and others read. Values in that block are written as JSON, which is valid YAML.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from skdp.estimators import formatting
from skdp.evaluation.results import TOO_NOISY, Evaluation
from skdp.reporting import facts
from skdp.reporting.statement import write_parts
from skdp.schema import check

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
        "facts": dict(facts.describe_fit(model)),
        "columns": {str(n): facts.describe_column(column) for n, column in listed},
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
                {"query": event.query, "times": times, "mu_squared": event.mu_squared}
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
