"""A model's directory that somebody else wrote: refused in a sentence, or read."""

import json
import os
import shutil
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import command, files, fuzzed
from sklearn.base import clone

import skdp

NAMES = ("model.json", "schema.toml", "privacy.json")

VALUES = (
    st.sampled_from(
        [
            *(None, True, False, 0, 1, -1, 2, 0.5, 1e-9, -1e308, 1e308, 1e-308, 1e-160),
            *(2**31, 2**63, 2**64, 10**299, 10**400, -(10**400), 5e-324, 1e100, 1e9),
            *(
                "",
                "inf",
                "nan",
                "1",
                "x" * 1000,
                "é\x1b[2J",
                "../../up",
                "/etc/passwd",
                "\0",
            ),
            *(
                "<U999999999",
                "|O",
                "<f8",
                "<M8[ns]",
                "V9999999",
                "os.system",
                "__class__",
            ),
            *(
                [],
                {},
                [[]],
                [1, "a"],
                [[0.0]] * 4,
                {"a": 1},
                [None],
                {"__class__": "os"},
            ),
            *("logistic", "LinearRegression", "Matrix", "gradient of x", "dp_sgd"),
        ]
    )
    | st.floats()
    | st.integers(-(10**6), 10**6)
    | st.text(max_size=5)
).map(deepcopy)  # a drawn value may be changed later
"""Values of the wrong type, to be put in place of the right ones."""


class Texts(dict):
    """The texts of a model's files. Reports of failures do not show them."""

    def __repr__(self):
        return "the model"


TABLE = {
    name: np.array(cells * 20)
    for name, cells in {"age": [1.0, 2], "job": ["a", "b"], "y": ["no", "yes"]}.items()
}
MODEL = skdp.LogisticRegression(
    schema=skdp.Schema(
        {"age": skdp.Numeric(0, 100), "job": skdp.Categorical(["a", "b"])},
        target=("y", skdp.Categorical(["no", "yes"])),
    ),
    class_weight={"no": 0.5},
)


def texts(model, folder):
    model.save(folder / "m")
    return Texts({name: (folder / "m" / name).read_text("utf-8") for name in NAMES})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The texts of the files of a model."""
    return texts(clone(MODEL).fit(TABLE), tmp_path_factory.mktemp("saved"))


@pytest.fixture(scope="module")
def chosen(tmp_path_factory):
    """The texts of the files of a model that a random search chose."""
    search = skdp.PrivateSearchCV(MODEL, {"alpha": [0.1, 1.0]}, method="random")
    return texts(search.fit(TABLE).best_estimator_, tmp_path_factory.mktemp("chosen"))


def places(tree, at=()):
    """Every place in a tree of JSON."""
    yield at
    if isinstance(tree, (dict, list)):
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        for key in keys:
            yield from places(tree[key], (*at, key))


def edited(data, text):
    """A tree of JSON with one to three of its places changed."""
    tree = json.loads(text)
    for _ in range(data.draw(st.integers(1, 3))):
        *way, last = data.draw(st.sampled_from(list(places(tree))[1:]))
        at = tree
        for key in way:
            at = at[key]
        how = data.draw(st.sampled_from(["set", "set", "set", "del", "add", "twice"]))
        if how == "del":
            del at[last]
        elif how == "twice" and isinstance(at, list):
            at.append(at[last])
        elif how == "add" and isinstance(at, dict):
            at[data.draw(st.text(max_size=5))] = data.draw(VALUES)
        else:
            at[last] = data.draw(VALUES)
        if not isinstance(tree, dict) or len(list(places(tree))) < 2:
            break
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def damaged(data, text):
    """Bytes that were cut, overwritten or put in."""
    whole = text.encode()
    at = data.draw(st.integers(0, len(whole)))
    more = data.draw(st.binary(max_size=8) | st.sampled_from(FRAGMENTS))
    gone = data.draw(st.sampled_from([0, 1, len(more), 50, len(whole)]))
    return whole[:at] + more + whole[at + gone :]


FRAGMENTS = [
    b"[" * 3000,
    b'{"a":' * 3000,
    b"9" * 5000,
    b"1e999",
    b"NaN",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\0" * 9,
    b'"\\ud800"',
    b"x = " + b"[" * 3000,
    b"x = " + b"{a=" * 3000,
    b"low = 0x" + b"f" * 5000 + b"\n",
]


def tried(folder):
    """Run the commands that read a model on this one. They write only to --out."""
    before = files(folder)
    verify, predict = ["verify", "m", "--statement"], ["predict", "m", "t.csv"]
    for words in (verify, [*predict, "--out", "p.csv"]):
        code = command(*words)[0]
        made = files(folder)
        written = made.pop("p.csv", None)
        assert made == before
        assert (written is not None) == (words[0] == "predict" and code == 0)
        Path("p.csv").unlink(missing_ok=True)


def written(saved):
    shutil.rmtree("m", ignore_errors=True)
    os.mkdir("m")
    for name, text in saved.items():
        Path("m", name).write_text(text, "utf-8")


@fuzzed(30)
@given(data=st.data())
def test_changed_values(place, saved, chosen, data):
    model = data.draw(st.sampled_from([saved, saved, chosen]))
    name = data.draw(st.sampled_from(["model.json", "privacy.json"]))
    written(model)
    Path("m", name).write_bytes(edited(data, model[name]))
    tried(place)


EXTREMES = {
    "little noise": {"times": 2**53, "noise_multiplier": 1e-100},
    "much noise": {"times": 2**53, "noise_multiplier": 1e100},
    "μ of 25": {"times": 10**4, "noise_multiplier": 4.0},
    "μ of 1e8": {"times": 10**14, "noise_multiplier": 0.1},
    "draws": {"n_draws": 2**53},
    "small δ": {"delta": 5e-324},
    "large δ": {"delta": 1 - 2**-53},
}


@pytest.mark.parametrize("what", EXTREMES)
@pytest.mark.parametrize("delta", [5e-324, 1e-300, 1e-6, 1 - 2**-53])
def test_no_numbers_take_long_to_verify(place, saved, what, delta):
    record = json.loads(saved["privacy.json"]) | {"delta": delta}
    record["releases"] = [record["releases"][-1] | EXTREMES[what]]
    written(saved | {"privacy.json": json.dumps(record)})
    assert command("verify", "m")[0] in (0, 1)


def test_many_kinds_of_releases_do_not_take_long_to_verify(place, saved):
    record = json.loads(saved["privacy.json"])
    each = [{"times": 1, "noise_multiplier": 200.0 + i / 100} for i in range(9999)]
    record["releases"] = [record["releases"][-1] | kind for kind in each]
    written(saved | {"privacy.json": json.dumps(record)})
    code, out, _ = command("verify", "m")
    assert code == 1
    assert "dp-accounting takes too long for more than 100" in out


@pytest.mark.parametrize(
    "change",
    [
        *({"stop": stop} for stop in (-0.5, 0.0, 5e-324, 1e-7, 1.5, 1e308)),
        *({"n_trials": n} for n in (-1, 0, 10**7, 10**299)),
    ],
    ids=lambda change: "{} of {:g}".format(*next(iter(change.items()))),
)
def test_searches_that_nobody_makes_are_refused(place, chosen, change):
    record = json.loads(chosen["privacy.json"])
    record["search"] |= change
    written(chosen | {"privacy.json": json.dumps(record)})
    for words in (["verify", "m"], ["predict", "m", "t.csv", "--out", "p.csv"]):
        code, _, err = command(*words)
        assert (code, err.count("\n")) == (2, 1)


@pytest.mark.parametrize("delta", [-1.0, 0.0, 1.0, 1e308])
def test_an_impossible_delta_is_refused(place, saved, delta):
    record = json.loads(saved["privacy.json"]) | {"delta": delta}
    written(saved | {"privacy.json": json.dumps(record)})
    assert command("verify", "m")[0] == 2


@fuzzed(15)
@given(data=st.data())
def test_damaged_files(place, saved, data):
    name = data.draw(st.sampled_from(NAMES))
    written(saved)
    Path("m", name).write_bytes(damaged(data, saved[name]))
    tried(place)


@pytest.mark.parametrize("name", ["n_steps", "n_restarts", "slope_bound", "radius"])
@pytest.mark.parametrize("value", ["", [], {}, True, -1, "1"])
def test_a_plan_of_other_types_is_refused(place, saved, name, value):
    model = json.loads(saved["model.json"])
    model["plan"][name] = value
    written(saved)
    Path("m", "model.json").write_text(json.dumps(model))
    assert command("verify", "m")[0] == 2


def test_no_text_of_a_model_moves_the_cursor(place, saved):
    record = json.loads(saved["privacy.json"])
    query = record["releases"][0] | {"query": "\x1b[2J\nFORGED"}
    for change, shown in (
        ({"plan_digest": "\x1b[2J"}, "\\x1b[2J"),
        ({"releases": [query, *record["releases"][1:]]}, "\\x1b[2J"),
        ({"assumptions": ["\x1b[2J\x9b"]}, "FAILED  assumptions"),
    ):
        written(saved)
        Path("m", "privacy.json").write_text(json.dumps(record | change))
        _, out, _ = command("verify", "m", "--statement")
        assert shown in out
        for text in (out, str(skdp.verify("m"))):
            assert "\x1b" not in text
            assert "\nFORGED" not in text


def swapped(a, b):
    os.rename(Path("m", a), "m/aside")
    os.rename(Path("m", b), Path("m", a))
    os.rename("m/aside", Path("m", b))


def linked(name, to):
    Path("m", name).unlink()
    os.symlink(to, Path("m", name))


def folder(name):
    Path("m", name).unlink()
    os.mkdir(Path("m", name))


def fifo(name):
    Path("m", name).unlink()
    os.mkfifo(Path("m", name))


DIRECTORIES = {
    "empty file": lambda name: Path("m", name).write_bytes(b""),
    "no file": lambda name: Path("m", name).unlink(),
    "folder": folder,
    "pipe without a writer": fifo,
    "link to a device": lambda name: linked(name, "/dev/zero"),
    "link to itself": lambda name: linked(name, name),
    "link to nothing": lambda name: linked(name, "nowhere"),
    "link to another": lambda name: linked(name, "../t.csv"),
    "the model's": lambda name: name == "model.json" or swapped(name, "model.json"),
    "a zero byte": lambda name: Path("m", name).write_bytes(b"\0"),
    "unlimited": lambda name: os.truncate(Path("m", name), 1 << 40),
}


@pytest.mark.parametrize("what", DIRECTORIES)
@pytest.mark.parametrize("name", NAMES)
def test_other_things_in_place_of_a_file(place, saved, name, what):
    written(saved)
    if DIRECTORIES[what](name) is True:
        return
    for words in (["verify", "m"], ["predict", "m", "t.csv", "--out", "p.csv"]):
        code, _, err = command(*words)
        assert code == 2
        assert err.count("\n") == 1
    assert not Path("p.csv").exists()
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("what", ["m", "link"])
def test_force_replaces_a_model_and_never_what_it_links_to(place, saved, what):
    """A link in place of a model is replaced itself; so is one in place of a file."""
    written(saved)
    os.mkdir("elsewhere")
    if what == "link":
        os.rename("m", "elsewhere/m")
        os.symlink("elsewhere/m", "m")
    else:
        for name in NAMES:
            os.rename(Path("m", name), Path("elsewhere", name))
            os.symlink(f"../elsewhere/{name}", Path("m", name))
    before = files(place / "elsewhere")
    fit = ["fit", "t.csv", "--schema", "s.toml", "--epsilon", "1", "--out", "m"]
    assert command(*fit, "--force")[0] == 0
    assert files(place / "elsewhere") == before
    assert not os.path.islink("m")
    assert not any(path.is_symlink() for path in Path("m").iterdir())
    assert sorted(os.listdir(place)) == ["elsewhere", "m", "s.toml", "t.csv"]


def test_nothing_is_unpickled(place, saved):
    """The words of a pickle that would make a file, in place of each file."""
    spell = b"cos\nsystem\n(S'touch owned'\ntR."
    for name in NAMES:
        written(saved)
        Path("m", name).write_bytes(spell)
        assert command("verify", "m")[0] == 2
        assert command("predict", "m", "t.csv", "--out", "p.csv")[0] == 2
    Path("m.pkl").write_bytes(spell)
    assert command("predict", "m.pkl", "t.csv", "--out", "p.csv")[0] == 2
    assert not Path("owned").exists()
