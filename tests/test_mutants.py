"""Planted bugs still apply: `benchmarks/mutants.py` plants them and runs the tests."""

import ast
import csv
import tomllib
from functools import cache
from pathlib import Path

from planted import BUGS as FOLDER
from planted import read_bugs

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "skdp"
BUGS = read_bugs()
KEYS = {"title", "leaks", "before", "after", "author"}


@cache
def tree_of(file):
    return ast.dump(ast.parse((SOURCE / file).read_text(encoding="utf-8")))


def test_a_bug_applies_exactly_once_to_a_source_that_can_be_read():
    for name, bug in BUGS.items():
        keys = set(tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")))
        assert keys - {"tests"} in (KEYS | {"function"}, KEYS | {"file"}), name
        assert bug.title, name
        assert bug.leaks, name
        assert bug.author in ("a", "b", "c"), name
        file, planted = bug.plant(SOURCE)  # an error of it names the bug
        assert ast.dump(ast.parse(planted, f"{file} with {name}")) != tree_of(file)


def test_the_tests_that_should_catch_it_exist():
    for name, bug in BUGS.items():
        for test in bug.tests:
            path, *functions = test.split("::")
            source = (ROOT / path).read_text(encoding="utf-8")
            for function in functions:
                assert f"def {function}(" in source, f"{name} names {test}"


def test_there_are_enough_of_them_and_no_two_are_the_same():
    assert len(BUGS) >= 25
    assert sum(bug.author == "b" for bug in BUGS.values()) >= 5
    planted = {(bug.function, bug.file, bug.before, bug.after) for bug in BUGS.values()}
    assert len(planted) == len(BUGS)


def test_the_table_has_all_of_them_and_each_is_caught():
    """``python benchmarks/mutants.py --only NAME --write`` adds a line."""
    evidence = ROOT / "docs" / "evidence"
    with (evidence / "mutants.csv").open(encoding="utf-8", newline="") as file:
        lines = {line["name"]: line for line in csv.DictReader(file)}
    assert set(lines) == set(BUGS)
    assert [name for name, line in lines.items() if not line["caught"]] == []
    page = (evidence / "mutants.md").read_text(encoding="utf-8")
    assert page.count("\n| ") == len(BUGS) + 1
