"""Entries of the registry of deployments hold what a model states, and ask the rest."""

import math

import pytest
import yaml
from pages import model

import skdp
from skdp.reporting.deployment_entry import CHOICES, FIELDS, PARTS, QUESTIONS, TODO

ANSWERS = {field: f"An answer: {field}" for field in QUESTIONS}
ANSWERS |= {field: values[0] for field, values in CHOICES.items() if field in QUESTIONS}
ANSWERS["publication_date"] = "2026-01-31"
ANSWERS["data_curators"] = ["A ministry", "A: university"]


def read(name, **options):
    text = skdp.report(model(name), form="registry", **options)
    return yaml.safe_load(text)


@pytest.mark.parametrize("name", ["plain", "softmax", "hostile", "persons", "curves"])
def test_an_entry_has_the_fields_of_the_registry(name):
    made, entry = model(name), read(name)
    assert {*entry} == {"url_slug", "status", "tier", "deployment"}
    assert (entry["status"], entry["tier"]) == ("Draft", 1)
    found = {s: {*fields} for s, fields in entry["deployment"].items()}
    assert found == {section: {*fields} for section, fields in FIELDS.items()}
    loss = entry["deployment"]["privacy_loss"]
    stated = {"epsilon": made.privacy_.spent_epsilon, "delta": made.privacy_.delta}
    assert loss["privacy_parameters"] == stated
    assert loss["privacy_unit"].startswith("person" if name == "persons" else "record")
    assert made.privacy_.neighbours in loss["privacy_unit_details"]
    text = skdp.report(made, form="registry")
    assert text.count(TODO) == len(QUESTIONS)
    assert made.card(format="registry") == text


def test_answers_are_entered_and_raise_the_tier():
    entry = read("plain", answers=ANSWERS)
    assert entry["tier"] == 3
    assert TODO not in str(entry)
    basic = entry["deployment"]["basic"]
    assert basic["data_curators"] == ANSWERS["data_curators"]
    assert basic["publication_date"] == "2026-01-31"
    for part, field in PARTS.items():
        assert entry["deployment"]["implementation"][field].endswith(ANSWERS[part])
    own = read("plain", answers={"name": "Ours"})["deployment"]
    assert own["basic"]["name"] == "Ours"
    tiers = {
        field: tier for fields in FIELDS.values() for field, tier in fields.items()
    }
    low = {f: a for f, a in ANSWERS.items() if tiers.get(f, 3) < 3}
    assert read("plain", answers=low)["tier"] == 2


def test_what_cannot_be_entered_is_refused():
    for answers, message in (
        ({"curator": "us"}, "answers must be among"),
        ({"intended_use": 3}, "must be text, got 3"),
        ({"data_source_type": "Slow"}, "must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            read("plain", answers=answers)
    with pytest.raises(ValueError, match="claims no privacy"):
        read("seeded")
    with pytest.raises(ValueError, match="requires form='registry'"):
        skdp.report(model("plain"), answers=ANSWERS)
    free = skdp.LogisticRegression(epsilon=math.inf, bounds=(0, 1), classes=[0, 1])
    free.fit([[0.0], [1.0]] * 20, [0, 1] * 20)
    with pytest.raises(ValueError, match="claims no privacy"):
        free.card("registry")
