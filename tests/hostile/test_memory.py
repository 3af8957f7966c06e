"""A small saved model takes little memory to read, whatever sizes it states."""

import json
import tracemalloc
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest

import skdp

MIB = 1 << 20
#: What reading may take beyond a few times the size of the files, in bytes.
MODEST = 24 * MIB
N = 200
TABLE = {"a": np.linspace(0, 1, N), "c": np.array(["p", "q"] * (N // 2))}
TABLE["y"] = np.array(["k0", "k1"] * (N // 2))
FILES = ("model.json", "privacy.json", "schema.toml")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The content of the files of a small model."""
    schema = skdp.Schema(
        {"a": skdp.Numeric(0, 1), "c": skdp.Categorical(["p", "q"])},
        target=("y", skdp.Categorical(["k0", "k1"])),
    )
    model = skdp.LogisticRegression(schema=schema, n_steps=2, engine="reference")
    folder = tmp_path_factory.mktemp("saved") / "m"
    model.fit(TABLE).save(folder)
    texts = [(folder / name).read_text("utf-8") for name in FILES]
    model_json, privacy_json = map(json.loads, texts[:2])
    model_json["parameters"]["schema"] = None
    model_json["uncertainty"] = "None."
    return model_json, privacy_json, skdp.Schema.from_toml(texts[2]).to_toml()


TARGET = '[target]\nname = "y"\nkind = "categorical"\nlevels = {}\n'
TWO = TARGET.format('["k0", "k1"]')


def columns(**bodies):
    """The TOML text of columns, each given by the rest of its table."""
    return "".join(f'["columns"."{name}"]\n{body}\n' for name, body in bodies.items())


def numeric(more=""):
    return f'kind = "numeric"\nlow = 0\nhigh = 1\n{more}'


def categorical(levels):
    return f'kind = "categorical"\nlevels = {json.dumps(levels)}'


def wide_classes(model, levels):
    model["weights"] = [[0.0] * len(levels)] * len(model["weights"])
    text = columns(a=numeric(), c=categorical(["p", "q"]))
    return text + TARGET.format(json.dumps(levels))


def type_of_classes(model, record):
    model["classes_dtype"] = "<U99999"
    return wide_classes(model, [f"k{i:05}" for i in range(3000)])


def one_long_class(model, record):
    return wide_classes(model, [*(f"k{i:05}" for i in range(2999)), "z" * 500_000])


def one_long_class_of_the_parameters(model, record):
    levels = [*(f"k{i:05}" for i in range(2999)), "z" * 500_000]
    model["parameters"]["classes"] = levels
    return columns(a=numeric(), c=categorical(["p", "q"])) + TWO


def many_bins(model, record):
    return columns(**{f"a{i}": numeric("bins = 65000") for i in range(60)}) + TWO


def many_knots(model, record):
    return columns(**{f"a{i}": numeric("knots = 1000") for i in range(400)}) + TWO


def long_names(model, record):
    return columns(**{"a" * 100_000: numeric("bins = 65000")}) + TWO


def long_level_in_a_pair(model, record):
    pair = 'kind = "pair"\nfirst = "a"\nsecond = "c"\nknots = 254'
    levels = ["z" * 500_000, *map(str, range(200))]
    return columns(a=numeric(), c=categorical(levels), p=pair) + TWO


def many_pairs(model, record):
    ends = {f"a{i}": numeric() for i in range(20)}
    pairs = {
        f"p{i}.{j}": f'kind = "pair"\nfirst = "a{i}"\nsecond = "a{j}"\nknots = 250'
        for i in range(20)
        for j in range(i)
    }
    return columns(**ends, **pairs) + TWO


def errors_of_many_weights(model, record):
    levels = [str(i) for i in range(20_000)]
    model["weights"] = [[0.0]] * (len(levels) + 1)
    names = ["noise_std", "std", "effects", "effects_noise_std"]
    names += ["effects_sampling_std", "effects_std"]
    model["uncertainty"] = {name: [] for name in names}
    return columns(c=categorical(levels)) + TWO


def many_empty_lists(model, record):
    model["parameters"]["bounds"] = [[]] * 1_000_000
    return columns(a=numeric(), c=categorical(["p", "q"])) + TWO


def many_releases(model, record):
    release = record["releases"][0]
    record["releases"] = [release | {"query": str(i)} for i in range(3000)]
    return columns(a=numeric(), c=categorical(["p", "q"])) + TWO


def times_without_end(model, record):
    record["releases"][0]["times"] = 1 << 53
    return columns(a=numeric(), c=categorical(["p", "q"])) + TWO


#: The estimator accepts any parameters, and checks them when it is fitted.
HARMLESS = [one_long_class_of_the_parameters]
BOMBS = [
    type_of_classes,
    one_long_class,
    one_long_class_of_the_parameters,
    many_bins,
    many_knots,
    long_names,
    long_level_in_a_pair,
    many_pairs,
    errors_of_many_weights,
    many_empty_lists,
    many_releases,
    times_without_end,
]


@pytest.mark.parametrize("bomb", BOMBS, ids=lambda bomb: bomb.__name__)
def test_a_small_model_takes_little_memory(bomb, saved, tmp_path):
    model, record, _ = deepcopy(saved)
    schema = bomb(model, record)
    contents = json.dumps(model), json.dumps(record), schema
    for name, text in zip(FILES, contents, strict=True):
        (tmp_path / name).write_text(text, "utf-8")
    size = sum(len(text) for text in contents)
    for look in (skdp.load, skdp.verify):
        tracemalloc.start()
        try:
            found = look(tmp_path)
        except ValueError as error:
            found = error
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < MODEST + 8 * size, f"{peak / MIB:.0f} MiB"
        if isinstance(found, ValueError):
            assert "\n" not in str(found)
        elif look is skdp.verify:
            assert not found.passed
        else:
            assert bomb in HARMLESS


def test_the_honest_model_takes_little_memory(saved, tmp_path):
    """Otherwise the test above could not fail for the reason it states."""
    model, record, schema = saved
    for name, text in zip(
        FILES, (json.dumps(model), json.dumps(record), schema), strict=True
    ):
        (tmp_path / name).write_text(text, "utf-8")
    tracemalloc.start()
    skdp.load(Path(tmp_path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MIB
