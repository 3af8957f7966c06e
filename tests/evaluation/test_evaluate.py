"""Private scores are right without noise, state their noise, and are charged."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from sklearn import metrics

import skdp
from skdp.evaluation.metrics import CURVE, list_metrics
from skdp.evaluation.score_cells import BINS_SHARE, Column, _find_range
from skdp.evaluation.uncertainty import PlausibleCounts, score_calibration
from skdp.privacy.accountant import gdp_mu

N = 3000
RNG = np.random.default_rng(1)
X = RNG.uniform(size=(N, 4))
MARGIN = X @ [3.0, -3.0, 2.0, -2.0]
Y = (RNG.uniform(size=N) < 1 / (1 + np.exp(-2 * MARGIN))).astype(int)
REAL = MARGIN + RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(MARGIN / 3)).clip(0, 9)
THREE = np.digitize(REAL, [-1.0, 1.0])
RANGES = {"linear": (-8, 8), "poisson": (0, 9)}
EXACT = {"epsilon": math.inf, "bounds": (0, 1), "n_steps": 60}


def fitted(kind, y, **given):
    return kind(**(EXACT | given)).fit(X, y)


LOGISTIC = fitted(skdp.LogisticRegression, Y, classes=[0, 1])
SOFTMAX = fitted(skdp.LogisticRegression, THREE, classes=[0, 1, 2])
SVC = fitted(skdp.LinearSVC, Y, classes=[0, 1])
LINEAR = fitted(skdp.LinearRegression, REAL, target_bounds=RANGES["linear"])
POISSON = fitted(skdp.PoissonRegressor, COUNTS, target_bounds=RANGES["poisson"])


def truth(model, y, weight=None):
    """The same scores by scikit-learn."""
    given = {"sample_weight": weight}
    if hasattr(model, "classes_"):
        guess, binary = model.predict(X), len(model.classes_) == 2
        found = {"accuracy": metrics.accuracy_score(y, guess, **given)}
        found["balanced_accuracy"] = metrics.balanced_accuracy_score(y, guess, **given)
        mean = given | {"average": "binary" if binary else "macro"}
        found["precision"] = metrics.precision_score(y, guess, **mean)
        found["recall"] = metrics.recall_score(y, guess, **mean)
        found["f1"] = metrics.f1_score(y, guess, **mean)
        if hasattr(model, "predict_proba"):
            chance = model.predict_proba(X)
            found["log_loss"] = metrics.log_loss(y, chance, **given)
            found["d2"] = metrics.d2_log_loss_score(y, chance, **given)
        if len(model.classes_) == 2:
            score = model.decision_function(X)
            found["auc"] = metrics.roc_auc_score(y, score, **given)
        return found
    guess = model.predict(X)
    mse = metrics.mean_squared_error(y, guess, **given)
    deviances = {}
    if model.link == "log":
        deviances["deviance"] = metrics.mean_poisson_deviance(y, guess, **given)
        deviances["d2"] = metrics.d2_tweedie_score(y, guess, power=1, **given)
    return deviances | {
        "r2": metrics.r2_score(y, guess, **given),
        "mse": mse,
        "rmse": math.sqrt(mse),
        "mae": metrics.mean_absolute_error(y, guess, **given),
    }


MODELS = {
    "logistic": (LOGISTIC, Y),
    "softmax": (SOFTMAX, THREE),
    "svc": (SVC, Y),
    "linear": (LINEAR, REAL),
    "poisson": (POISSON, COUNTS),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_without_noise_the_scores_are_the_exact_ones(name, weighted):
    model, y = MODELS[name]
    weight = RNG.uniform(0, 2, N) if weighted else None
    wanted = list_metrics(model, model.schema_)
    found = skdp.evaluate(
        model,
        X,
        y,
        epsilon=math.inf,
        metrics=wanted,
        sample_weight=weight,
        max_weight=2.0,
        max_loss=16.0,
    )
    expected = truth(model, y, weight)
    assert set(found.values) - {"ece"} == set(expected)
    assert (found.confusion is None) == (not hasattr(model, "classes_"))
    if found.confusion is not None:
        exact = metrics.confusion_matrix(y, model.predict(X), sample_weight=weight)
        assert np.abs(np.array(found.confusion.counts) - exact).max() < 4
    for metric, value in expected.items():
        # Features are read on a grid of 2⁻¹⁴: a row or two may change sides.
        assert found[metric] == pytest.approx(value, abs=2e-3), metric
        assert found.scores[metric].noise_std == 0
    assert str(found.privacy_).startswith("no noise: no privacy claim")


def test_losses_and_residuals_are_clipped_where_it_is_said():
    found = skdp.evaluate(LOGISTIC, X, Y, epsilon=math.inf, max_loss=0.5)
    chance = LOGISTIC.predict_proba(X)[np.arange(N), Y]
    clipped = np.minimum(-np.log(chance), 0.5).mean()
    assert found["log_loss"] == pytest.approx(clipped, abs=1e-3)
    assert "The log-loss of a row is clipped at 0.5." in str(found)
    found = skdp.evaluate(LINEAR, X, REAL, epsilon=math.inf, max_residual=1.0)
    size = np.minimum(np.abs(LINEAR.predict(X) - REAL), 1.0)
    assert found["mae"] == pytest.approx(size.mean(), abs=1e-3)
    assert found["r2"] == pytest.approx(1 - (size**2).mean() / REAL.var(), abs=1e-3)
    assert "Residuals are clipped at 1." in str(found)


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out", "add-remove"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_all_of_the_budget_and_no_more_is_spent(neighbours, epsilon):
    found = skdp.evaluate(
        LOGISTIC, X, Y, epsilon=epsilon, delta=1e-6, neighbours=neighbours
    )
    record = found.privacy_
    assert record.neighbours == neighbours
    assert record.spent_epsilon <= epsilon
    assert record.spent_epsilon == pytest.approx(epsilon, rel=1e-6)
    mu = math.sqrt(sum(k / e.noise_multiplier**2 for e, k in record.events.items()))
    assert mu == pytest.approx(gdp_mu(epsilon, 1e-6), rel=1e-6)
    shares = [e.mu_squared / mu**2 for e in record.events]
    assert shares == pytest.approx([BINS_SHARE, 1 - BINS_SHARE], rel=1e-6)


@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("name", ["logistic", "linear"])
def test_noise_is_as_large_as_it_says(name, neighbours):
    """And intervals that are 20 % too narrow or too wide would be noticed."""
    model, y = MODELS[name]
    wanted = {"logistic": ["accuracy", "log_loss", "auc"], "linear": ["mae", "r2"]}
    exact = skdp.evaluate(
        model, X, y, epsilon=math.inf, metrics=wanted[name], neighbours=neighbours
    )
    errors = {metric: [] for metric in wanted[name]}
    for seed in range(120):
        found = skdp.evaluate(
            model,
            X,
            y,
            epsilon=4.0,
            metrics=wanted[name],
            neighbours=neighbours,
            random_state=seed,
        )
        for metric, score in found.scores.items():
            errors[metric].append((score.value - exact[metric]) / score.noise_std)
    for metric, scaled in errors.items():
        assert 0.83 < np.std(scaled) < 1.2, metric
        # Few bins make ties, so the area is a little too small.
        least = -1.0 if metric == "auc" else -0.25
        assert least < np.mean(scaled) < 0.25, metric


def test_intervals_cover_the_score_on_other_rows():
    """Over fresh tables and fresh noise, of 95 % intervals about 95 % are right."""
    big = RNG.uniform(size=(200_000, 4))
    drawn = RNG.uniform(size=len(big)) < 1 / (1 + np.exp(-2 * (big @ [3, -3, 2, -2])))
    chance = LOGISTIC.predict_proba(big)[:, 1]
    loss = np.minimum(-np.log(np.where(drawn, chance, 1 - chance)), 5.0).mean()
    right = {"accuracy": ((chance > 0.5) == drawn).mean(), "log_loss": loss}
    right["auc"] = metrics.roc_auc_score(drawn, chance)
    hits = dict.fromkeys(right, 0)
    for seed in range(100):
        at = slice(2000 * seed, 2000 * seed + 2000)
        found = skdp.evaluate(
            LOGISTIC, big[at], drawn[at], epsilon=2.0, random_state=seed
        )
        for metric, value in right.items():
            score = found.scores[metric]
            hits[metric] += score.low <= value <= score.high
            assert 0 < score.noise_std < 0.05
    assert all(88 <= count <= 100 for count in hits.values()), hits


def test_sampling_errors_of_regression_are_no_smaller_than_the_truth():
    found = skdp.evaluate(LINEAR, X, REAL, epsilon=math.inf)
    guess = LINEAR.predict(X)
    draws = {"r2": [], "mae": [], "rmse": []}
    for _ in range(300):
        at = RNG.integers(0, N, N)
        mse = np.mean((guess[at] - REAL[at]) ** 2)
        draws["r2"].append(1 - mse / REAL[at].var())
        draws["mae"].append(np.abs(guess[at] - REAL[at]).mean())
        draws["rmse"].append(math.sqrt(mse))
    for metric, values in draws.items():
        ratio = found.scores[metric].sampling_std / np.std(values)
        assert (0.9 < ratio < 3.0) if metric == "r2" else (0.85 < ratio < 1.15), metric


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 4.0])
def test_every_number_is_possible(name, epsilon):
    """Shares in [0, 1], no negative counts, no nan, values inside their intervals."""
    model, y = MODELS[name]
    known = list_metrics(model, model.schema_)
    highest = {"mae": math.inf, "rmse": math.inf, "mse": math.inf, "log_loss": math.inf}
    for seed, rows in enumerate((0, 1, 30, 400)):
        found = skdp.evaluate(
            model, X[:rows], y[:rows], epsilon=epsilon, metrics=known, random_state=seed
        )
        for metric, score in found.scores.items():
            low, high = (
                -1.0 if metric in ("r2", "d2") else 0.0,
                highest.get(metric, 1.0),
            )
            high = math.inf if metric == "deviance" else high
            assert low <= score.low <= score.value <= score.high <= high, metric
            assert score.low < score.high or score.noise_std == 0, metric
            assert math.isfinite(score.noise_std + score.sampling_std), metric
        for one in found.calibration:
            assert 0 <= one.low <= one.predicted <= one.high <= 1
            assert 0 <= one.positives <= one.count
            assert 0 <= one.rate_low <= one.rate <= one.rate_high <= 1
        if found.confusion is not None:
            assert min(map(min, found.confusion.counts)) >= 0
        assert found.n_rows >= 1
        assert "nan" not in str(found)
        roc = np.array(found.roc or [(0.0, 1.0)])
        assert (np.diff(roc, axis=0) >= 0).all()


def test_where_noise_hides_everything_it_says_so():
    found = skdp.evaluate(LINEAR, X[:50], REAL[:50], epsilon=0.01, random_state=1)
    score = found.scores["r2"]
    assert score.too_noisy
    assert score.high == 1.0
    assert "r2    too noisy to say" in str(found)
    found = skdp.evaluate(LOGISTIC, X[:50], Y[:50], epsilon=0.01, random_state=1)
    assert all(score.too_noisy for score in found.scores.values())
    assert all(one.too_noisy for one in found.calibration)
    clear = skdp.evaluate(LOGISTIC, X, Y, epsilon=8.0, random_state=1)
    assert not any(score.too_noisy for score in clear.scores.values())
    assert "too noisy" not in str(clear)


def test_a_wide_range_of_the_target_costs_little():
    """Bounds on residuals and on the target are found, so r2 is as good as before."""
    wide = fitted(skdp.LinearRegression, REAL, target_bounds=(-100, 100))
    found = skdp.evaluate(wide, X, REAL, epsilon=4.0, random_state=1)
    notes = " ".join(found.notes)
    assert "Residuals are clipped at" in notes
    assert "computed after clipping the target to" in notes
    exact = metrics.r2_score(REAL, wide.predict(X))
    assert found.scores["r2"].noise_std < 0.05
    assert found["r2"] == pytest.approx(exact, abs=0.15)


def test_calibration_error_is_that_of_the_bins():
    """An overconfident model is told from a calibrated one, with its interval."""
    sure = fitted(skdp.LogisticRegression, Y, classes=[0, 1])
    sure.weights_ = 3 * sure.weights_
    for model, high in ((LOGISTIC, 0.03), (sure, 0.2)):
        found = skdp.evaluate(model, X, Y, epsilon=4.0, random_state=1)
        chance = model.predict_proba(X)[:, 1]
        at = np.digitize(chance, [one.high for one in found.calibration[:-1]])
        error = np.abs(np.bincount(at, Y - chance)).sum() / N
        score = found.scores["ece"]
        assert score.low <= error <= score.high
        assert score.value < high
    assert score.low > 0.03


def test_curves_are_drawn_from_what_was_released():
    pytest.importorskip("matplotlib")
    found = skdp.evaluate(LOGISTIC, X, Y, epsilon=1.0, random_state=1)
    roc, curve = found.plot().axes
    drawn = [patch.get_path().vertices for patch in roc.patches]
    assert any(line.tolist() == np.array(found.roc).tolist() for line in drawn)
    assert "AUC" in roc.texts[-1].get_text()
    assert len(curve.lines) == len(found.calibration)
    with pytest.raises(ValueError, match="Request the metrics 'auc' or 'calibration'"):
        skdp.evaluate(LINEAR, X, REAL, epsilon=1.0).plot()
    frame = found.to_frame()
    assert frame.loc["auc", "value"] == found["auc"]


def test_calibration_tells_counts_and_positives():
    exact = skdp.evaluate(LOGISTIC, X, Y, epsilon=math.inf, metrics=["calibration"])
    chance = LOGISTIC.predict_proba(X)[:, 1]
    assert sum(one.count for one in exact.calibration) == pytest.approx(N)
    assert sum(one.positives for one in exact.calibration) == pytest.approx(Y.sum())
    for one in exact.calibration:
        inside = (chance >= one.low) & (chance < one.high)
        assert one.count == pytest.approx(inside.sum(), abs=4)
        assert one.positives == pytest.approx(Y[inside].sum(), abs=4)
        assert one.predicted == pytest.approx(chance[inside].mean(), abs=0.01)
        assert one.count == pytest.approx(N / 10, rel=0.2)
    noisy = skdp.evaluate(LOGISTIC, X, Y, epsilon=2.0, metrics=["calibration"])
    assert noisy.scores == {}
    for one in noisy.calibration:
        inside = (chance >= one.low) & (chance < one.high)
        assert abs(one.rate - Y[inside].mean()) < 6 * one.rate_std
        assert one.rate_low <= Y[inside].mean() + 0.05
        assert one.rate_high >= Y[inside].mean() - 0.05
    assert "predicted  observed" in str(noisy)


def test_rows_are_counted_only_where_their_number_is_private():
    given = {"epsilon": 1.0, "metrics": ["accuracy"], "neighbours": "replace-one"}
    public = skdp.evaluate(LOGISTIC, X, Y, **given)
    assert public.n_rows == N
    found = [
        skdp.evaluate(
            LOGISTIC,
            X,
            Y,
            epsilon=1.0,
            metrics=["accuracy"],
            n_rows=given,
            random_state=1,
        )
        for given in (None, 2000)
    ]
    assert found[0].n_rows != N
    assert found[0].n_rows == pytest.approx(N, rel=0.05)
    assert found[1].n_rows == 2000
    assert "The number of rows given is public." in found[1].privacy_.assumptions
    weighted = skdp.evaluate(
        LOGISTIC, X, Y, epsilon=math.inf, sample_weight=np.full(N, 0.25)
    )
    assert weighted.n_rows == pytest.approx(N / 4)


def test_a_class_that_the_schema_does_not_have_is_a_wrong_answer():
    labels = Y.astype(object)
    labels[:300] = "neither"
    found = skdp.evaluate(LOGISTIC, X, labels, epsilon=math.inf)
    right = LOGISTIC.predict(X)[300:] == Y[300:]
    assert found["accuracy"] == pytest.approx(right.sum() / N, abs=1e-3)
    area = metrics.roc_auc_score(Y[300:], LOGISTIC.decision_function(X)[300:])
    assert found["auc"] == pytest.approx(area, abs=1e-3)
    assert sum(one.count for one in found.calibration) == pytest.approx(N - 300)


def test_reading_by_name_and_printing(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd")).assign(ill=Y)
    frame.to_csv(tmp_path / "t.csv", index=False)
    schema = skdp.Schema(
        {name: skdp.Numeric(0, 1) for name in "abcd"},
        target=("ill", skdp.Categorical([0, 1])),
    )
    model = skdp.LogisticRegression(schema=schema, n_steps=20).fit(frame)
    for table in (frame, tmp_path / "t.csv"):
        found = skdp.evaluate(model, table, epsilon=2.0)
        assert 0.5 < found["accuracy"] < 1
        text = json.dumps(found.to_dict())
        assert json.loads(text)["privacy"]["spent_epsilon"] <= 2.0
        assert "(2, 1e-09)-differential privacy" in str(found)
    assert "2-D" not in skdp.statement(found)
    assert "scores (margins)" in " ".join(skdp.statement(found).split())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrics": ["r2"]}, "must be among"),
        ({"metrics": []}, "at least one of"),
        ({"epsilon": 0.0}, "epsilon must be positive"),
        ({"epsilon": "1"}, "epsilon must be a number"),
        ({"delta": 0.5}, "delta must be"),
        ({"max_loss": 17.0}, "max_loss must be in"),
        ({"confidence": 1.0}, "confidence must be in"),
        ({"neighbours": "friends"}, "neighbours must be"),
        ({"max_weight": -1.0, "sample_weight": np.ones(N)}, "max_weight"),
    ],
)
def test_public_mistakes_raise(given, message):
    with pytest.raises(ValueError, match=message):
        skdp.evaluate(LOGISTIC, X, Y, **({"epsilon": 1.0} | given))


@pytest.mark.parametrize("high", [1e-320, 1e-300, 1e-200, 1e200])
def test_a_range_whose_square_is_not_a_float_is_refused(high):
    target = skdp.Numeric(0, high)
    schema = skdp.Schema({"a": skdp.Numeric(0, 1)}, target=("y", target))
    table = {"a": np.ones(20), "y": np.ones(20)}
    model = skdp.LinearRegression(schema=schema, random_state=0).fit(table)
    with pytest.raises(ValueError, match="Choose another unit for the target"):
        skdp.evaluate(model, table, epsilon=1.0)


def test_only_fitted_models_of_ours():
    for model, message in ((object(), "an skdp model"), (skdp.LinearSVC(), "fitted")):
        with pytest.raises(ValueError, match=message):
            skdp.evaluate(model, X, Y, epsilon=1.0)
    for bound in (17.0, 0.0, 1e-300):
        with pytest.raises(ValueError, match="max_residual must be in"):
            skdp.evaluate(LINEAR, X, REAL, epsilon=1.0, max_residual=bound)


def test_a_ledger_is_charged_and_can_refuse(tmp_path):
    ledger = skdp.Ledger(tmp_path / "ledger", epsilon=1.0, delta=1e-5)
    found = skdp.evaluate(LOGISTIC, X, Y, epsilon=0.6, delta=1e-6, ledger=ledger)
    entry = ledger.entries()[-1]
    assert entry.query == "evaluation of a LogisticRegression"
    assert entry.mu_squared == pytest.approx(found.privacy_.spent)
    with pytest.raises(skdp.BudgetError):
        skdp.evaluate(LOGISTIC, X, Y, epsilon=1.0, delta=1e-6, ledger=ledger)
    with pytest.raises(ValueError, match="seeded"):
        skdp.evaluate(LOGISTIC, X, Y, epsilon=0.1, ledger=ledger, random_state=1)


@pytest.mark.parametrize("model", [LOGISTIC, LINEAR], ids=["classes", "numbers"])
def test_a_number_of_rows_that_is_found_to_be_none_divides_nothing(model):
    """Noise may hide all rows of a small table, whose number is private."""
    given = {"epsilon": math.inf, "neighbours": "add-remove"}
    known = list_metrics(model, model.schema_)
    found = skdp.evaluate(model, X[:0], Y[:0], metrics=known, **given)
    assert all(math.isfinite(score.value) for score in found.scores.values())


@pytest.mark.parametrize("name", MODELS)
def test_intervals_are_ordered_and_within_the_range_of_their_score(name):
    """Noise moves a score of one row far out of its range."""
    model, y = MODELS[name]
    width = 1.0 if hasattr(model, "classes_") else float(np.ptp(RANGES[name]))
    largest = {"log_loss": 5.0, "rmse": width, "mae": width, "mse": width**2}
    largest["deviance"] = 2 * 16 * width
    for seed in range(4):
        given = {"delta": 1e-6, "random_state": seed, "neighbours": "add-remove"}
        known = list_metrics(model, model.schema_)
        found = skdp.evaluate(model, X[:1], y[:1], epsilon=0.5, metrics=known, **given)
        for metric, score in found.scores.items():
            assert score.low <= score.value <= score.high <= largest.get(metric, 1.0)
            assert score.low >= (-1 if metric in ("r2", "d2") else 0)
            assert 0 <= score.noise_std <= largest.get(metric, 2.0)
        for one in found.calibration:
            assert 0 <= one.rate_low <= one.rate <= one.rate_high <= 1


def test_the_lower_end_of_a_calibration_error_is_at_most_one():
    """Found with one row: noise made the sum of the gaps larger than n."""
    column = Column(name=CURVE, size=9, divide=lambda rows: (rows, rows))
    cells = np.array([0.0, 0.0, 12.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0])
    for std in (0.0, 0.5, 3.0):
        score = score_calibration(PlausibleCounts([column], cells, std, 1.0), 0.95)
        assert 0 <= score.low <= score.value <= score.high == 1.0
        assert score.high - score.low >= score.noise_std or std == 0.0


def test_targets_are_cut_no_closer_than_residuals():
    """Rare large counts must not be in the residuals but not in the variance."""
    counts = np.zeros(64)
    counts[:8] = 1000.0
    assert _find_range(counts, 10.0, 8000.0, 0.05) == (0.0, 0.25)
    assert _find_range(counts, 10.0, 8000.0, 0.5) == (0.0, 0.5625)
    assert _find_range(counts, 10.0, 8000.0, 1.0) == (0.0, 1.0)
    assert _find_range(counts[::-1], 10.0, 8000.0, 0.5) == (0.4375, 1.0)
