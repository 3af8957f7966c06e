"""Fits warn of labels that match no level, from released numbers alone."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import VotingClassifier

import skdp
from skdp.estimators import UnknownLabelsWarning
from skdp.estimators.fit_warnings import describe_unknown_labels
from skdp.privacy.queries import Kind
from skdp.schema import Categorical, Numeric, Schema

X = np.random.default_rng(0).uniform(size=(2000, 2))
Y = np.where(X[:, 0] > 0.5, "yes", "no")
SETTINGS = {"bounds": (0, 1), "classes": ["no", "yes"], "n_steps": 4}


@pytest.mark.parametrize("neighbours", ["replace-one", "zero-out", "add-remove"])
def test_labels_that_match_nothing_are_told_of(neighbours):
    model = skdp.LogisticRegression(neighbours=neighbours, random_state=0, **SETTINGS)
    with pytest.warns(UnknownLabelsWarning, match="Most labels are not among"):
        model.fit(X, np.char.upper(Y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, Y)
        model.fit(X, Y, sample_weight=np.zeros(len(Y)))  # which leaves all rows out


@pytest.mark.parametrize("kind", ["class", "number"])
def test_line_ends_in_quoted_cells_are_told_of(kind, tmp_path):
    """They make two rows of one, of which one or both have no target."""
    n, path = 20_000, tmp_path / "t.csv"
    rng = np.random.default_rng(0)
    torn = rng.random(n) < 0.1
    columns = {"a": rng.random(n), "note": np.where(torn, "two\nlines", "one")}
    table = pd.DataFrame(columns | {"b": rng.random(n), "y": np.arange(n) % 2})
    table.to_csv(path, index=False)
    target = Categorical([0, 1]) if kind == "class" else Numeric(0, 1)
    schema = Schema({"a": Numeric(0, 1), "b": Numeric(0, 1)}, target=("y", target))
    made = skdp.LogisticRegression if kind == "class" else skdp.LinearRegression
    model = made(schema=schema, random_state=0, n_steps=2)
    with pytest.warns(UnknownLabelsWarning, match=r"About \d+% of the .* --multiline"):
        model.fit(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(skdp.tables.CSV(path, multiline=True))
        model.set_params(epsilon=0.05).fit(path)  # noise may hide that
        known = table["y"].where(rng.random(n) < 0.97)
        table.assign(y=known, note="one").to_csv(path, index=False)
        model.set_params(epsilon=1.0).fit(path)


def test_what_is_said_follows_from_what_was_released():
    """The sentence is a function of the record: no cell is looked at."""
    model = skdp.LogisticRegression(random_state=0, **SETTINGS).fit(X, Y)
    (counts,) = [r for r in model.privacy_.transcript if r.kind == Kind.CLASS_COUNTS]
    assert describe_unknown_labels(model) is None
    place = model.privacy_.transcript.index(counts)
    few = replace(counts, values=counts.values * 0)
    model.privacy_.transcript[place] = few
    assert f"0% of {model.plan_.n_rows:,} rows" in describe_unknown_labels(model)
    # Noise that could have hidden them all: nothing is said.
    blurred = replace(few, noise_std=counts.noise_std * 100)
    model.privacy_.transcript[place] = blurred
    assert describe_unknown_labels(model) is None


@pytest.mark.parametrize("method", ["split", "random"])
def test_a_search_says_it_once(method):
    """A warning per trial would tell how many trials a random search has made."""
    model = skdp.LogisticRegression(**SETTINGS)
    search = skdp.PrivateSearchCV(
        model, {"alpha": [1e-5, 0.1]}, epsilon=8.0, method=method, random_state=0
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        search.fit(X, np.char.upper(Y))
    assert [one.category for one in said] == [UnknownLabelsWarning]


@pytest.mark.parametrize("voting", ["hard", "soft"])
def test_an_ensemble_that_numbers_the_labels_is_refused_before_it_spends(voting):
    def fit(classes):
        options = SETTINGS | {"classes": classes}
        models = [skdp.LogisticRegression(random_state=i, **options) for i in (0, 1)]
        named = list(zip("ab", models, strict=True))
        return VotingClassifier(named, voting=voting).fit(X, Y)

    with pytest.raises(ValueError, match=r"0 is 'no', 1 is 'yes'\.$") as refusal:
        fit(["yes", "no"])
    assert not getattr(refusal.value, "__notes__", [])
    assert (fit([0, 1]).predict(X) == Y).mean() > 0.8


def test_types_that_a_library_guessed_from_cells_are_not_refused():
    """One label more, "no", and pandas would not have read integers."""
    guessed = pd.Series((Y == "yes").astype(int))
    model = skdp.LogisticRegression(random_state=0, **SETTINGS)
    with pytest.warns(UnknownLabelsWarning):
        model.fit(X, guessed)
    model.set_params(classes=["1", "no"]).fit(X, guessed.to_numpy())
