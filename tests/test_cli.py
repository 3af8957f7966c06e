import json
import subprocess
import sys

import numpy as np
import pytest

import skdp
from skdp import cli
from skdp.datasets import make_hospital, margins
from skdp.privacy.records import encode


def call(monkeypatch, capsys, *arguments):
    """Run the command in this process: exit code, stdout, stderr."""
    monkeypatch.setattr(sys, "argv", ["skdp", *arguments])
    monkeypatch.setattr(cli, "FRESH_ROWS", 5_000)
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    shown = capsys.readouterr()
    return stopped.value.code, shown.out, shown.err


def test_version(monkeypatch, capsys):
    code, out, err = call(monkeypatch, capsys, "--version")
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
def test_bad_usage_is_one_sentence_and_exit_code_2(
    monkeypatch, capsys, arguments, sentence
):
    code, out, err = call(monkeypatch, capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("skdp: ")
    assert sentence in err
    assert err.count("\n") == 1


def test_no_command_is_help(monkeypatch, capsys):
    code, out, err = call(monkeypatch, capsys)
    assert code == 2
    assert (out + err).startswith("Usage: skdp")
    assert "demo" in out + err


def test_demo_says_what_it_will_do_then_what_it_did(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    order = []
    make = cli.make_hospital

    def watched(n_rows, *seed):
        order.append((n_rows, capsys.readouterr().out))
        return make(n_rows, *seed)

    monkeypatch.setattr(cli, "make_hospital", watched)
    code, rest, err = call(monkeypatch, capsys, "demo", "--rows", "2000")
    assert (code, err) == (0, "")
    before = "".join(text for _, text in order)
    # The plan is complete before a table is drawn (one row is asked for its schema).
    assert [rows for rows, _ in order] == [1, 2000, 5000]
    assert "noise multiplier" in order[1][1]
    assert "predicted" in order[1][1]
    assert "Weights" not in before
    for words in ("differential privacy", "synthetic", "base rate alone *", "Oncology"):
        assert words in before + rest
    assert max(map(len, (before + rest).splitlines())) <= 60


def test_a_seeded_demo_claims_nothing(monkeypatch, capsys):
    arguments = ("demo", "--rows", "2000", "--seed", "1")
    _, one, _ = call(monkeypatch, capsys, *arguments)
    _, two, _ = call(monkeypatch, capsys, *arguments)
    assert "seeded: no privacy claim" in one
    assert one.splitlines()[:-1] == two.splitlines()[:-1]  # all but the seconds


@pytest.mark.parametrize("epsilon", ["2", "inf"])
def test_json(monkeypatch, capsys, epsilon):
    arguments = ("demo", "--rows", "3000", "--json", "--epsilon", epsilon)
    code, out, err = call(monkeypatch, capsys, *arguments)
    assert (code, err) == (0, "")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    shown = json.loads(out, parse_constant=refuse)
    assert shown["synthetic"] is True
    assert shown["n_rows"] == 3000
    assert list(shown["weights"]) == list(make_hospital(1).truth)
    assert shown["log_loss"]["true weights"] < shown["log_loss"]["base rate alone"]
    assert shown["privacy"]["claim"] == (
        "none" if epsilon == "inf" else "differential privacy"
    )
    if epsilon == "2":
        assert shown["privacy"]["spent_epsilon"] <= 2.0
        spent = sum(
            release["count"] / release["noise_multiplier"] ** 2
            for release in shown["privacy"]["releases"]
        )
        assert spent == pytest.approx(shown["privacy"]["mu_squared"])


def test_long_jobs_are_cut_and_lose_their_bound():
    layout = make_hospital(1).schema.layout()
    short, long = (cli._jobs(layout, rows, 8.0)[1] for rows in (2_000, 50_000))
    assert short.plan.rate is not None
    assert "predicted" in short.words
    assert long.plan.rate is None
    assert long.plan.n_steps == 5_000
    assert "fewer than" in long.words


def test_centring_changes_no_prediction():
    data = make_hospital(500)
    records = encode([data.batch], data.schema)
    weights = np.random.default_rng(0).normal(size=data.weights.shape)
    moved = cli.centred(weights, records.layout)
    np.testing.assert_allclose(margins(records, moved), margins(records, weights))
    for group in records.layout.groups:
        if group.kind == "code":
            assert abs(moved[group.coordinates].sum()) < 1e-12


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra_it_says_how_to_get_it(module):
    program = f"import sys; sys.modules[{module!r}] = None; import skdp.cli"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "The skdp command needs an extra: pip install 'skdp[cli]'.\n"
