import math

import pandas as pd
import pytest

import skdp
from skdp.cli.compare_command import (
    PLUS_MINUS,
    compose_budgets,
    compose_records,
)
from skdp.privacy import accountant
from skdp.privacy.queries import Kind
from skdp.schema import toml_files


def arguments(files, *more, total=1.5):
    return (
        *("compare", files / "readmitted.csv", "--schema", files / "readmitted.toml"),
        *("--epsilon", "1", "--epsilon", "0.5", "--total", total, "--out", "models"),
        *more,
    )


def test_models_stand_side_by_side_and_the_sum_is_said(call, files, here):
    code, out, err = call(*arguments(files))
    assert (code, err) == (0, "")
    half, one = (skdp.load(f"models/epsilon-{e}") for e in ("0.5", "1"))
    assert out.index("ε = 0.5") < out.index("ε = 1")
    row = next(line for line in out.splitlines() if " prior_admissions " in line)
    at = list(half.get_feature_names_out()).index("prior_admissions")
    assert row.split() == [
        "prior_admissions",
        *(f"{model.coef_.ravel()[at]:+.3g}" for model in (half, one)),
    ]
    spent = math.hypot(*(math.sqrt(model.privacy_.spent) for model in (half, one)))
    total = accountant.gdp_epsilon(spent, 1e-9)
    assert f"({total:.4g}"[:6] in out
    assert "together" in out
    assert max(map(len, out.splitlines())) <= 80


def test_more_classes_are_named_and_relative_to_their_mean(call, here):
    """A name that looks like a terminal's markup, or steers it, is shown too."""
    levels = ["[bold]", "mid\x1b[31mdle", "high"]
    schema = skdp.Schema(
        {"[i]a": skdp.Numeric(0, 9), "b": skdp.Categorical([0, 1])},
        target=("kind", skdp.Categorical(levels)),
    )
    toml_files.write(schema, "kinds.toml")
    places = range(300)
    pd.DataFrame(
        {
            "[i]a": [k % 10 for k in places],
            "b": [k % 2 for k in places],
            "kind": [levels[k % 3] for k in places],
        }
    ).to_csv("kinds.csv", index=False)
    more = ("--epsilon", 50, "--epsilon", 60, "--total", 100, "--out", "models")
    code, out, err = call("compare", "kinds.csv", "--schema", "kinds.toml", *more)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    told = [line.rsplit(maxsplit=2) for line in out.splitlines() if "[i]a" in line]
    names = [name.strip() for name, *_ in told]
    marks = ("[bold]", "high", r"mid\x1b[31mdle")  # sorted
    assert names == [f"[i]a [{mark}]" for mark in marks]
    model = skdp.load("models/epsilon-50")
    own = model.coef_[:, 0] - model.coef_[:, 0].mean()
    assert [line[1] for line in told] == [f"{coef:+.3g}" for coef in own]
    assert "Coefficients of classes are relative to the mean over all classes." in out
    assert "Categories are relative to the mean of their column" in out
    assert "log(" not in out


def test_scores_are_charged_too(parsed, files, here):
    plain = parsed(*arguments(files))
    scored = parsed(*arguments(files, "--force", "--score", "0.3"))
    assert plain["spent_epsilon"] < scored["spent_epsilon"] <= 1.5
    for model in scored["models"]:
        assert {"log_loss", "accuracy"} <= set(model["scores"])
        assert model["scores"]["accuracy"]["noise_std"] > 0
    assert all(model["scores"] == {} for model in plain["models"])


def test_what_exceeds_the_total_is_refused_before_it_is_spent(call, files, here):
    code, out, err = call(*arguments(files, total=1.0))
    assert (code, out) == (2, "")
    assert "fits and scores would spend" in err
    assert not (here / "models").exists()
    assert call(*arguments(files, "--score", "1.2"))[0] == 2


def test_the_total_is_that_of_the_releases():
    delta = 1e-6
    records = []
    for epsilon in (0.3, 0.4):
        record = skdp.PrivacyRecord(
            epsilon=epsilon, delta=delta, neighbours="replace-one"
        )
        record.charge(
            skdp.privacy.budget.Event(
                kind=Kind.STATED,
                query="all of it",
                sensitivity=1.0,
                noise_multiplier=1 / math.sqrt(record.budget),
                n_draws=10,
            )
        )
        records.append(record)
    planned = compose_budgets([0.3, 0.4], delta)
    assert compose_records(records, delta) == pytest.approx(planned, rel=1e-6)
    assert 0.4 < compose_records(records, delta) <= planned < 0.7


def test_a_seeded_comparison_claims_nothing(call, parsed, files, here):
    code, out, _ = call(*arguments(files, "--seed", "1"))
    assert code == 0
    assert "seeded: no privacy claim" in out
    assert "differential privacy" not in out
    shown = parsed(*arguments(files, "--seed", "1", "--force"))
    assert (shown["claim"], shown["spent_epsilon"]) == ("none", None)


def test_a_score_says_what_its_plus_and_minus_are(call, files, here, monkeypatch):
    seen = []

    def evaluate(*arguments, **options):
        seen.append(skdp_evaluate(*arguments, **options))
        return seen[-1]

    skdp_evaluate = skdp.evaluate
    monkeypatch.setattr(skdp, "evaluate", evaluate)
    _, out, _ = call(*arguments(files, "--score", "0.3"))
    assert out.count(PLUS_MINUS) == 1
    row = next(line for line in out.splitlines() if " accuracy " in line)
    scores = [one.scores["accuracy"] for one in seen]
    assert row.split()[1:] == [
        word
        for score in scores
        for word in (f"{score.value:.4g}", "±", f"{score.noise_std:.1g}")
    ]
    # Of the noise alone: the interval is wider, as it holds the sampling too.
    assert all(score.sampling_std > 0 for score in scores)
    _, out, _ = call(*arguments(files, "--force"))
    assert "±" not in out


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--epsilon", "inf"], "finite"),
        (["--epsilon", "-1"], "epsilon must be positive"),
        (["--score", "nan"], "epsilon must be positive"),
        (["--delta", "0.5"], "delta must be"),
        ([w for e in "23456" for w in ("--epsilon", e)], "2 to 6 times"),
    ],
)
def test_refusals(call, files, here, more, sentence):
    code, out, err = call(*arguments(files, *more, total="inf"))
    assert (code, out) == (2, "")
    assert sentence in err


def test_a_ledger_pays_for_fits_and_scores(parsed, files, here):
    ledger = skdp.Ledger(here / "stays.ledger", epsilon=3, delta=1e-5)
    more = ("--ledger", "stays.ledger", "--score", "0.3")
    shown = parsed(*arguments(files, *more))
    # One more charge for each: two fits and two scores.
    assert sum(entry.kind == "reserve" for entry in ledger.entries()) == 4
    assert ledger.spent_epsilon > 0
    assert shown["spent_epsilon"] <= 1.5
