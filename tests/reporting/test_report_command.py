"""`skdp report`: a file, a sentence, and exit codes that a script can rely on."""

import json
import sys

import pytest
from pages import model

from skdp import cli

pytest.importorskip("jinja2")


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    model("plain").save(tmp_path / "model")
    model("seeded").save(tmp_path / "seeded")

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["skdp", "report", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        shown = capsys.readouterr()
        return stopped.value.code, shown.out, shown.err

    return run


def test_a_page_is_written_beside_the_model(call, tmp_path):
    code, out, err = call("model")
    assert (code, err) == (0, "")
    assert out.startswith(
        "(1, 1e-09)-differential privacy\nreport written to model.html"
    )
    page = (tmp_path / "model.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert "skdp verify model<" in page
    code, _, err = call("model")
    assert code == 2
    assert "already exists" in err
    assert call("model", "--force", "--quiet") == (0, "", "")
    assert (tmp_path / "model.html").read_text("utf-8") == page


def test_only_pages_and_cards_are_written(call, tmp_path):
    code, _, err = call("model", "--out", "model.pdf")
    assert code == 2
    assert "--out must end in .html, .md, .json or .yaml, got 'model.pdf'." in err
    assert not (tmp_path / "model.pdf").exists()


def test_a_model_may_be_here_and_its_page_is_not_put_in_it(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "model")
    assert call(".", "--quiet") == (0, "", "")
    assert (tmp_path / "model.html").exists()
    assert len(list((tmp_path / "model").iterdir())) == 3


def test_json_says_what_is_claimed(call, tmp_path):
    code, out, err = call("model", "--out", "new/page.html", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["out"] == "new/page.html"
    assert (told["claims"], told["delta"]) == (True, 1e-9)
    assert told["epsilon"] == pytest.approx(1.0)
    told = json.loads(call("seeded", "--json")[1])
    assert told["claims"] is False
    assert told["claim"] == "seeded: no privacy claim"


def test_what_is_wrong_is_said_in_one_sentence(call, tmp_path):
    for arguments, sentence in (
        (["none"], "There is no saved model 'none'"),
        (["model", "--ledger", "none.db"], "There is no ledger 'none.db'"),
        ([tmp_path], "it has no file 'model.json'"),
    ):
        code, out, err = call(*arguments)
        assert (code, out) == (2, "")
        assert sentence in err
    path = tmp_path / "model" / "privacy.json"
    about = json.loads(path.read_text())
    path.write_text(json.dumps(about | {"neighbours": "replace-one"}))
    code, _, err = call("model", "--out", "forged.html")
    assert code == 2
    assert "the privacy record failed a check" in err
    assert not (tmp_path / "forged.html").exists()
