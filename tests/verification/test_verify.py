"""A record is recomputed by other means, and an edited one does not pass."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import skdp
from skdp.estimators.saving import ReleaseForm
from skdp.ledger import Reservation
from skdp.privacy import accountant
from skdp.privacy.queries import Kind
from skdp.verification import verify
from skdp.verification.costs import read_given
from skdp.verification.verify import closed_form_epsilon, pld_epsilon

pytest.importorskip("mpmath")
RNG = np.random.default_rng(0)
X = RNG.uniform(size=(600, 3))
Y = (X[:, 0] + RNG.uniform(size=600) > 1).astype(int)
GIVEN = {"bounds": (0, 1), "classes": [0, 1], "n_steps": 12}
KINDS = {
    "matrix": skdp.LogisticRegression(**GIVEN, neighbours="replace-one"),
    # At ε = 1, noise hides the labels or half of a range in one fit of twenty.
    "found": skdp.LogisticRegression(n_steps=12, epsilon=8.0),
    "diagonal": skdp.LogisticRegression(
        **GIVEN, geometry="diagonal", sampling="columns", epsilon=0.3
    ),
    "paper": skdp.LogisticRegression(**GIVEN, calibration="paper"),
    "count": skdp.LogisticRegression(**GIVEN, neighbours="add-remove"),
    "weighted": skdp.LogisticRegression(
        **GIVEN, neighbours="zero-out", max_weight=3.0, geometry="diagonal"
    ),
    "three": skdp.LogisticRegression(
        **(GIVEN | {"classes": [0, 1, 2]}), geometry="diagonal"
    ),
    "linear": skdp.LinearRegression(
        bounds=(0, 1), target_bounds=(0, 1), epsilon=8.0, n_steps=9
    ),
}


def saved(tmp_path, name="matrix", **given):
    KINDS[name].__class__(**(KINDS[name].get_params() | given)).fit(X, Y).save(
        tmp_path / "model"
    )
    return tmp_path / "model"


@pytest.mark.parametrize("name", KINDS)
def test_right_records_pass(name, tmp_path):
    model = KINDS[name].fit(X, Y)
    model.save(tmp_path / "model")
    found = [skdp.verify(tmp_path / "model"), skdp.verify(model)]
    for one in found:
        assert one.passed, str(one)
        assert one.closed_form == pytest.approx(model.privacy_.spent_epsilon, rel=1e-8)
        assert one.pld == pytest.approx(one.closed_form, rel=1e-3)
        assert str(one).endswith("VERIFIED: the releases add up to the claim.")
    assert found[0] == found[1] == skdp.verify(skdp.load(tmp_path / "model"))


@pytest.mark.parametrize("kind", [skdp.LinearRegression, skdp.PoissonRegressor])
def test_caps_that_follow_a_narrow_target_pass(kind):
    """Its spread is released: caps are smaller than what the plan multiplies it by."""
    model = kind(bounds=(0, 1), target_bounds=(0, 100), n_steps=9)
    found = skdp.verify(model.fit(X, Y))
    assert model.plan_.geometry.scaled
    assert found.passed, str(found)


def made(noise_multiplier, **given):
    told = {"kind": Kind.STATED, "query": "", "sensitivity": 1.0, "n_columns": 0}
    told |= {"times": 1, "n_draws": 7, "delta": 0.0} | given
    return ReleaseForm(noise_multiplier=noise_multiplier, **told)


@pytest.mark.parametrize("mu", [0.01, 0.3, 2.0, 20.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_the_closed_form_is_the_accountant_s(mu, delta):
    releases = [made(5 / mu, times=25, delta=delta / 100)]
    theirs = accountant.spent_epsilon(mu, delta, 175, delta / 4)
    assert closed_form_epsilon(releases, delta) == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("mu", [0.011, 0.3, 3.0, 29.0])
@pytest.mark.parametrize("kinds", [1, 12])
def test_loss_distributions_agree_with_the_closed_form(mu, kinds):
    z = 5 * math.sqrt(kinds) / mu
    releases = [made(z + i / 9, times=25) for i in range(kinds)]
    found, _ = pld_epsilon(releases, 1e-6)
    assert found == pytest.approx(closed_form_epsilon(releases, 1e-6), rel=1e-5)


def test_it_says_when_loss_distributions_were_not_used():
    for z, delta in ((1e3, 1e-6), (0.03, 1e-6), (4, 1e-13)):
        epsilon, why = pld_epsilon([made(z)], delta)
        assert epsilon is None
        assert why.startswith("dp-accounting is reliable only for")


@pytest.mark.parametrize(
    ("given", "claim"),
    [
        ({"random_state": 3}, "seeded: no privacy claim"),
        ({"epsilon": math.inf}, "no noise: no privacy claim"),
    ],
)
def test_no_claim_is_said_plainly_and_does_not_pass(given, claim, tmp_path):
    found = skdp.verify(saved(tmp_path, **given))
    assert str(found).startswith(claim)
    assert str(found).endswith("NO CLAIM: this model is not private.")
    assert not found.passed
    assert not [one for one in found.checks if one.passed is False]
    assert json.loads(found.to_json())["claims"] is False


def edit(path, *steps):
    """Change values at ways through a file of JSON; KeyError removes one."""
    about = json.loads(path.read_text("utf-8"))
    for way, value in steps:
        at = about
        for key in way[:-1]:
            at = at[key]
        if value is KeyError:
            del at[way[-1]]
        else:
            at[way[-1]] = value(at[way[-1]])
    path.write_text(json.dumps(about))


LEVEL, STEPS = ("releases", -1), ("releases", -2)
FORGED = {
    "claim": ("privacy.json", [(("spent_epsilon",), lambda e: e / 2)], "closed form"),
    "event": ("privacy.json", [(("releases", 1), KeyError)], "Gram"),
    "no look": ("privacy.json", [(("releases", 0), KeyError)], "sensitivities"),
    "look": (
        "privacy.json",
        [(("releases", 0, "sensitivity"), lambda s: s * 0.9)],
        "sensitivities",
    ),
    "no profile": ("model.json", [(("profile",), lambda _: None)], "sensitivities"),
    "promise": (
        "model.json",
        [(("parameters", "look"), lambda _: False)],
        "parameters",
    ),
    "step": ("privacy.json", [((*STEPS, "times"), lambda k: k - 1)], "number of steps"),
    "noise": (
        "privacy.json",
        [((*STEPS, "noise_multiplier"), lambda z: 2 * z)],
        "closed form",
    ),
    "bound": (
        "privacy.json",
        [((*STEPS, "sensitivity"), lambda s: s / 2)],
        "sensitivities",
    ),
    "level": (
        "privacy.json",
        [((*LEVEL, "sensitivity"), lambda s: s / 2)],
        "sensitivities",
    ),
    "no level": ("privacy.json", [(LEVEL, KeyError)], "sensitivities"),
    "gram": (
        "privacy.json",
        [(("releases", 1, "sensitivity"), lambda s: s / 4)],
        "sensitivities",
    ),
    "neighbours": (
        "privacy.json",
        [(("neighbours",), lambda _: "add-remove")],
        "neighbours",
    ),
    "budget": ("privacy.json", [(("epsilon",), lambda e: e / 2)], "epsilon"),
    "delta": ("privacy.json", [(("delta",), lambda d: d / 10)], "delta"),
    "digest": ("privacy.json", [(("plan_digest",), lambda _: "0" * 64)], "digest"),
    "plan": ("model.json", [(("plan", "n_steps"), lambda k: k - 1)], "digest"),
    "rows": ("model.json", [(("plan", "n_rows"), lambda n: 10 * n)], "digest"),
    "slopes": ("model.json", [(("plan", "slope_bound"), lambda b: b / 2)], "loss"),
    "iterations": ("model.json", [(("n_iter",), lambda k: k + 1)], "number of steps"),
}


@pytest.mark.parametrize("name", FORGED)
def test_an_edited_model_fails(name, tmp_path):
    file, steps, check = FORGED[name]
    model = saved(tmp_path)
    edit(model / file, *steps)
    found = skdp.verify(model)
    assert not found.passed
    assert [
        one.name for one in found.checks if one.passed is False and check in one.name
    ]
    assert "FAILED" in str(found)


@pytest.mark.parametrize("name", ["matrix", "found"])
def test_a_consistent_lie_about_noise_does_not_pass(name, tmp_path):
    """Twice the noise and half the ε add up, but not to the plan's budget."""
    model = saved(tmp_path, name)
    edit(model / "privacy.json", ((*STEPS, "noise_multiplier"), lambda z: 2 * z))
    about = json.loads((model / "privacy.json").read_text())
    releases = [ReleaseForm(**release) for release in about["releases"]]
    honest = closed_form_epsilon(releases, about["delta"])
    edit(model / "privacy.json", (("spent_epsilon",), lambda _: honest))
    found = skdp.verify(model)
    assert not found.passed
    assert "should spend all of" in str(found)


def test_a_ledger_shows_that_it_is_the_record_of_the_run(tmp_path):
    """More of it is in tests/ledger/test_released.py."""
    given = GIVEN | {"neighbours": "replace-one"}
    path = tmp_path / "ledger"
    ledger = skdp.Ledger(path, epsilon=3.0, delta=1e-5, neighbours="replace-one")
    model = skdp.LogisticRegression(**given, ledger=ledger).fit(X, Y)
    assert "ok  ledger: entry 2 of " in str(skdp.verify(model, ledger))
    model.save(tmp_path / "model")
    assert skdp.verify(tmp_path / "model", path).passed
    same = skdp.LogisticRegression(**given).fit(X, Y)
    said = "FAILED  ledger: no entry paid for the releases of this model"
    assert said in str(skdp.verify(same, ledger))


def test_an_entry_that_says_less_than_the_record_fails(tmp_path, monkeypatch):
    path = tmp_path / "ledger"
    ledger = skdp.Ledger(path, epsilon=3.0, delta=1e-5, neighbours="replace-one")
    settle = Reservation.settle

    def less(reservation, mu_squared, delta=0.0, **options):
        settle(reservation, mu_squared * 0.99, delta, **options)

    monkeypatch.setattr(Reservation, "settle", less)
    given = GIVEN | {"neighbours": "replace-one"}
    model = skdp.LogisticRegression(**given, ledger=ledger).fit(X, Y)
    assert "FAILED  ledger: the entry of this model is for a smaller cost" in str(
        skdp.verify(model, ledger)
    )


@pytest.mark.parametrize("name", ["plan_digest", "transcript_digest"])
def test_a_record_without_a_digest_is_refused(name, tmp_path):
    model = saved(tmp_path)
    edit(model / "privacy.json", ((name,), KeyError))
    for look in (skdp.verify, skdp.load):
        with pytest.raises(ValueError, match="missing key"):
            look(model)


@pytest.mark.parametrize("file", ["privacy.json", "model.json", "schema.toml"])
def test_something_else_than_a_model_is_refused_in_one_sentence(file, tmp_path):
    model = saved(tmp_path)
    for content in (b"[]", b"\xff", b"[" * 100_000):
        (model / file).write_bytes(content)
        with pytest.raises(ValueError, match=r"[a-z]") as error:
            skdp.verify(model)
        assert "\n" not in str(error.value).strip()
    (model / file).unlink()
    with pytest.raises(ValueError, match=f"{file}' is missing|no file '{file}'"):
        skdp.verify(model)
    with pytest.raises(ValueError, match="a fitted estimator"):
        skdp.verify(skdp.LogisticRegression())


def test_the_accountant_is_not_imported_by_the_check():
    text = (
        "import sys, skdp.verification.verify as v;"
        "import skdp.privacy.accountant as a;"
        "names = vars(v).values();"
        "assert a not in names and not any("
        "getattr(x, '__module__', '') == a.__name__ for x in names)"
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_a_column_that_nobody_fills_is_asked_for_all_the_same():
    """Its sums are zero: whether they are must not show in the number of releases."""
    schema = skdp.Schema(
        {"a": skdp.Numeric(0, 1), "b": skdp.Categorical(["x", "y"])},
        target=("t", skdp.Categorical([0, 1])),
    )
    table = {"a": X[:, 0], "b": ["none"] * len(X), "t": Y}
    model = skdp.LogisticRegression(
        schema=schema,
        geometry="diagonal",
        sampling="columns",
        neighbours="zero-out",
        n_steps=60,
    ).fit(table)
    taken = sum(
        times
        for event, times in model.privacy_.events.items()
        if event.kind == Kind.GRADIENT
    )
    assert taken == 60


def test_one_fit_is_not_counted_as_several():
    model = skdp.LogisticRegression(**GIVEN)
    given = {"epsilon": 1.0, "delta": 1e-6, "method": "split"}
    found = skdp.verify(
        skdp.PrivateSearchCV(model, {"alpha": [0.1]}, **given).fit(X, Y)
    )
    assert "number of steps: 12 released in 1 fit\n" in str(found)
    assert "Gram matrix: 1 in 1 fit\n" in str(found)


@pytest.mark.parametrize("name", ["matrix", "found", "diagonal", "linear"])
def test_a_release_of_another_kind_does_not_pass(name):
    """Whatever the sentence beside it says: no kind can stand for another one."""
    model = KINDS[name].fit(X, Y)
    right = dict(model.privacy_.events)
    assert verify_kinds(model)
    for event, times in right.items():
        for kind in set(Kind) - {event.kind}:
            wrong = right | {replace(event, kind=kind): times}
            model.privacy_.events = {e: k for e, k in wrong.items() if e != event}
            assert not verify_kinds(model), (event.kind, kind)
    model.privacy_.events = {
        replace(event, query="some words"): times for event, times in right.items()
    }
    assert verify_kinds(model)


def verify_kinds(model):
    """Whether the checks of steps and releases find nothing, without those of ε."""
    given = read_given(model)
    return all(
        one.passed is not False and not (one.passed is None and one.required)
        for one in [*verify._check_steps(given), *verify._check_releases(given)]
    )
