import os
import subprocess
import sys

import pytest

import skdp


def test_version(call):
    code, out, err = call("--version")
    assert (code, out, err) == (0, f"skdp {skdp.__version__}, engine compiled\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["demo", "--epsilon", "0"], "epsilon must be positive"),
        (["demo", "--epsilon", "-1"], "epsilon must be positive"),
        (["demo", "--epsilon", "nan"], "epsilon must be positive"),
        (["demo", "--epsilon", "lots"], "--epsilon"),
        (["demo", "--rows", "0"], "n_rows must be at least 1"),
        (["demo", "--rows", "1.5"], "--rows"),
        (["demo", "--rows", "99999999999"], "at most 2,000,000"),
        (["demo", "--bogus"], "No such option"),
        (["nothing"], "No such command"),
    ],
)
def test_bad_usage_is_one_sentence_and_exit_code_2(call, arguments, sentence):
    code, out, err = call(*arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("skdp: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_no_command_is_help(call):
    code, out, err = call()
    assert code == 2
    assert (out + err).startswith("Usage: skdp")
    assert "demo" in out + err


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra_it_says_how_to_get_it(module):
    program = f"import sys; sys.modules[{module!r}] = None; import skdp.cli"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "The skdp command needs an extra: pip install 'skdp[cli]'.\n"


@pytest.fixture
def complete(call, monkeypatch):
    """Return the answer to a shell that asks for completions."""

    def run(instruction, **asked):
        for name, value in {"_SKDP_COMPLETE": instruction, **asked}.items():
            monkeypatch.setenv(name, value)
        code, out, _ = call()
        assert code == 0
        return out

    return run


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("skdp f", {"fit"}), ("skdp fit x --model ", {"logistic", "linear", "huber"})],
)
def test_shells_complete_commands_and_choices(complete, typed, offered):
    place = str(len(typed.split(" ")) - 1)
    out = complete("complete_bash", COMP_WORDS=typed, COMP_CWORD=place)
    assert offered <= set(out.split())


@pytest.mark.parametrize(
    ("words", "slow"),
    [
        (["--help"], {"numpy", "sklearn", "numba", "pyarrow"}),
        (["fit", "none.csv", "--schema", "s.toml", "--epsilon", "1", "--out", "m"],
         {"sklearn", "numba"}),
    ],
    ids=["help", "wrong path"],
)  # fmt: skip
def test_what_computes_nothing_imports_nothing_slow(words, slow, files, here):
    (here / "s.toml").write_text((files / "visits.toml").read_text())
    program = (
        "import sys, contextlib\n"
        f"sys.argv = ['skdp', *{words!r}]\n"
        "from skdp.cli import main\n"
        "with contextlib.suppress(SystemExit): main()\n"
        f"sys.exit(bool({slow!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert bool(done.stderr) == ("none.csv" in words)


def test_a_closed_pipe_is_not_an_error():
    program = "from skdp.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "demo", "--rows", "3000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    _, err = process.communicate()
    assert (process.returncode, err) == (141, b"")


def test_a_terminal_without_greek_letters_is_not_an_error():
    program = "from skdp.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "demo", "--rows", "3000"],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert b"\\u03b5 = 1" in done.stdout
    assert b"Traceback" not in done.stderr


def test_wrong_usage_says_where_the_right_one_is_said(call):
    assert call("fit")[2].endswith("'FILE'. See skdp fit --help.\n")
    assert call("fti")[2].endswith("See skdp --help.\n")
    assert call("ledger", "show")[2].endswith("See skdp ledger show --help.\n")
    assert call("plan", "--rows", "x")[2].count(". See skdp plan --help.\n") == 1


def test_a_terminals_lines_are_not_broken_inside_words(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    sentence = call("fit", "x", "--model", "none")[2]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    wrapped = call("fit", "x", "--model", "none")[2]
    assert wrapped.split() == sentence.split()
    assert wrapped.count("\n") > 2
    assert max(map(len, wrapped.splitlines())) <= 40


def test_warnings_of_libraries_are_not_shown():
    """They may depend on a record."""
    program = (
        "import sys, warnings\n"
        "from skdp.cli import main, plan_command\n"
        "from skdp.schema import toml_files\n"
        "def read(path):\n"
        "    warnings.warn('a cell', stacklevel=1); raise ValueError('sentence')\n"
        "toml_files.read_toml = read\n"
        "sys.argv = ['skdp', 'plan', '--schema', 's.toml', '--rows', '9']\n"
        "main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (2, "skdp: sentence\n")


def test_bytes_of_a_file_are_not_quoted(call, here, monkeypatch):
    def read(path):
        b"secret \xff".decode()

    monkeypatch.setattr("skdp.schema.toml_files.read_toml", read)
    code, _, err = call("plan", "--schema", "s.toml", "--rows", "9")
    assert code == 2
    assert err == "skdp: A file could not be read (UnicodeDecodeError).\n"


#: What each shell loads to complete commands, and a word that it must hold.
SHELLS = {"bash": "complete -o default", "zsh": "#compdef skdp", "fish": "--command"}


@pytest.mark.parametrize(
    ("shell", "more"),
    [("zsh", {}), ("fish", {"_TYPER_COMPLETE_FISH_ACTION": "get-args"})],
)
def test_other_shells_complete_sub_commands(complete, shell, more):
    out = complete(f"complete_{shell}", _TYPER_COMPLETE_ARGS="skdp ledger e", **more)
    assert "export" in out
    assert "show" not in out


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_is_shown_for_each_shell(complete, shell):
    out = complete(f"source_{shell}")
    assert SHELLS[shell] in out
    assert "skdp" in out
