"""An entry pays for one run: no other model passes as the one that was paid for."""

import json
import shutil

import numpy as np
import pytest

import skdp
from skdp.estimators.saving import model_digest
from skdp.ledger import released_digest, transcript_digest
from skdp.solvers import SOLVERS

pytest.importorskip("mpmath")
rng = np.random.default_rng(5)
X = rng.uniform(size=(800, 3))
Y = (X[:, 0] > 0.5).astype(int)
GIVEN = {"epsilon": 0.5, "bounds": (0, 1), "neighbours": "replace-one"}


@pytest.fixture
def ledger(tmp_path):
    path = tmp_path / "budget.db"
    terms = {"epsilon": 8.0, "delta": 1e-5, "reserved_delta": 5e-6}
    return skdp.Ledger(path, **terms, neighbours="replace-one")


def model(solver="skgd", **options):
    options = GIVEN | {"solver": solver} | options
    if solver in SOLVERS and SOLVERS[solver].losses == ("squared",):
        return skdp.LinearRegression(target_bounds=(0, 1), **options)
    return skdp.LogisticRegression(classes=[0, 1], **options)


def entered(found):
    """Return the result of `Ledger.check` as text."""
    (one,) = [check for check in found.checks if check.name == "ledger"]
    return one.passed


@pytest.mark.parametrize("solver", ["skgd", *SOLVERS])
def test_paid_models_pass_and_unpaid_ones_of_the_same_plan_fail(
    solver, ledger, tmp_path
):
    paid = model(solver, ledger=ledger).fit(X, Y)
    paid.save(tmp_path / "paid")
    for form in (paid, tmp_path / "paid", skdp.load(tmp_path / "paid")):
        found = skdp.verify(form, ledger)
        assert found.passed, str(found)
        assert entered(found)
    for table in (X, 1 - X):
        unpaid = model(solver).fit(table, Y)
        unpaid.save(tmp_path / "unpaid")
        for form in (unpaid, tmp_path / "unpaid"):
            found = skdp.verify(form, ledger)
            assert not found.passed
            assert entered(found) is False
            assert skdp.verify(form).passed  # but for the ledger


def test_the_model_that_a_search_chose_was_paid_by_the_search(ledger, tmp_path):
    grid = {"alpha": [1e-5, 1e-2]}
    given = {"epsilon": 1.0, "delta": 1e-6, "method": "split"}
    search = skdp.PrivateSearchCV(model(), grid, ledger=ledger, **given).fit(X, Y)
    search.best_estimator_.save(tmp_path / "best")
    for form in (search, search.best_estimator_, tmp_path / "best"):
        found = skdp.verify(form, ledger)
        assert found.passed, str(found)
        assert entered(found)
    unpaid = skdp.PrivateSearchCV(model(), grid, **given).fit(X, Y)
    assert entered(skdp.verify(unpaid, ledger)) is False


def test_an_evaluation_was_paid(ledger):
    fitted = model().fit(X, Y)
    given = {"epsilon": 0.5, "neighbours": "replace-one"}
    paid = skdp.evaluate(fitted, X, Y, ledger=ledger, **given)
    found = skdp.verify(paid, ledger)
    assert found.passed, str(found)
    assert entered(found)
    assert ledger.entries()[-1].released == paid.to_dict()["privacy"]["released"]
    assert "not checked  sensitivities" in str(found)
    unpaid = skdp.evaluate(fitted, X, Y, **given)
    assert entered(skdp.verify(unpaid, ledger)) is False


@pytest.mark.parametrize("file", ["model.json", "privacy.json"])
def test_a_paid_record_beside_other_weights_fails(file, ledger, tmp_path):
    model(ledger=ledger).fit(X, Y).save(tmp_path / "paid")
    model().fit(X, Y).save(tmp_path / "unpaid")
    shutil.copy(tmp_path / "paid" / file, tmp_path / "unpaid" / file)
    assert skdp.verify(tmp_path / "unpaid").passed
    assert entered(skdp.verify(tmp_path / "unpaid", ledger)) is False


CHANGES = {
    "a weight": ("model.json", ("weights", 0, 0), lambda w: w + 1e-9),
    "steps": ("model.json", ("n_iter",), lambda k: k + 1),
    "the bound on weights": ("model.json", ("parameters", "max_weight"), lambda w: 0.5),
    "released values": ("privacy.json", ("transcript_digest",), lambda _: "0" * 64),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_is_changed_the_entry_is_not_its(name, ledger, tmp_path):
    model(ledger=ledger).fit(X, Y).save(tmp_path / "paid")
    file, way, change = CHANGES[name]
    path = tmp_path / "paid" / file
    about = at = json.loads(path.read_text("utf-8"))
    for key in way[:-1]:
        at = at[key]
    at[way[-1]] = change(at[way[-1]])
    path.write_text(json.dumps(about))
    assert entered(skdp.verify(tmp_path / "paid", ledger)) is False


def test_runs_with_the_same_result_differ_by_what_was_released():
    """A penalty that leaves no weight: the models are equal, the runs are not."""
    flat = model("dp_sgd", alpha=1e6, l1_ratio=1.0, fit_intercept=False, n_steps=3)
    one, other = flat.fit(X, Y), skdp.LogisticRegression(**flat.get_params()).fit(X, Y)
    assert np.all(one.weights_ == 0)
    assert np.all(other.weights_ == 0)
    assert one.privacy_.events == other.privacy_.events
    assert model_digest(one) != model_digest(other)


def test_a_digest_is_of_all_values_in_their_order():
    record = model().fit(X, Y).privacy_
    whole = transcript_digest(record)
    first = released_digest(record)
    record.transcript.reverse()
    assert transcript_digest(record) != whole
    record.transcript.reverse()
    record.transcript.pop()
    assert transcript_digest(record) != whole
    assert released_digest(record) != first


def test_a_fit_that_was_never_settled_counts_but_vouches_for_nothing(
    ledger, monkeypatch
):
    """Its process ends between the last release and the settlement."""

    def die(*_, **__):
        raise SystemExit

    whole = ledger.remaining
    asked = model(ledger=ledger)
    monkeypatch.setattr("skdp.ledger.ledger.Reservation.settle", die)
    with pytest.raises(SystemExit):
        asked.fit(X, Y)
    assert [entry.kind for entry in ledger.entries()] == ["open", "reserve"]
    assert ledger.remaining < whole
    assert entered(skdp.verify(asked, ledger)) is False


def test_a_fit_that_stopped_has_no_digest(ledger, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(skdp.LogisticRegression, "_set_coefficients", stop)
    with pytest.raises(KeyboardInterrupt):
        model(ledger=ledger).fit(X, Y)
    last = ledger.entries()[-1]
    assert (last.kind, last.released) == ("stop", None)
    assert last.mu_squared > 0
