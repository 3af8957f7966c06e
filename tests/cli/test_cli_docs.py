"""The page on the command line is true: its commands run, in order, as written."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from skdp import cli
from skdp.audit import suite
from skdp.cli import demo_fits, options
from skdp.estimators.fit import ESTIMATORS
from skdp.estimators.plan_fit import plan
from skdp.privacy.queries import NEIGHBOURS

PAGE = Path(__file__).parents[2] / "docs/guide/cli.md"
TEXT = PAGE.read_text(encoding="utf-8")
LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
    for line in block.splitlines()
]


def test_every_command_has_an_example_here_and_in_its_help():
    for name in cli.COMMANDS:
        assert any(line.startswith(f"skdp {name} ") for line in LINES), name
        assert f"\n## {name}\n" in TEXT
    assert len(LINES) > 6


def test_options_name_every_model_and_relation():
    """They are written out, so that `skdp --help` need not import the estimators."""
    ours = {n for n, kind in ESTIMATORS.items() if kind.__module__.startswith("skdp.")}
    assert set(options.Model) == ours
    assert all(f"`{name}`" in TEXT and f'"{name}"' in plan.__doc__ for name in ours)
    assert set(options.Neighbours) == set(NEIGHBOURS)


def test_the_page_runs(call, here, monkeypatch):
    monkeypatch.setattr(demo_fits, "FRESH_ROWS", 2_000)
    short = suite.make_fit_setting("linear", "add-remove", 8.0, n_trials=40)
    monkeypatch.setattr(suite, "list_quick_settings", lambda epsilon, delta: [short])
    for line in LINES:
        words = shlex.split(line)
        if words[0] != "skdp":
            subprocess.run(words, check=True, capture_output=True)
            continue
        code, out, err = call(*words[1:])
        assert (code, err) == (0, ""), line
        assert out
    assert (here / "models" / "epsilon-0.5" / "model.json").exists()


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_names_every_option_and_gives_examples(call, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = call(name, "--help")
    assert (code, err) == (0, "")
    assert "--json" in out or "Commands:" in out
    assert "Examples:" in out or "Commands:" in out
    for line in out.splitlines():
        assert len(line) <= 80 or line.lstrip().startswith("skdp")


def test_examples_of_the_help_are_usage_that_typer_takes(call, here):
    """The directory is empty, so each command stops at its first file."""
    from importlib import import_module

    for name in cli.COMMANDS:
        for example in getattr(
            import_module(f"skdp.cli.{name}_command"), "EXAMPLES", []
        ):
            words = shlex.split(example)
            assert words[:2] == ["skdp", name]
            if name in ("schema", "plan", "fit", "predict", "compare"):
                code, _, err = call(*words[1:])
                assert code == 2
                assert "There is no" in err, example
