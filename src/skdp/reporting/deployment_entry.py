"""Write a model's entry for the registry of differential-privacy deployments.

The registry (https://registry.opendp.org) lists deployments in a common form, as YAML.
Its fields belong to three tiers. Most of them follow from what a model releases. The
others, such as who publishes the model and for which use, are asked for: `QUESTIONS`
lists them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import skdp
from skdp.evaluation.results import Evaluation
from skdp.formatting import format_number, shorten
from skdp.privacy.budget import PrivacyRecord
from skdp.reporting.model_card import (
    SETTINGS,
    describe_column,
    describe_fit,
    describe_rows,
    group_by_purpose,
)
from skdp.reporting.statement import describe_neighbours, write_parts
from skdp.schema import check, count_in_words, name_record

#: The sections of an entry and their fields, each with its tier, in the order of the
#: registry's own schema (its version of 2026).
FIELDS: dict[str, dict[str, int]] = {
    "basic": {
        "name": 1,
        "data_curators": 1,
        "intended_use": 1,
        "data_product_type": 1,
        "data_product_region": 1,
        "description": 1,
        "publication_date": 1,
        "data_product_sector": 1,
    },
    "dp_variant": {"variant_name": 2, "data_domain": 3, "unprotected_quantities": 3},
    "privacy_loss": {
        "privacy_unit": 2,
        "privacy_unit_details": 3,
        "privacy_parameters": 2,
        "privacy_parameters_details": 3,
    },
    "deployment_model": {
        "model_name": 2,
        "model_name_details": 3,
        "actors": 3,
        "release_type": 2,
        "release_type_details": 3,
        "data_source_type": 2,
        "data_source_type_details": 3,
        "access_type": 2,
        "access_type_details": 3,
    },
    "accounting": {"post_processing": 3, "composition": 3},
    "implementation": {
        "preprocessing_and_hyperparameter_tuning": 3,
        "mechanisms": 3,
        "justification": 3,
    },
    "administrative": {"sources": 1, "notes": 1, "registry_authors": 1},
}
#: What only the publisher of a model knows, by field.
QUESTIONS: dict[str, str] = {
    "data_curators": "Who publishes the model? A list of names.",
    "intended_use": "What may the model be used for?",
    "data_product_region": "Which region does the table describe, or whose laws apply?",
    "publication_date": "When was the model published? YYYY-MM-DD.",
    "data_product_sector": "Technology, Healthcare, Education, Government, Energy or "
    "Finance?",
    "actors": "Who may see the model, and who has the table? Who is trusted, and why?",
    "release_type_details": "Will more be published from this table? How is the sum of "
    "all releases limited?",
    "data_source_type": "Static or Dynamic: do new rows come in over time?",
    "tuning": "How were the schema, ε and other settings chosen? Was the table looked "
    "at before, and which budget paid for that?",
    "access": "How are the table and the machine protected? Who has access?",
    "justification": "Why this ε, this unit and this relation?",
    "sources": "Where is the model, and what describes it? Links.",
    "registry_authors": "Who wrote this entry? A list of names.",
}
#: Questions whose answers are part of a field that is otherwise known.
PARTS = {
    "tuning": "preprocessing_and_hyperparameter_tuning",
    "access": "mechanisms",
}
#: Fields that hold a list, and those that accept only some values.
LISTS = ("data_curators", "registry_authors")
CHOICES = {
    "data_product_sector": (
        *("Technology", "Healthcare", "Education", "Government", "Energy", "Finance"),
    ),
    "data_source_type": ("Static", "Dynamic"),
    "release_type": ("One release", "Many releases"),
    "access_type": ("Interactive", "Non-interactive"),
}
TODO = "TODO: "
#: Largest number of columns that an entry describes.
MOST_COLUMNS = 40


def make_entry(about: Any, answers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a model's entry as plain values, in the form of the registry.

    Parameters
    ----------
    about : Subject
        The verified model, from `report.read_subject`.
    answers : mapping, optional
        Answers to `QUESTIONS`, by field. Other fields may be given too, and then
        replace what is derived. Without an answer, a field holds its question.

    Notes
    -----
    The tier of the entry is the highest one whose questions are all answered.
    """
    model = about.model
    check(
        not isinstance(model, Evaluation),
        "A registry entry requires a model, got an evaluation.",
    )
    check(
        about.claims,
        "The model claims no privacy, because it was seeded or has no noise. So it "
        "cannot be entered in a registry of differential privacy.",
    )
    given = dict(answers or {})
    _check_answers(given)
    found = dict(_derive_fields(about)) | {
        field: TODO + question
        for field, question in QUESTIONS.items()
        if field not in PARTS
    }
    for part, field in PARTS.items():
        answer = given.pop(part, TODO + QUESTIONS[part])
        found[field] = f"{found[field]}\n{answer}"
    found |= given
    for field in LISTS:
        if isinstance(found[field], str):
            found[field] = [found[field]]
    sections = {
        section: {field: found[field] for field in fields if field in found}
        for section, fields in FIELDS.items()
    }
    target = model.schema_.target_name or "model"
    slug = "-".join([*_spell(target), *_spell(model.short_name)])
    return {
        "url_slug": slug,
        "status": "Draft",
        "tier": _find_tier(found),
        "deployment": sections,
    }


def _spell(text: str) -> list[str]:
    """Return the words of a name in letters that an address may have."""
    kept = "".join(c if c.isascii() and c.isalnum() else " " for c in text.lower())
    return kept.split()


def _check_answers(given: dict[str, Any]) -> None:
    known = {field for fields in FIELDS.values() for field in fields} | set(QUESTIONS)
    for field, value in given.items():
        check(
            field in known,
            f"answers must be among {sorted(QUESTIONS)}, or name another field of the "
            f"registry, got {field!r}.",
        )
        listed = isinstance(value, (list, tuple))
        check(
            isinstance(value, str) or (field in LISTS and listed),
            f"The answer {field!r} must be text"
            f"{' or a list of texts' if field in LISTS else ''}, got {value!r}.",
        )
        options = CHOICES.get(field)
        check(
            options is None or value in options,
            f"The answer {field!r} must be one of {options}, got {value!r}.",
        )
        if listed:
            given[field] = [str(one) for one in value]


def _find_tier(found: Mapping[str, Any]) -> int:
    """Return the highest tier whose fields are all answered, at least 1."""
    missing = [
        tier
        for fields in FIELDS.values()
        for field, tier in fields.items()
        if any(TODO in str(one) for one in _list(found.get(field, "")))
    ]
    return max(1, min(missing, default=4) - 1)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _derive_fields(about: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields that follow from what a model states and releases."""
    model, record = about.model, about.record
    schema, one = model.schema_, name_record(record.unit)
    facts = dict(describe_fit(model))
    target = schema.target_name or "the target"
    count, reason = describe_rows(model)
    yield "name", f"{model.title} of {target}"
    yield "data_product_type", "Machine learning model"
    yield (
        "description",
        f"{model.title} of {target} on {facts['Columns'].split(' (')[0]} "
        f"column(s), fitted to {count} {one}s ({reason}).",
    )
    yield "variant_name", "Approximate DP"
    yield "data_domain", "\n".join(_describe_domain(model))
    _, promised, public, _, _ = (lines for _, lines in write_parts(model))
    yield "unprotected_quantities", _itemise(public)
    by_person = record.unit is not None
    yield (
        "privacy_unit",
        f"person-level ({record.unit})" if by_person else "record-level (one row)",
    )
    yield (
        "privacy_unit_details",
        f"Neighbouring tables ({record.neighbours}): {describe_neighbours(record)}.",
    )
    yield (
        "privacy_parameters",
        {"epsilon": record.spent_epsilon, "delta": record.delta},
    )
    yield "privacy_parameters_details", _itemise([_describe_mu(record), *promised])
    yield "model_name", "Central"
    yield (
        "model_name_details",
        "One party holds the table in the clear, runs the program and publishes the "
        "model. Noise is added before anything leaves the program.",
    )
    yield "release_type", "One release"
    yield "data_source_type_details", "The model is fitted once to the table as it was."
    yield "access_type", "Non-interactive"
    yield (
        "access_type_details",
        "The published model is a set of text files. Nobody queries the table.",
    )
    yield (
        "post_processing",
        "Everything in the model is computed from the releases alone: weights, "
        "coefficients in the units of the columns, standard errors and intervals, and "
        "predictions.",
    )
    yield "composition", _describe_composition(record, model.ledger is not None)
    yield "preprocessing_and_hyperparameter_tuning", _describe_preprocessing(model)
    yield "mechanisms", _itemise(_describe_mechanisms(about))
    yield (
        "notes",
        "Written by skdp from the model's privacy record, which was verified "
        "first. `skdp verify` recomputes ε from the list of releases.",
    )


def _describe_domain(model: Any) -> Iterator[str]:
    schema = model.schema_
    yield (
        "Every table with the columns below. A number outside its range counts as the "
        "end of the range. A cell that cannot be read counts as the column's public "
        "default."
    )
    yield ""
    columns = list(schema.columns.items())
    for name, column in columns[:MOST_COLUMNS]:
        yield f"- {shorten(str(name), 80)}: {shorten(describe_column(column), 160)}"
    if len(columns) > MOST_COLUMNS:
        yield f"- and {len(columns) - MOST_COLUMNS:,} more columns"
    name = shorten(str(schema.target_name or "target"), 80)
    yield f"- {name} (target): {shorten(describe_column(schema.target_column), 160)}"


def _describe_mu(record: PrivacyRecord) -> str:
    epsilon, delta = map(format_number, (record.spent_epsilon, record.delta))
    return (
        "The releases together are μ-Gaussian DP with μ = "
        f"{math.sqrt(record.spent):.6g}, which is stated as ε = {epsilon} at δ = "
        f"{delta}."
    )


def _describe_composition(record: PrivacyRecord, ledger: bool) -> str:
    lines = [
        "Sequential composition under Gaussian DP: μ² is the sum of 1/(noise "
        "multiplier)² over all releases, and (ε, δ) follows exactly from μ.",
        *(
            f"{one.name}: {count_in_words(f'{one.times:,}', 'release')}, "
            f"{one.share:.1%} of the budget"
            for one in group_by_purpose(record)
        ),
    ]
    kept = "a ledger adds up all results from the table and enforces a total."
    lines.append(
        f"Across results: {kept}"
        if ledger
        else "Across results: no ledger was charged, so other results from the same "
        "table must be added by hand."
    )
    return _itemise(lines)


def _describe_preprocessing(model: Any) -> str:
    default = type(model)()
    changed = [
        name
        for name in SETTINGS
        if str(getattr(model, name)) != str(getattr(default, name))
    ]
    settings = (
        f"Settings that differ from the defaults: {', '.join(changed)}."
        if changed
        else "All settings have their defaults, which follow from public facts and "
        "released values by a fixed rule. Nothing was tuned on the table by the fit."
    )
    return (
        "Cells are clipped and scaled by the public schema, without looking at other "
        f"rows. What the schema left open was found within the budget. {settings}"
    )


def _describe_mechanisms(about: Any) -> list[str]:
    return [
        f"Gaussian mechanism on sums over {name_record(about.record.unit)}s, as "
        f"implemented by skdp {skdp.__version__}.",
        "Floating point: values are rounded to fixed public grids, sums are exact "
        "integers, and the noise is drawn exactly, from the random numbers of the "
        "operating system.",
        "Timing: the run time depends on records and is not protected. The model does "
        "not state it, and no outsider may start or time fits.",
        "Platform: every engine gives the same bits as a reference in plain numpy.",
    ]


def _itemise(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def render_entry(entry: Mapping[str, Any]) -> str:
    """Return an entry as YAML, with a comment that lists the open questions."""
    head = [
        "# An entry for the registry of differential-privacy deployments,",
        "# https://registry.opendp.org. Replace what starts with TODO.",
    ]
    return "\n".join([*head, *_write_yaml(entry, 0)]) + "\n"


def _write_yaml(values: Mapping[str, Any], depth: int) -> Iterator[str]:
    """Yield lines of YAML. Texts of one line are written as JSON, which is YAML."""
    room = "  " * depth
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield f"{room}{key}:"
            yield from _write_yaml(value, depth + 1)
        elif isinstance(value, list):
            yield f"{room}{key}:"
            yield from (f"{room}- {_quote(one)}" for one in value)
        elif isinstance(value, str) and "\n" in value and _fits_block(value):
            yield f"{room}{key}: |-"
            yield from (f"{room}  {line}".rstrip() for line in value.split("\n"))
        else:
            yield f"{room}{key}: {_quote(value)}"


def _fits_block(text: str) -> bool:
    """Return whether a block of YAML can hold a text as it is."""
    return all(c.isprintable() or c == "\n" for c in text) and not text[0].isspace()


def _quote(value: Any) -> str:
    if isinstance(value, float):  # YAML wants a point in a number with an exponent
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    return json.dumps(value, ensure_ascii=not str(value).isprintable())
