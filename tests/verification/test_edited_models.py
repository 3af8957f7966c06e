"""The ledger detects every change to a saved model that was charged to it."""

import json
import re
import shutil

import numpy as np
import pytest

import skdp
from skdp.estimators.saving import COSMETIC
from skdp.ledger.digests import content_digest

pytest.importorskip("mpmath")
rng = np.random.default_rng(3)
N = 3000
TABLE = {
    "a": rng.uniform(size=N),
    "b": rng.uniform(size=N),
    "c": rng.choice(["p", "q"], N),
    "w": rng.uniform(size=N),
}
TABLE["y"] = np.where(TABLE["a"] + rng.uniform(size=N) > 1, "yes", "no")
SCHEMA = skdp.Schema(
    {
        "a": skdp.Numeric(0, 1),
        "b": skdp.Numeric(0, 1),
        "c": skdp.Categorical(["p", "q"]),
    },
    target=("y", skdp.Categorical(["no", "yes"])),
)
#: Another value for each value of a type.
OTHERS = {
    bool: lambda value: not value,
    int: lambda value: value + 1,
    float: lambda value: value * (1 + 1e-9) or 1e-9,
    str: lambda value: value + "x",
    type(None): lambda _: 1,
}


@pytest.fixture(scope="module")
def paid(tmp_path_factory):
    """A model with standard errors and shares, and the ledger that paid for it."""
    place = tmp_path_factory.mktemp("paid")
    ledger = skdp.Ledger(place / "budget", epsilon=8.0, delta=1e-5)
    given = {"schema": SCHEMA, "epsilon": 4, "delta": 1e-6, "max_weight": 2}
    model = skdp.AdditiveClassifier(
        **given, knots=3, pairs=None, n_steps=6, engine="reference", ledger=ledger
    ).fit(TABLE, sample_weight="w")
    model.save(place / "model")
    return model, place / "model", ledger


def walk(value, way=()):
    """Yield the way to each leaf of nested lists and dicts.

    Only the first and the last number of a list are leaves, as all of them are read in
    the same way.
    """
    parts = []
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = list(enumerate(value))
        if all(isinstance(part, float) for part in value):
            parts = [*parts[:1], *parts[1:][-1:]]
    for key, part in parts:
        yield from walk(part, (*way, key))
    if not parts:
        yield way


def change(value, way):
    """Return a copy of nested lists and dicts in which one leaf has another value."""
    whole = at = json.loads(json.dumps(value))
    for key in way[:-1]:
        at = at[key]
    old = at[way[-1]]
    at[way[-1]] = [1] if isinstance(old, list | dict) else OTHERS[type(old)](old)
    return whole


def passes(directory, ledger):
    """Whether a saved model is believed."""
    try:
        return skdp.verify(directory, ledger).passed
    except ValueError:  # refused, so it is not believed either
        return False


def is_cosmetic(way):
    return any(way[: len(path)] == path for path in COSMETIC)


@pytest.mark.parametrize("file", ["model.json", "privacy.json"])
def test_every_edit_is_found_except_cosmetic_ones(file, paid, tmp_path):
    _, honest, ledger = paid
    directory = shutil.copytree(honest, tmp_path / "model")
    content = json.loads((honest / file).read_text("utf-8"))
    ways = list(walk(content))
    assert len(ways) > 40
    believed = set()
    for way in ways:
        (directory / file).write_text(json.dumps(change(content, way)))
        if passes(directory, ledger):
            believed.add(way)
    cosmetic = {way for way in ways if is_cosmetic(way)}
    assert believed == (cosmetic if file == "model.json" else set())
    (directory / file).write_text(json.dumps(content))
    assert passes(directory, ledger)  # white space is not content


def test_every_edit_of_the_schema_is_found(paid, tmp_path):
    _, honest, ledger = paid
    directory = shutil.copytree(honest, tmp_path / "model")
    text = (honest / "schema.toml").read_text("utf-8")
    edits = [("= 0", "= 0.0"), ('"p"', '"pp"'), ("columns.a]", "columns.z]")]
    edits += [('name = "y"', 'name = "z"'), ("knots = 3", "knots = 4")]
    for old, new in edits:
        assert old in text
        (directory / "schema.toml").write_text(text.replace(old, new, 1))
        assert not passes(directory, ledger), new
    parts = re.split(r"\n(?=\[)", text)
    swapped = "\n".join([parts[1], parts[0], *parts[2:]])
    (directory / "schema.toml").write_text(swapped)
    assert not passes(directory, ledger)
    (directory / "schema.toml").write_text("# a comment\n" + text)
    assert passes(directory, ledger)


def test_honest_models_pass_however_often_they_are_saved(paid, tmp_path):
    model, honest, ledger = paid
    skdp.load(honest).save(tmp_path / "again")
    other = skdp.load(tmp_path / "again").set_params(n_threads=1, verbose=1)
    other.save(tmp_path / "third")
    for form in (model, honest, skdp.load(honest), other, tmp_path / "third"):
        assert skdp.verify(form, ledger).passed, str(skdp.verify(form, ledger))
    other.set_params(max_rows_per_unit=2)
    assert not skdp.verify(other, ledger).passed


def test_a_paid_fit_ends_whatever_types_its_parameters_have(tmp_path):
    """The digest is computed after the budget was spent, so it must not fail."""
    ledger = skdp.Ledger(tmp_path / "budget", epsilon=8.0, delta=1e-5)
    given = {"schema": SCHEMA, "epsilon": np.float32(2), "delta": np.float64(1e-6)}
    given |= {"n_rows": np.int64(N), "n_steps": np.int32(3), "max_weight": 1}
    model = skdp.LogisticRegression(**given, engine="reference", ledger=ledger)
    model.fit(TABLE).save(tmp_path / "model")
    for form in (model, tmp_path / "model", skdp.load(tmp_path / "model")):
        assert skdp.verify(form, ledger).passed, str(skdp.verify(form, ledger))


#: Values that are stated twice, or that follow from others. No ledger is needed.
CONTRADICTIONS = {
    "epsilon": (("parameters", "epsilon"), 0.5, "parameters"),
    "delta": (("parameters", "delta"), 1e-9, "parameters"),
    "neighbours": (("parameters", "neighbours"), "replace-one", "parameters"),
    "rows of a person": (("parameters", "max_rows_per_unit"), 3, "parameters"),
    "rows": (("parameters", "n_rows"), 7, "parameters"),
    "penalty": (("parameters", "alpha"), 0.5, "parameters"),
    "unreadable": (("parameters", "alpha"), "none", "parameters"),
    "steps": (("parameters", "n_steps"), 7, "parameters"),
    "solver": (("parameters", "solver"), "dp_sgd", "parameters"),
    "classes": (("parameters", "classes"), ["no", "maybe"], "parameters"),
    "assumptions": (("assumptions", 0), "Nothing is public.", "assumptions"),
    "no schema": (("parameters", "schema"), None, "assumptions"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_found_without_a_ledger(name, paid, tmp_path):
    way, value, check = CONTRADICTIONS[name]
    directory = shutil.copytree(paid[1], tmp_path / "model")
    file = "privacy.json" if way[0] == "assumptions" else "model.json"
    content = at = json.loads((directory / file).read_text("utf-8"))
    for key in way[:-1]:
        at = at[key]
    at[way[-1]] = value
    (directory / file).write_text(json.dumps(content))
    found = skdp.verify(directory)
    assert check in [one.name for one in found.checks if one.passed is False]


def test_without_a_ledger_the_report_says_what_nobody_vouches_for(paid):
    found = skdp.verify(paid[1])
    assert found.passed
    assert "not checked  released values: weights, standard errors" in str(found)
    assert "released values" not in str(skdp.verify(*paid[1:]))


@pytest.mark.parametrize(
    ("way", "value", "message"),
    [
        (("uncertainty", "effects", 0), 9.0, "effects in model.json do not follow"),
        (("uncertainty", "std", 0), -1.0, "at uncertainty"),
        (("shares", 0), 0.9, "must add up to 1"),
    ],
)
def test_effects_and_shares_are_checked_again(way, value, message, paid, tmp_path):
    directory = shutil.copytree(paid[1], tmp_path / "model")
    content = at = json.loads((directory / "model.json").read_text("utf-8"))
    for key in way[:-1]:
        at = at[key]
    at[way[-1]] = value
    (directory / "model.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        skdp.load(directory)


@pytest.mark.parametrize("file", ["model.json", "privacy.json"])
def test_a_repeated_key_is_refused(file, paid, tmp_path):
    """Readers would believe the first value, and programs the last."""
    directory = shutil.copytree(paid[1], tmp_path / "model")
    text = (directory / file).read_text("utf-8")
    key = '"neighbours"'
    (directory / file).write_text(text.replace(key, f'{key}: "zero-out", {key}', 1))
    for look in (skdp.load, skdp.verify):
        with pytest.raises(ValueError, match="'neighbours' is repeated"):
            look(directory)


def test_a_digest_tells_values_of_different_types_apart():
    values = [1, 1.0, "1", True, None, "None", [1], {"1": 1}, -1, 2**20_000, -0.0, 0.0]
    assert len({content_digest(value) for value in values}) == len(values)
    assert content_digest({"a": 1, "b": 2}) == content_digest({"b": 2, "a": 1})
    assert content_digest(np.float64(0.1)) == content_digest(0.1)
