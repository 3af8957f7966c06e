"""A search whose whole cost is charged: fits, scores and the choice."""

import math
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from scipy.stats import loguniform
from sklearn.base import clone, is_classifier, is_regressor

import skdp
from skdp.estimators.fit_warnings import NotPrivateWarning
from skdp.evaluation import search as searching
from skdp.evaluation.folds import RandomFolds, take_rows
from skdp.evaluation.search import (
    Trial,
    TrialResult,
    Trials,
    compute_epsilon,
    run_random,
)
from skdp.privacy.accountant import calibrate, gdp_mu
from skdp.privacy.budget import ALLOWED_DRAWS, PrivacyRecord
from skdp.privacy.queries import Kind

N = 1500
RNG = np.random.default_rng(3)
X = RNG.uniform(size=(N, 3))
MARGIN = X @ [4.0, -4.0, 1.0]
Y = (RNG.uniform(size=N) < 1 / (1 + np.exp(-2 * MARGIN))).astype(int)
LOGISTIC = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], n_steps=15)
GRID = {"alpha": [1e-5, 0.01, 10.0]}


def search(grid=GRID, estimator=LOGISTIC, **given):
    return skdp.PrivateSearchCV(estimator, grid, **({"epsilon": 4.0} | given))


def parts(seed):
    """Positions of the rows that fit and that score in a seeded search."""
    return next(RandomFolds(5, random_state=seed).split(X))


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out", "add-remove"])
@pytest.mark.parametrize("method", ["split", "random"])
def test_the_whole_search_spends_its_budget_and_no_more(method, neighbours):
    model = clone(LOGISTIC).set_params(neighbours=neighbours)
    found = search(estimator=model, method=method, delta=1e-6).fit(X, Y)
    assert found.method_ == method
    assert found.score_privacy_ is not found.privacy_
    for record in (found.privacy_, found.score_privacy_):
        assert record.neighbours == neighbours
        assert record.spent_epsilon <= 4.0
        assert record.spent_epsilon == pytest.approx(4.0, rel=1e-5)
        # Every release is on the list, or that of one trial with the right budget.
        assert record.spent == pytest.approx(record.budget, rel=1e-5)
        assert record.spent <= record.budget * (1 + 1e-9)
        if method == "split":
            assert record.spent == pytest.approx(gdp_mu(4.0, 1e-6) ** 2, rel=1e-5)
    steps = [k for e, k in found.privacy_.events.items() if "gradient" in e.kind]
    assert sum(steps) == (45 if method == "split" else 15)
    scores = [
        k for e, k in found.score_privacy_.events.items() if e.kind == Kind.SCORES
    ]
    assert sum(scores) == len(found.results_) == (3 if method == "split" else 1)
    assert found.best_estimator_.privacy_ is found.privacy_
    assert skdp.verify(found.best_estimator_).passed
    assert "differential privacy" in skdp.statement(found)


def test_it_finds_what_is_better_and_predicts_as_it():
    found = search(epsilon=20.0, random_state=1, method="split").fit(X, Y)
    assert found.best_params_["alpha"] < 1
    assert found.scoring_ == "log_loss"
    assert [trial.params for trial in found.results_] == [
        {"alpha": alpha} for alpha in GRID["alpha"]
    ]
    # As in scikit-learn, higher is better: a loss has a negative sign.
    best = max(found.results_, key=lambda trial: trial.score)
    assert -1 < found.best_score_ < 0
    assert (found.best_score_, found.best_params_) == (best.score, best.params)
    for method in ("predict", "predict_proba", "predict_log_proba"):
        mine, its = (getattr(m, method)(X) for m in (found, found.best_estimator_))
        assert (mine == its).all()
    assert (found.decision_function(X) > 0).tolist() == found.predict(X).tolist()
    assert found.classes_.tolist() == [0, 1]
    assert found.n_features_in_ == 3
    with pytest.warns(NotPrivateWarning):
        assert found.score(X, Y) > 0.75
    assert str(found.privacy_).startswith("seeded: no privacy claim")
    again = search(epsilon=20.0, random_state=1, method="split").fit(X, Y)
    assert again.results_ == found.results_


def test_more_is_better_where_it_is():
    for scoring in ("accuracy", "auc"):
        found = search(scoring=scoring, method="split", random_state=0).fit(X, Y)
        scores = [trial.score for trial in found.results_]
        assert found.best_score_ == max(scores)


def test_a_search_without_noise_scores_the_rows_it_says():
    found = search(epsilon=math.inf, scoring="accuracy", random_state=5).fit(X, Y)
    kept, out = parts(5)
    model = clone(LOGISTIC).set_params(**found.best_params_, epsilon=math.inf)
    model.fit(X[kept], Y[kept])
    assert (model.coef_ == found.best_estimator_.coef_).all()
    right = (model.predict(X[out]) == Y[out]).mean()
    assert found.best_score_ == pytest.approx(right, abs=0.005)


def test_a_row_that_scores_changes_no_model_and_one_that_fits_no_split():
    """Parallel composition: each part has the whole budget because of this."""
    kept, out = parts(5)
    assert sorted([*kept, *out]) == list(range(N))
    given = {"random_state": 5, "method": "split"}
    models = []
    for at in (None, out[7], kept[7]):
        table, labels = X.copy(), Y.copy()
        if at is not None:
            table[at], labels[at] = 1e300, 1 - labels[at]
        models.append(search(**given).fit(table, labels))
    events = [found.privacy_.events for found in models]
    assert events[0] == events[1] == events[2]
    weights = [
        np.concatenate([one.values.ravel() for one in found.privacy_.transcript])
        for found in models
    ]
    assert (weights[0] == weights[1]).all()
    assert not (weights[0] == weights[2]).all()


def watched(monkeypatch):
    """List what trials are made of."""
    seen, made = [], Trials.__init__

    def kept(self, **given):
        seen.append(given)
        made(self, **given)

    monkeypatch.setattr(Trials, "__init__", kept)
    return seen


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out", "add-remove"])
def test_parts_are_not_a_function_of_positions(neighbours, monkeypatch):
    """A row more or less must not move the others from one part to the other."""
    seen = watched(monkeypatch)
    model = clone(LOGISTIC).set_params(neighbours=neighbours)
    for _ in range(2):
        search({"alpha": [0.1]}, model, delta=1e-6).fit(X, Y)
    rows = [
        [set(map(tuple, one[part][0])) for part in ("fit_part", "score_part")]
        for one in seen
    ]
    everything = set(map(tuple, X))
    for fits, scores in rows:
        assert fits | scores == everything
        assert not fits & scores
    assert rows[0] != rows[1]


def test_numbers_of_rows_are_private_in_a_search(monkeypatch):
    """Under add-remove only a release says how many rows there are."""
    seen = watched(monkeypatch)
    grid = {"alpha": [0.1, 1.0]}
    found = search(grid, method="split").fit(X, Y)
    assert found.privacy_.delta == 1e-9
    assert (seen[0]["fit_rows"], seen[0]["score_rows"]) == (None, None)
    assert seen[0]["expected_rows"] == 200
    events = found.privacy_.events.items()
    assert sum(k for e, k in events if e.query.startswith("number of rows, ")) == 2
    model = clone(LOGISTIC).set_params(n_rows=2000)
    found = search(grid, model, method="split").fit(X, Y)
    assert found.privacy_.delta == 1e-6
    assert (seen[1]["fit_rows"], seen[1]["score_rows"]) == (1600, None)
    assert found.best_estimator_.plan_.n_rows == 1600
    assert not any("number of rows" in e.query for e in found.privacy_.events)
    assert "The number of rows given is public." in str(found.privacy_)
    model = clone(LOGISTIC).set_params(look=False)
    found = search(grid, model, method="split").fit(X, Y)
    counts = [k for e, k in found.privacy_.events.items() if e.kind == Kind.ROW_COUNT]
    assert sum(counts) == 2


@pytest.mark.parametrize("n_rows", [0, 1, 2, 6])
@pytest.mark.parametrize("method", ["split", "random"])
def test_a_private_number_of_rows_never_raises(method, n_rows):
    """A part may be empty, which must not show."""
    for _ in range(2):
        found = search(method=method, epsilon=1.0).fit(X[:n_rows], Y[:n_rows])
        assert found.method_ == method
    model = clone(LOGISTIC).set_params(neighbours="replace-one")
    with pytest.raises(ValueError, match=r"at least 50 rows|minimum"):
        search(estimator=model, epsilon=1.0).fit(X[:n_rows], Y[:n_rows])


def test_auto_takes_what_gives_a_candidate_more():
    assert (
        search({"alpha": [0.1, 1.0]}, epsilon=1.0)._choose_stop(2, 1e-6, False) is None
    )
    stop = search(epsilon=1.0)._choose_stop(10, 1e-6, False)
    assert stop is not None
    assert search(epsilon=1.0)._choose_stop(10, 1e-6, True) is None
    assert search(epsilon=math.inf)._choose_stop(10, 1e-6, False) is None


class Toy(Trials):
    """Trials whose score is uniform: the best of K has a known law."""

    def run(self, params, budget, index):
        calls.append(params["alpha"])
        score = float(draws.uniform())
        model = clone(LOGISTIC)
        model.privacy_ = own
        trial = Trial(params=params, score=score, noise_std=0.0)
        return TrialResult(trial=trial, model=model, score_record=own)


calls: list[float] = []
own = PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
draws = np.random.default_rng(0)


def test_the_number_of_trials_and_the_best_have_the_law_of_the_theorem():
    mean = 4.0
    made = search(method="random", n_trials=mean)
    stop = made._choose_stop(3, 1e-6, False)
    record, scored = (made._open_record((), 1e-6, 3, stop, None) for _ in range(2))
    trials = object.__new__(Toy)
    vars(trials)["noise"] = searching.Randomness(0)
    candidates = [{"alpha": alpha} for alpha in GRID["alpha"]]
    best, rounds = [], 600
    calls.clear()
    for _ in range(rounds):
        one = run_random(trials, candidates, record, scored, record.stop)
        best.append(one.trial.score)
        record.events.clear()
        scored.events.clear()
    assert len(calls) / rounds == pytest.approx(mean, rel=0.1)
    for alpha in GRID["alpha"]:
        assert calls.count(alpha) == pytest.approx(len(calls) / 3, rel=0.15)
    stop = record.stop
    for x in (0.2, 0.5, 0.8):  # the generating function at x is P(best ≤ x)
        chance = ((1 - (1 - stop) * x) ** -3 - 1) / (stop**-3 - 1)
        assert np.mean(np.array(best) <= x) == pytest.approx(chance, abs=0.06)


def test_what_a_random_search_does_not_hand_out():
    found = search(method="random", n_trials=6.0).fit(X, Y)
    assert len(found.results_) == 1
    text = pickle.dumps(found)  # nothing of other trials is kept anywhere
    state = vars(found) | vars(found.best_estimator_)
    assert not {"n_trials_", "trials_", "noise"} & set(state)
    steps = [one for one in found.privacy_.transcript if "gradient" in one.kind]
    assert len(steps) == 15
    for record in (found.privacy_, found.score_privacy_):
        assert len(record.transcript) == sum(record.events.values())
    assert pickle.loads(text).best_params_ == found.best_params_
    assert "The run time reveals the number of fits." in str(found.privacy_)


def test_a_search_that_stops_has_charged_the_trial_it_was_in(tmp_path, monkeypatch):
    ledger = skdp.Ledger(tmp_path / "ledger", epsilon=4.0, delta=1e-5)
    whole, run = [], Trials.run

    def fails(self, params, budget, index):
        whole.append(budget)
        if index == 1:
            raise KeyboardInterrupt
        return run(self, params, budget, index)

    monkeypatch.setattr(Trials, "run", fails)
    with pytest.raises(KeyboardInterrupt) as stop:
        search(ledger=ledger, delta=1e-6).fit(X, Y)
    assert "trial that did not end" in "".join(stop.value.__notes__)
    entry = ledger.entries()[-1]
    assert entry.kind == "stop"
    assert entry.mu_squared == pytest.approx(2 * whole[0], rel=1e-6)


def test_a_random_search_that_stops_has_charged_before_it_read(monkeypatch):
    def fails(self, params, budget, index):
        raise KeyboardInterrupt

    monkeypatch.setattr(Trials, "run", fails)
    with pytest.raises(KeyboardInterrupt) as stop:
        search(method="random").fit(X, Y)
    assert "1 × trial that did not end" in "".join(stop.value.__notes__)


def test_a_ledger_is_charged_with_all_of_it(tmp_path):
    ledger = skdp.Ledger(tmp_path / "ledger", epsilon=4.0, delta=1e-5)
    found = search(ledger=ledger, delta=1e-6).fit(X, Y)
    assert found.method_ == "split"
    assert len([e for e in ledger.entries() if e.kind == "commit"]) == 1
    assert ledger.entries()[-1].mu_squared == pytest.approx(found.privacy_.spent)
    with pytest.raises(skdp.BudgetError):
        search(ledger=ledger, delta=1e-6).fit(X, Y)
    with pytest.raises(ValueError, match="cannot be charged to a ledger"):
        search(ledger=ledger, method="random").fit(X, Y)
    with pytest.raises(ValueError, match="seeded"):
        search(ledger=ledger, random_state=1).fit(X, Y)


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out", "add-remove"])
@pytest.mark.parametrize("calibration", ["exact", "paper"])
def test_rows_that_score_pay_no_more_than_is_told(calibration, neighbours, tmp_path):
    """Fits may spend less than they were given: then so do scores."""
    ledger = skdp.Ledger(
        tmp_path / "ledger", epsilon=4.0, delta=1e-5, neighbours=neighbours
    )
    model = clone(LOGISTIC).set_params(neighbours=neighbours, calibration=calibration)
    found = search(GRID, model, ledger=ledger, epsilon=1.0, delta=1e-6).fit(X, Y)
    told = found.best_estimator_.privacy_
    assert found.score_privacy_.spent <= told.spent
    assert told.spent <= ledger.entries()[-1].mu_squared
    assert skdp.verify(found.best_estimator_).passed


def test_a_ledger_of_the_estimator_is_charged_too(tmp_path):
    ledger = skdp.Ledger(tmp_path / "ledger", epsilon=4.0, delta=1e-5)
    model = clone(LOGISTIC).set_params(ledger=ledger)
    found = search(estimator=model, delta=1e-6).fit(X, Y)
    assert ledger.entries()[-1].mu_squared == pytest.approx(found.privacy_.spent)
    with pytest.raises(ValueError, match="not on both"):
        search(estimator=model, ledger=ledger).fit(X, Y)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("grid", [GRID, {"n_steps": [5, 15]}, {"n_steps": [15, 5]}])
def test_standard_errors_are_those_of_the_chosen_model(
    grid, neighbours, tmp_path, monkeypatch
):
    own, run = {}, Trials.run

    def kept(self, params, budget, index):
        one = run(self, params, budget, index)
        own[id(one.model)] = clone_errors(one.model)
        return one

    def clone_errors(model):
        errors = model.coef_std_
        model._errors = None
        return errors

    monkeypatch.setattr(Trials, "run", kept)
    model = clone(LOGISTIC).set_params(neighbours=neighbours)
    best = search(grid, model, method="split").fit(X, Y).best_estimator_
    np.testing.assert_array_equal(best.coef_std_, own[id(best)])
    best.save(tmp_path / "model")
    np.testing.assert_array_equal(
        skdp.load(tmp_path / "model").coef_std_, own[id(best)]
    )


def test_saved_models_say_what_the_search_cost(tmp_path):
    for method in ("split", "random"):
        found = search(method=method).fit(X, Y)
        found.best_estimator_.save(tmp_path / "model")
        other = skdp.load(tmp_path / "model")
        assert other.privacy_.spent_epsilon == found.privacy_.spent_epsilon
        assert str(other.privacy_) == str(found.privacy_)
        checked = skdp.verify(tmp_path / "model")
        assert checked.passed, str(checked)
        assert checked.closed_form == pytest.approx(4.0, rel=1e-4)
        path = tmp_path / "model" / "privacy.json"
        text = path.read_text()
        path.write_text(text.replace('"epsilon": 4.0', '"epsilon": 2.0'))
        with pytest.raises(ValueError, match=r"(?i)it was changed"):
            skdp.load(tmp_path / "model")
        assert not skdp.verify(tmp_path / "model").passed
        if method == "random":
            path.write_text(re.sub(r'"stop": [0-9.]+', '"stop": 0.9', text))
            assert not skdp.verify(tmp_path / "model").passed


def as_frame(kind):
    frame = pd.DataFrame(X, columns=list("abc"))
    return {
        "pandas": frame,
        "polars": pl.from_pandas(frame),
        "arrow": pa.Table.from_pandas(frame),
        "dict": {name: frame[name].to_numpy() for name in frame},
        "array": X,
        "lists": X.tolist(),
        "sparse": sparse.csr_array(X),
    }[kind]


@pytest.mark.parametrize(
    "kind", ["pandas", "polars", "arrow", "dict", "array", "lists", "sparse"]
)
def test_every_table_in_memory_is_divided_alike(kind):
    model = LOGISTIC
    if kind == "sparse":
        model = clone(LOGISTIC).set_params(bounds=(0, 2))
    given = {"epsilon": 8.0, "random_state": 2, "method": "split", "estimator": model}
    expected = search(**given).fit(sparse.csr_array(X) if kind == "sparse" else X, Y)
    labels = Y.tolist() if kind == "lists" else Y
    found = search(**given).fit(as_frame(kind), labels)
    assert found.results_ == expected.results_


def test_a_file_is_refused(tmp_path):
    with pytest.raises(ValueError, match="in memory"):
        take_rows(tmp_path / "t.csv", np.arange(3))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"grid": {"epsilon": [1.0, 2.0]}}, "must not contain 'epsilon'"),
        ({"grid": {"calibration": ["paper"]}}, "must not contain 'calibration'"),
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"grid": {"nonsense": [1]}}, "Invalid parameter 'nonsense'"),
        ({"grid": []}, "at least one candidate"),
        ({"estimator": skdp.LogisticRegression(bounds=(0, 1))}, "complete public"),
        ({"estimator": object()}, "an skdp model"),
        (
            {"estimator": clone(LOGISTIC).set_params(solver="dp_sgd")},
            "charges δ as well",
        ),
        ({"method": "best"}, "method must be"),
        ({"n_trials": 0.5}, "n_trials must be"),
        ({"scoring": "r2"}, "must be among"),
        ({"scoring": "calibration"}, "a single value"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": 1e-6, "method": "split"}, "too small for this search"),
        ({"delta": 0.1}, "delta must be"),
    ],
)
def test_public_mistakes_raise(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        search(**given).fit(X, Y)


def test_candidates_may_be_drawn_from_laws():
    grid = {"alpha": loguniform(1e-6, 1.0)}
    found = search(grid, n_candidates=4, random_state=0, method="split").fit(X, Y)
    assert len({trial.params["alpha"] for trial in found.results_}) == 4


def test_regressors_and_three_classes():
    real = MARGIN + RNG.normal(size=N)
    model = skdp.LinearRegression(bounds=(0, 1), target_bounds=(-9, 9), n_steps=15)
    found = search(estimator=model, epsilon=20.0, max_residual=4.0).fit(X, real)
    assert found.scoring_ == "r2"
    assert is_regressor(found)
    assert not is_classifier(found)
    assert not hasattr(found, "predict_proba")
    three = np.digitize(real, [-1.0, 1.0])
    model = clone(LOGISTIC).set_params(classes=[0, 1, 2])
    found = search(estimator=model, epsilon=20.0).fit(X, three)
    assert is_classifier(found)
    assert found.predict_proba(X).shape == (N, 3)


def test_it_is_an_estimator_of_scikit_learn_s():
    made = search(scoring="auc", n_trials=5.0)
    assert clone(made).get_params(deep=False).keys() == made.get_params(False).keys()
    assert clone(made).scoring == "auc"
    assert made.get_params()["estimator__alpha"] == LOGISTIC.alpha
    with pytest.raises(ValueError, match="not fitted"):
        made.predict(X)


@pytest.mark.parametrize("budget", [1e-4, 0.05, 2.0])
def test_a_part_of_the_budget_buys_no_more_than_it_is(budget):
    epsilon = compute_epsilon(budget, 1e-6)
    bought = calibrate(epsilon, 1e-6, ALLOWED_DRAWS) ** 2
    assert budget * (1 - 1e-3) < bought <= budget


def test_odd_cells_do_not_show():
    for odd in (math.nan, 1e308, "x", None, 10**400):
        table = X.astype(object)
        table[:40:2, 0] = table[1:40:2, 1] = odd  # of rows that score or fit
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = search(method="split").fit(table, Y)
        assert len(found.results_) == 3


@pytest.mark.parametrize("method", ["split", "random"])
@pytest.mark.parametrize("as_text", [True, False])
def test_a_file_is_refused_as_it_cannot_be_divided(tmp_path, method, as_text):
    """Fits and scores of the same rows would each be charged as if apart."""
    path = tmp_path / "table.csv"
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=Y)
    frame.to_csv(path, index=False)
    columns = {name: skdp.Numeric(0, 1) for name in "abc"}
    schema = skdp.Schema(columns, target=("y", skdp.Categorical([0, 1])))
    model = skdp.LogisticRegression(schema=schema, n_steps=5)
    finder = skdp.PrivateSearchCV(model, GRID, epsilon=1.0, method=method)
    with pytest.raises(ValueError, match="must be in memory"):
        finder.fit(str(path) if as_text else path)


def test_a_search_shows_no_progress_of_its_trials(capsys):
    """How many there were is not paid for."""
    loud = clone(LOGISTIC).set_params(verbose=1)
    search(estimator=loud, method="random").fit(X, Y)
    shown = capsys.readouterr()
    assert shown.out + shown.err == ""
