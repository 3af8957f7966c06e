import subprocess
import sys

import pytest

import skdp


def test_version(call):
    code, out, err = call("--version")
    assert (code, out, err) == (0, f"skdp {skdp.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["demo", "--epsilon", "0"], "epsilon must be positive"),
        (["demo", "--epsilon", "-1"], "epsilon must be positive"),
        (["demo", "--epsilon", "nan"], "epsilon must be positive"),
        (["demo", "--epsilon", "lots"], "--epsilon"),
        (["demo", "--rows", "0"], "n_rows must be at least 1"),
        (["demo", "--rows", "1.5"], "--rows"),
        (["demo", "--rows", "99999999999"], "up to 2,000,000 rows"),
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
