"""`skdp verify`: exit codes that a script can rely on."""

import json

import numpy as np
import pytest

import skdp

RNG = np.random.default_rng(0)
X = RNG.uniform(size=(400, 2))
Y = (X[:, 0] > 0.5).astype(int)


@pytest.fixture
def model(tmp_path):
    def saved(**given):
        made = skdp.LogisticRegression(
            bounds=(0, 1), classes=[0, 1], n_steps=9, **given
        )
        made.fit(X, Y).save(tmp_path / "model")
        return tmp_path / "model"

    return saved


def test_a_right_model_is_verified(call, parsed, model):
    code, out, err = call("verify", model())
    assert (code, err) == (0, "")
    assert out.startswith("claim: (1, 1e-09)-differential privacy\n")
    assert out.endswith("VERIFIED: the releases add up to the claim.\n")
    found = parsed("verify", model(), "--statement")
    assert found["passed"] is True
    assert found["closed_form"] == pytest.approx(1.0, rel=1e-6)
    assert found["statement"].startswith("PRIVACY STATEMENT")
    assert call("verify", model(), "--quiet") == (0, "", "")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"spent_epsilon": 0.99', '"spent_epsilon": 0.49'),
        ('"times": 9', '"times": 8'),
        ('"neighbours": "add-remove"', '"neighbours": "zero-out"'),
    ],
)
def test_an_edited_model_exits_with_1(call, model, old, new):
    path = model() / "privacy.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    code, out, err = call("verify", path.parent, "--statement")
    assert (code, err) == (1, "")
    assert "FAILED" in out
    assert "PRIVACY STATEMENT" not in out
    code, out, _ = call("verify", path.parent, "--json")
    assert code == 1
    assert json.loads(out)["passed"] is False


@pytest.mark.parametrize("given", [{"random_state": 1}, {"epsilon": float("inf")}])
def test_a_model_without_a_claim_exits_with_1(call, model, given):
    code, out, _ = call("verify", model(**given), "--statement")
    assert code == 1
    assert ": no privacy claim\n" in out
    assert "NOTHING: " in out
    assert "FAILED" not in out


def test_something_else_than_a_model_exits_with_2_and_one_sentence(
    call, model, tmp_path
):
    (model() / "privacy.json").write_text("{}")
    for arguments in ([tmp_path / "model"], [tmp_path / "none"], [tmp_path]):
        code, out, err = call("verify", *arguments)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
    code, _, err = call("verify", model(), "--ledger", tmp_path / "none")
    assert code == 2
    assert "There is no ledger" in err


def test_a_ledger_is_looked_into(call, model, tmp_path):
    ledger = skdp.Ledger(tmp_path / "ledger.sqlite", epsilon=3.0, delta=1e-5)
    saved = model(ledger=ledger)
    code, out, _ = call("verify", saved, "--ledger", tmp_path / "ledger.sqlite")
    assert code == 0
    assert "ledger: entry" in out
    other = skdp.Ledger(tmp_path / "other.sqlite", epsilon=3.0, delta=1e-5)
    code, out, _ = call("verify", saved, "--ledger", other.path)
    assert code == 1
    assert "no entry paid for the releases of this model" in out
