import json
import sys

import pytest
from bugs import noise_times

pytest.importorskip("typer")
from skdp import cli
from skdp.audit import suite


@pytest.fixture
def call(monkeypatch, capsys):
    """Run `skdp audit` on a few settings: exit code, stdout, stderr."""
    settings = [
        suite.Setting(
            name="gram",
            neighbours="zero-out",
            epsilon=8.0,
            delta=1e-6,
            group=1,
            n_trials=1000,
        ),
        suite.make_fit_setting("linear", "add-remove", 8.0, n_trials=40),
    ]
    monkeypatch.setattr(suite, "list_quick_settings", lambda epsilon, delta: settings)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["skdp", "audit", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        shown = capsys.readouterr()
        return stopped.value.code, shown.out, shown.err

    return run


def test_a_table_with_a_verdict(call):
    code, out, err = call("--epsilon", "8")
    assert (code, err) == (0, "")
    assert "0 of 3 claims refuted" in out
    assert out.count("holds") == 3
    assert max(map(len, out.splitlines())) <= 80


def test_json(call):
    code, out, _ = call("--epsilon", "8", "--json")
    shown = json.loads(out)
    assert code == 0
    assert shown["passed"] is True
    assert [one["name"] for one in shown["audits"]] == ["gram", "LinearRegression"]
    assert all(one["epsilon_lower"] <= one["epsilon"] for one in shown["audits"])
    assert shown["one_run"]["n_canaries"] == 1000


def test_a_mistake_is_told_by_the_exit_code(call):
    with noise_times(0.5):
        code, out, _ = call("--epsilon", "8")
    assert code == 1
    assert "REFUTED" in out
    with noise_times(0.5):
        code, out, err = call("--quiet")
    assert (code, err) == (1, "")
    assert "REFUTED" in out  # quiet, unless something fails


def test_claims_that_mean_nothing_are_refused(call):
    code, out, err = call("--epsilon", "-1")
    assert (code, out) == (2, "")
    assert "epsilon must be positive" in err


def test_the_quick_list_covers_every_mechanism_and_relation():
    names = {setting.name for setting in suite.list_quick_settings(1.0)}
    assert names >= set(suite.MECHANISMS) | {"linear", "logistic"}
    listed = suite.list_quick_settings(1.0)
    fits = {one.neighbours for one in listed if one.name in suite.ESTIMATORS}
    assert fits == set(suite.NEIGHBOURS)


def test_what_was_refuted_is_played_again(monkeypatch):
    setting = suite.make_fit_setting("linear", "zero-out", 1.0)
    results = iter(["first", "second"])

    class Result:
        def __init__(self):
            self.name = next(results)
            self.passed = self.name == "second"

    monkeypatch.setattr(suite.Setting, "run", lambda self, progress: Result())
    assert setting.run_and_confirm().name == "second"
