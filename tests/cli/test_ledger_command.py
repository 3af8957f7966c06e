"""`skdp ledger`: the total budget of a data set, seen from a shell."""

import json
import os
import sqlite3

import pytest

import skdp


@pytest.fixture
def path(call, here):
    path = here / "budget.db"
    code, out, err = call("ledger", "make", path, "--epsilon", 2, "--delta", 1e-6)
    assert (code, err) == (0, "")
    assert "(2, 1e-06)-differential privacy" in out
    return path


def test_a_fit_charges_and_show_says_so(call, parsed, path, files):
    options = ["--schema", files / "readmitted.toml", "--ledger", path.name]
    fit = ["fit", files / "readmitted.csv", *options, "--epsilon", 1, "--delta", 1e-6]
    fit += ["--out", "m"]
    code, _, err = call(*fit)
    assert (code, err) == (0, "")
    code, out, err = call("ledger", "show", path)
    assert (code, err) == (0, "")
    for part in ("spent: ε = ", "reserve", "commit 1", "LogisticRegression"):
        assert part in out
    ledger = skdp.Ledger(path)
    left = f"{ledger.affordable(ledger.terms.delta):.4g}"
    assert f"left: enough for ε = {left} at δ = {ledger.terms.delta:g}\n" in out
    assert "A fit first reserves its budget." in out
    _, out, _ = call("ledger", "show", path, "--last", 0)
    assert "commit" not in out  # nothing to explain
    found = parsed("ledger", "show", path)
    assert 0.9 < found["spent_epsilon"] <= 1.0
    assert [entry["kind"] for entry in found["entries"]] == [
        "open",
        "reserve",
        "commit",
    ]
    assert len(parsed("ledger", "show", path, "--last", 1)["entries"]) == 1
    again = [2 if word == 1 else word for word in fit]
    code, _, err = call(*again[:-1], "m2")
    assert code == 2
    assert "is affordable" in err
    assert not os.path.exists("m2")


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_narrow_screen_shows_every_number_whole(call, path, monkeypatch, columns):
    monkeypatch.setenv("LOGNAME", "ada")
    ledger = skdp.Ledger(path)
    for _ in range(5):
        query = "fit of LogisticRegression"
        ledger.reserve(0.01, neighbours="add-remove", query=query).settle(0.01)
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = call("ledger", "show", path)
    table = out[out.index(" # ") :]
    assert max(map(len, table.splitlines())) <= columns
    assert table.splitlines()[0].split()[:5] == ["#", "kind", "ε", "μ²", "δ"]
    assert "…" not in table
    last = next(line for line in table.splitlines() if "commit 9" in line).split()
    entry = ledger.entries()[-1]
    costs = (entry.epsilon, entry.mu_squared, entry.delta)
    assert last[:6] == ["10", "commit", "9", *(f"{cost:.4g}" for cost in costs)]
    assert table.count("LogisticRegression") == 10
    assert table.count("by ada") == 10


def test_a_directory_is_not_called_a_changed_ledger(call, here):
    code, _, err = call("ledger", "show", here)
    assert (code, err) == (2, f"skdp: {str(here)!r} is a directory, not a ledger.\n")


def test_purpose_user_and_table_are_entered_and_shown(call, parsed, here, files):
    make = ["ledger", "make", "l.db", "--epsilon", 2, "--delta", 1e-6]
    code, out, err = call(*make, "--table", "stays 2025", "--user", "ada")
    assert (code, err) == (0, "")
    assert "table: stays 2025\n" in out
    fit = ["fit", files / "readmitted.csv", "--schema", files / "readmitted.toml"]
    fit += ["--epsilon", 1, "--out", "m"]
    asked = ["--purpose", "yearly report", "--user", "grace"]
    code, _, err = call(*fit, *asked)
    assert code == 2
    assert "--purpose and --user require --ledger" in err
    assert call(*fit, *asked, "--ledger", "l.db")[0] == 0
    found = parsed("ledger", "show", "l.db")
    assert found["table"] == "stays 2025"
    assert found["entries"][0]["user"] == "ada"
    for entry in found["entries"][1:]:
        assert (entry["purpose"], entry["user"]) == ("yearly report", "grace")
    _, out, _ = call("ledger", "show", "l.db")
    for part in ("table: stays 2025", "yearly", "grace"):
        assert part in out
    _, out, _ = call("verify", "m", "--ledger", "l.db")
    assert "by grace, purpose: yearly report" in out


def test_a_model_of_the_same_table_with_another_target_is_charged(call, here, files):
    assert call("ledger", "make", "l.db", "--epsilon", 2, "--delta", 1e-6)[0] == 0
    for name in ("readmitted", "visits"):
        fit = ["fit", files / f"{name}.csv", "--schema", files / f"{name}.toml"]
        code, _, err = call(*fit, "--epsilon", 0.5, "--ledger", "l.db", "--out", name)
        assert (code, err) == (0, "")
    assert len({entry.schema for entry in skdp.Ledger("l.db").entries()[1:]}) == 2


def test_admit_lets_a_ledger_with_a_schema_take_another(call, parsed, here, files):
    make = ["ledger", "make", "l.db", "--epsilon", 2, "--delta", 1e-6]
    assert call(*make, "--schema", files / "readmitted.toml")[0] == 0
    fit = ["fit", files / "visits.csv", "--schema", files / "visits.toml"]
    fit += ["--epsilon", 0.5, "--ledger", "l.db", "--out", "m"]
    code, _, err = call(*fit)
    assert code == 2
    assert "`skdp ledger admit`" in err
    admit = ["ledger", "admit", "l.db", "--schema", files / "visits.toml"]
    code, out, err = call(*admit, "--purpose", "visits too", "--user", "ada")
    assert (code, err) == (0, "")
    assert f"admitted {files / 'visits.toml'}\n" in out
    last = skdp.Ledger("l.db").entries()[-1]
    assert (last.kind, last.purpose, last.user) == ("admit", "visits too", "ada")
    assert call(*fit)[0] == 0
    assert call("ledger", "make", "any.db", "--epsilon", 2, "--delta", 1e-6)[0] == 0
    code, _, err = call("ledger", "admit", "any.db", "--schema", files / "visits.toml")
    assert code == 2
    assert "nothing to admit" in err


def test_check_exits_with_1_if_the_file_was_changed(call, parsed, path):
    head = parsed("ledger", "check", path)["head"]
    assert head == str(skdp.Ledger(path).head)
    assert call("ledger", "check", path, "--head", head, "--quiet") == (0, "", "")
    other = head[:-1] + ("0" if head[-1] != "0" else "1")
    code, out, err = call("ledger", "check", path, "--head", other)
    assert (code, err) == (1, "")
    assert out.startswith("FAILED: ")
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER no_edit")
        database.execute("UPDATE entries SET body = '{}'")
    database.close()
    code, out, _ = call("ledger", "check", path, "--json")
    assert code == 1
    assert json.loads(out)["passed"] is False
    for command in ("show", "export"):
        code, out, err = call("ledger", command, path)
        assert (code, out) == (2, "")
        assert "refused" in err


def test_export(call, path, here):
    code, out, err = call("ledger", "export", path)
    assert (code, err) == (0, "")
    assert out == skdp.Ledger(path).export()
    assert call("ledger", "export", path, "-q") == (0, out, "")
    code, _, _ = call("ledger", "export", path, "--form", "csv", "--out", "b.csv")
    assert code == 0
    assert (here / "b.csv").read_text() == skdp.Ledger(path).export("csv")
    code, _, err = call("ledger", "export", path, "--out", "b.csv")
    assert code == 2
    assert "--force" in err


@pytest.mark.parametrize("command", ["show", "check", "export"])
def test_what_is_not_there_is_refused_and_not_made(call, here, command):
    code, out, err = call("ledger", command, "none.db")
    assert (code, out) == (2, "")
    assert "There is no" in err
    assert "skdp.Ledger" not in err  # that is the name in Python
    assert ("skdp ledger make" in err) == (command != "check")
    assert list(here.iterdir()) == []


def test_a_ledger_needs_its_folder(call, here):
    code, out, err = call("ledger", "make", "no/l.db", "--epsilon", 1, "--delta", 1e-6)
    assert (code, out) == (2, "")
    assert f"There is no folder {str(here / 'no')!r} for a ledger" in err
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--epsilon", 0, "--delta", 1e-6],
        ["--epsilon", 1, "--delta", 2],
        ["--epsilon", "inf", "--delta", 1e-6],
        ["--epsilon", 1, "--delta", 1e-6, "--neighbours", "none"],
        ["--epsilon", 1, "--delta", 1e-6, "--schema", "none.toml"],
    ],
)
def test_a_wrong_ceiling_makes_nothing(call, here, options):
    code, out, err = call("ledger", "make", "new.db", *options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert list(here.iterdir()) == []


def test_a_ledger_is_not_made_over_another(call, path):
    before = path.read_bytes()
    code, _, err = call("ledger", "make", path, "--epsilon", 9, "--delta", 1e-6)
    assert code == 2
    assert f"{str(path)!r} already exists, and a ledger's ceiling cannot change" in err
    assert f"skdp ledger show {path}" in err
    assert "--force" not in err  # the command has no such option
    assert path.read_bytes() == before
