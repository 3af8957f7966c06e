"""What scripts rely on: --json and --quiet everywhere, errors as objects, codes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

import skdp
from skdp import cli
from skdp.engines import compilation, compiled, kernels

PAGE = Path(__file__).parents[2] / "docs/guide/cli.md"


def paths(command, words=()):
    """Every command and sub-command, as the words that call it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return [words]
    return [path for name, one in inner.items() for path in paths(one, (*words, name))]


ALL = paths(typer.main.get_command(cli.app))
everywhere = pytest.mark.parametrize("words", ALL, ids=" ".join)


def test_all_commands_are_found():
    assert {words[0] for words in ALL} == set(cli.COMMANDS)
    assert ("ledger", "export") in ALL


@everywhere
def test_every_command_can_talk_to_scripts_and_be_silent(call, words):
    code, out, _ = call(*words, "--help")
    assert code == 0
    assert "--json" in out
    assert "--quiet" in out
    assert "Examples:" in out


@everywhere
def test_wrong_usage_is_one_object_on_stderr(call, words):
    code, out, err = call(*words, "--bogus", "--json")
    assert (code, out) == (2, "")
    said = json.loads(err)
    assert said == {"error": said["error"], "notes": [], "exit_code": 2}
    assert "--bogus" in said["error"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["schema", "missing.csv"], "There is no file 'missing.csv'"),
        (["plan", "--schema", "missing.toml", "--rows", "9"], "There is no file"),
        (["predict", "missing", "t.csv", "--out", "p.csv"], "There is no saved model"),
        (["verify", "missing"], "There is no saved model"),
        (["ledger", "show", "missing"], "missing"),
        (["ledger", "check", "missing"], "There is no file"),
        (["demo", "--epsilon", "-1"], "epsilon must be positive"),
        (["audit", "--epsilon", "-1"], "epsilon must be positive"),
        ([], "No such option"),
        (["é\x1b\x9b\udcff"], "No such command"),
    ],
)
def test_what_is_refused_is_one_object_on_stderr(call, here, words, sentence):
    code, out, err = call(*words, "--json")
    assert (code, out) == (2, "")
    assert sentence in json.loads(err)["error"]
    assert all(letter == "\n" or letter.isprintable() for letter in err)


def test_a_mistake_of_ours_is_an_object_too(call, files, here, monkeypatch):
    def broken(*_, **__):
        raise KeyError("the cell of a record")

    monkeypatch.setattr(skdp.LogisticRegression, "fit", broken)
    table, schema = files / "readmitted.csv", files / "readmitted.toml"
    fit = ("fit", table, "--schema", schema, "--epsilon", 1, "--out", "m", "--json")
    code, out, err = call(*fit)
    assert (code, out) == (70, "")
    assert json.loads(err)["exit_code"] == 70
    assert "cell" not in err


def test_an_interrupt_is_an_object_with_what_was_spent(files, here):
    program = (
        "import os, pathlib, signal, time\n"
        # Shells let what they start in the background ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from skdp.estimators import saving\n"
        "def wait(file):\n"
        "    pathlib.Path('writing').touch(); time.sleep(20)\n"
        "saving.os.fsync = wait\n"
        "from skdp.cli import main; main()"
    )
    table, schema = files / "readmitted.csv", files / "readmitted.toml"
    words = ["fit", table, "--schema", schema, "--epsilon", "1", "--out", "m", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while not (here / "writing").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, "")
    said = json.loads(err)
    assert said["error"] == "Interrupted."
    assert "differential privacy" in said["notes"][0]


@pytest.mark.parametrize(
    ("options", "told"), [(["-q"], False), (["--json"], False), ([], True)]
)
def test_compiling_is_not_announced_where_nobody_reads(
    call, here, monkeypatch, options, told
):
    """As in a cold start, whose line would spoil what a script parses."""
    event = SimpleNamespace(data={"dispatcher": kernels.sweep})
    announce = compilation.CompilationListener().on_start
    monkeypatch.setattr(compiled, "compile_sweep", lambda: announce(event))
    code, _, err = call("demo", "--rows", "60", *options)
    assert (code, "compiling" in err) == (0, told)
    assert told or err == ""


def test_the_page_shows_what_an_error_is(call, here):
    shown = re.findall(
        r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
    )
    code, out, err = call("schema", "stay.csv", "--json")
    assert (code, out, [err]) == (2, "", shown)


def test_the_page_lists_every_exit_code():
    table = PAGE.read_text(encoding="utf-8").split("\n## For scripts\n")[1]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    named = {cli.REFUSED, cli.INTERNAL, cli.INTERRUPTED, cli.CLOSED}
    assert listed == {0, 1} | named


def test_names_of_strangers_do_not_reach_the_terminal_as_they_are(call, here):
    """C1 controls and letters that turn the line round, in a CSV header."""
    (here / "t.csv").write_text("a\x9b2J\u202eb,y\n1,2\n", encoding="utf-8")
    code, out, _ = call("schema", "t.csv", "--json")
    assert code == 0
    assert all(letter == "\n" or letter.isprintable() for letter in out)
    assert json.loads(out)["columns"][0]["name"] == "a\x9b2J\u202eb"
