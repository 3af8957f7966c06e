import mmap
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

import skdp
from skdp.descent.forecast import describe_outlook
from skdp.schema import toml_files
from skdp.tables import encoder as kept


def arguments(files, target="readmitted", form="csv", out="model", epsilon=1):
    return (
        *("fit", files / f"{target}.{form}", "--schema", files / f"{target}.toml"),
        *("--epsilon", epsilon, "--out", out),
    )


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_fit_says_what_it_promises_and_where_it_is(call, files, here, form):
    code, out, err = call(*arguments(files, form=form))
    assert (code, err) == (0, "")
    model = skdp.load("model")
    claim = str(model.privacy_).splitlines()[0]
    assert "differential privacy" in claim
    hidden = "one row is added or removed, so whether a row is in the table at all"
    said = f"{claim} neighbouring tables: add-remove ({hidden} is hidden) model model"
    assert " ".join(out.split()).startswith(said)
    assert isinstance(model, skdp.LogisticRegression)
    assert max(map(len, out.splitlines())) <= 80


def test_nothing_private_is_printed(call, parsed, files, here):
    """All numbers on the screen are those of the budget; the rest was released."""
    _, out, _ = call(*arguments(files))
    assert "3000" not in out.replace(",", "")
    shown = parsed(*arguments(files, out="other"))
    model = skdp.load("other")
    assert set(shown) == {
        *("model", "out", "claim", "seeded", "epsilon", "delta", "spent_epsilon"),
        *("neighbours", "unit", "note", "assumptions", "coefficients_of"),
        *("coefficients", "intercept"),
    }
    np.testing.assert_array_equal(
        list(shown["coefficients"][0].values()), model.coef_.ravel()
    )


def test_a_fit_says_that_only_a_constant_was_fitted(call, parsed, here):
    data = skdp.make_hospital(300)
    toml_files.write(data.schema, "few.toml")
    pd.DataFrame(data.columns).to_csv("few.csv", index=False)
    fit = ("fit", "few.csv", "--schema", "few.toml", "--epsilon", 0.1, "--rows", 300)
    sentence = describe_outlook(skdp.plan(data.schema, 300, 0.1, 1e-6))
    assert "Only a constant is fitted" in sentence
    code, out, err = call(*fit, "--out", "one")
    assert (code, err) == (0, "")
    assert f"hidden) {sentence} model one" in " ".join(out.split())
    assert parsed(*fit, "--out", "two")["note"] == sentence
    assert call(*fit, "--out", "three", "-q") == (0, "", "")


@pytest.mark.parametrize(
    ("epsilon", "more", "said"),
    [
        (10, (), False),
        (1000, (), True),
        (1000, ("--seed", "1"), False),  # which says so itself
        ("inf", (), False),
    ],
)
def test_a_large_epsilon_is_a_promise_in_name_only(
    call, files, here, epsilon, more, said
):
    code, out, err = call(*arguments(files, epsilon=epsilon), *more)
    assert (code, err) == (0, "")
    line = (
        "ε = 1000 hardly protects anyone. Choose 10 or less (see Choose ε in the docs)."
    )
    assert (line in out.splitlines()) == said
    assert said or "hardly protects" not in out
    again = (*arguments(files, epsilon=epsilon), *more, "--force")
    assert call(*again, "-q") == (0, "", "")
    assert "hardly protects" not in call(*again, "--json")[1]


def test_options_reach_the_estimator(parsed, files, here):
    shown = parsed(
        *arguments(files, "visits", "parquet", epsilon=0.5),
        *("--model", "poisson", "--delta", "1e-7", "--neighbours", "add-remove"),
        *("--rows", "2900", "--threads", "1"),
    )
    assert shown["model"] == "PoissonRegressor"
    assert (shown["epsilon"], shown["delta"]) == (0.5, 1e-7)
    assert shown["neighbours"] == "add-remove"
    assert "The number of rows given is public." in shown["assumptions"]
    assert shown["note"] is None
    assert 0.49 < shown["spent_epsilon"] <= 0.5
    assert skdp.load("model").plan_["n_rows"] == 2900


@pytest.mark.parametrize("model", ["linear", "huber", "poisson"])
def test_seeded_fits_repeat_and_claim_nothing(call, parsed, files, here, model):
    more = ("--model", model, "--seed", "7")
    code, out, _ = call(*arguments(files, "visits", out="one"), *more)
    assert code == 0
    assert out.startswith("seeded: no privacy claim\n")
    shown = parsed(*arguments(files, "visits", out="two"), *more)
    assert shown["claim"] == "none"
    assert shown["spent_epsilon"] is None
    one, two = skdp.load("one"), skdp.load("two")
    np.testing.assert_array_equal(one.weights_, two.weights_)


def test_a_fit_equals_that_of_the_library(parsed, files, here):
    shown = parsed(*arguments(files), "--seed", "3")
    schema = toml_files.read_toml(files / "readmitted.toml")
    model = skdp.LogisticRegression(epsilon=1.0, schema=schema, random_state=3)
    model.fit(files / "readmitted.csv")
    found = list(shown["coefficients"][0].values())
    np.testing.assert_array_equal(found, model.coef_.ravel())


def test_records_in_a_file_give_the_same_model(call, files, here, monkeypatch):
    words = ("--seed", "3", "-q")
    assert call(*arguments(files, out="one"), *words) == (0, "", "")
    monkeypatch.setattr(kept, "IN_MEMORY", 0)
    written = []
    write = kept._append_chunk
    monkeypatch.setattr(
        kept, "_append_chunk", lambda *a: written.append(1) or write(*a)
    )
    assert call(*arguments(files, out="two"), *words) == (0, "", "")
    assert written or not hasattr(mmap, "MADV_DONTNEED")
    one, two = skdp.load("one"), skdp.load("two")
    np.testing.assert_array_equal(one.weights_, two.weights_)


def test_progress_is_shown_on_a_terminal(call, files, here, monkeypatch):
    monkeypatch.setattr("skdp.cli.fit_command.shows_progress", lambda *_: True)
    code, out, err = call(*arguments(files))
    assert code == 0
    assert "reading" in err
    assert "fitting" in err
    assert "100%" in err
    assert "reading" not in out


def test_an_earlier_model_is_replaced_only_by_force(call, files, here):
    assert call(*arguments(files, epsilon=1))[0] == 0
    code, _, err = call(*arguments(files, epsilon=2))
    assert code == 2
    assert "--force" in err
    assert skdp.load("model").epsilon == 1
    assert call(*arguments(files, epsilon=2), "--force", "-q") == (0, "", "")
    assert skdp.load("model").epsilon == 2


def test_force_replaces_nothing_but_models(call, files, here):
    (here / "model").mkdir()
    (here / "model" / "thesis.txt").write_text("years of work")
    code, _, err = call(*arguments(files), "--force")
    assert code == 2
    assert "not a saved model" in err
    assert (here / "model" / "thesis.txt").read_text() == "years of work"


def test_a_ledger_is_charged_and_refuses(call, files, here):
    ledger = skdp.Ledger(here / "stays.ledger", epsilon=1.2, delta=1e-5)
    more = ("--ledger", "stays.ledger", "--delta", 1e-6)
    code, _, err = call(*arguments(files), *more)
    assert (code, err) == (0, "")
    assert ledger.spent_epsilon > 0.5
    code, out, err = call(*arguments(files, out="second"), *more)
    assert (code, out) == (2, "")
    assert not (here / "second").exists()


def test_exposures_and_offsets_reach_the_fit(call, parsed, files, here):
    frame = pd.read_csv(files / "visits.csv")
    years = np.random.default_rng(0).uniform(0.5, 4.0, len(frame))
    frame.assign(years=years, log_years=np.log(years)).to_csv("t.csv", index=False)
    words = ("fit", "t.csv", "--schema", files / "visits.toml", "--seed", 1)
    words += ("--epsilon", 8, "--max-exposure", 4)
    found = [
        parsed(*words, "--model", "poisson", *given, "--out", f"model {i}")
        for i, given in enumerate([("--exposure", "years"), ("--offset", "log_years")])
    ]
    assert found[0]["intercept"] == pytest.approx(found[1]["intercept"], abs=1e-3)
    again = skdp.PoissonRegressor(
        schema=skdp.load("model 0").schema,
        random_state=1,
        epsilon=8.0,
        max_weight=4.0,
    ).fit("t.csv", exposure="years")
    assert found[0]["intercept"] == [again.intercept_]
    scores = parsed(
        *("evaluate", "model 0", "t.csv", "--epsilon", 8, "--exposure", "years"),
        *("--max-exposure", 4),
    )
    assert {"deviance", "d2"} <= set(scores["scores"])
    for odd, said in (
        (("--max-exposure", 4), "--max-exposure requires --exposure"),
        (("--model", "linear", "--exposure", "years"), "requires --model poisson"),
        (
            ("--model", "poisson", "--exposure", "years", "--offset", "log_years"),
            "either exposure or offset",
        ),
    ):
        code, _, err = call(*words[:-2], *odd, "--out", "other")
        assert code == 2
        assert said in err


def test_a_ledger_pays_for_no_seeded_fit(call, files, here):
    ledger = skdp.Ledger(here / "stays.ledger", epsilon=1.2, delta=1e-5)
    fit = arguments(files)
    code, _, err = call(*fit, "--ledger", "stays.ledger", "--seed", "1")
    assert code == 2
    assert "Omit --seed, or omit --ledger" in err
    assert "random_state" not in err  # which is Python
    assert len(ledger.entries()) == 1


def command(*words):
    return [sys.executable, "-c", "from skdp.cli import main; main()", *map(str, words)]


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_fit_that_is_stopped_leaves_no_model(files, here, stop):
    """Stopped at the moment at which the model is being written."""
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
    words = [sys.executable, "-c", program, *map(str, arguments(files))]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not (here / "writing").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, stop)
    _, err = process.communicate(timeout=300)
    assert not (here / "model").exists()
    assert "Traceback" not in err
    if stop == signal.SIGINT:
        assert process.returncode == 130
        assert "Interrupted." in err
        assert [path.name for path in here.iterdir()] == ["writing"]


def test_json_is_all_that_a_script_reads(files, here):
    done = subprocess.run(
        command(*arguments(files), "--json"), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("{")
    assert done.stdout.endswith("}\n")
    assert "reading" not in done.stderr  # no bars, as nobody looks


def test_a_look_can_be_left_out(call, files, here):
    for more, looked in (((), True), (("--no-look",), False)):
        code, _, err = call(*arguments(files), "--force", *more)
        assert (code, err) == (0, "")
        model = skdp.load(here / "model")
        assert (model.profile_ is not None) == model.look == looked
        asked = ("plan", "--schema", files / "readmitted.toml", "--rows", 9000, *more)
        _, out, _ = call(*asked)
        assert ("find the number of rows" in " ".join(out.split())) == looked
