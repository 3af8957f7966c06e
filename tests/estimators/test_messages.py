"""Each mistake of a new user is answered by a sentence that says what to do."""

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import skdp
from skdp.estimators.fit import REPLACEMENTS

X = np.random.default_rng(0).uniform(size=(60, 3))
Y = (X[:, 0] > 0.5).astype(int)
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])
COLUMNS = {name: skdp.Numeric(0, 1) for name in FRAME}
LABELLED = skdp.Schema(COLUMNS, target=("y", skdp.Categorical([0, 1])))


def make(**options):
    given = {"bounds": (0, 1), "classes": [0, 1], "n_rows": 60} | options
    return skdp.LogisticRegression(**given)


def regress(bounds):
    return skdp.LinearRegression(bounds=(0, 1), target_bounds=bounds).fit(X, Y)


MISTAKES = {
    "text as a bound": (lambda: skdp.Numeric("0", 9), "low, got '0'. .*without quotes"),
    "no bound": (lambda: skdp.Numeric(0, None), "high, got None. State a number"),
    "date as a bound": (
        lambda: skdp.Numeric(pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")),
        "days since a fixed day",
    ),
    "numpy date as a bound": (
        lambda: skdp.Numeric(np.datetime64("2020-01-01"), 3),
        "days since a fixed day",
    ),
    "text as missing": (lambda: skdp.Numeric(0, 9, missing="1"), "missing, got '1'"),
    "three bounds": (lambda: make(bounds=(0, 1, 2)).fit(X, Y), r"a pair \(low, high\)"),
    "one bound": (lambda: make(bounds=3).fit(X, Y), r"a pair \(low, high\)"),
    "too few bounds": (
        lambda: make(bounds=([0, 0], [1, 1])).fit(X, Y),
        r"one number per column \(3\), got an array of length 2",
    ),
    "text as bounds": (lambda: make(bounds=("a", 1)).fit(X, Y), "bounds needs a numb"),
    "three target bounds": (
        lambda: regress((0, 1, 2)),
        r"target_bounds must be a pair",
    ),
    "text as target bound": (lambda: regress(("a", 1)), "low, got 'a'"),
    "tiny epsilon": (
        lambda: make(epsilon=1e-9).fit(X, Y),
        "epsilon must be above 3e-08, the sampler.* got 1e-09",
    ),
    "name of a column as y": (
        lambda: skdp.LogisticRegression().fit(FRAME.assign(y=Y), "y"),
        r"target=\('y', ...\).*fit\(df.drop\(columns=\['y'\]\), df\['y'\]\)",
    ),
    "file and name as y": (
        lambda: skdp.LogisticRegression().fit("table.csv", "y"),
        r"describe it in a schema",
    ),
    "another name than the target's": (
        lambda: skdp.LogisticRegression(
            schema=skdp.Schema(COLUMNS, target=("y", skdp.Categorical([0, 1])))
        ).fit(FRAME.assign(y=Y), "z"),
        "target is 'y', but y is 'z'. Leave y out",
    ),
    "large delta, private rows": (
        lambda: skdp.LogisticRegression(bounds=(0, 1), delta=0.5).fit(X, Y),
        "below 0.001 if the number of rows is private, got 0.5",
    ),
    "a classifier with a range": (
        lambda: make(target_bounds=(0, 1)).fit(X, Y),
        "target_bounds is for regressors",
    ),
    "a regressor with classes": (
        lambda: skdp.LinearRegression(classes=[0, 1]).fit(X, Y),
        "classes is for classifiers",
    ),
    "a schema and bounds": (
        lambda: make(schema=skdp.Schema(COLUMNS), classes=None).fit(FRAME, Y),
        "either a schema or bounds",
    ),
    "a schema and other classes": (
        lambda: make(schema=LABELLED, bounds=None, classes=["a", "b"]).fit(FRAME, Y),
        "classes and target_bounds must be those of the schema",
    ),
    "another number of rows": (
        lambda: make(neighbours="replace-one", n_rows=7).fit(X, Y),
        "n_rows must be 60, the number of rows, got 7. Under 'replace-one' this",
    ),
    "a number as geometry": (
        lambda: make(geometry=-1).fit(X, Y),
        "geometry must be one of .* got -1",
    ),
    "no target": (
        lambda: skdp.LogisticRegression(schema=skdp.Schema(COLUMNS)).fit(FRAME),
        "The target is missing. Pass y",
    ),
    "a table without the unit": (
        lambda: skdp.LogisticRegression(
            schema=skdp.Schema(COLUMNS, target=LABELLED.target, unit="id")
        ).fit(FRAME, Y),
        "no column 'id'. Every column of the schema is needed",
    ),
    "not a saved model": (
        lambda: skdp.load("."),
        "'.' is not a saved model, because it has no file 'model.json'",
    ),
    "list of dicts": (
        lambda: make().fit(FRAME.to_dict("records"), Y),
        r"pandas.DataFrame\(rows\)",
    ),
    "short y": (lambda: make().fit(X, Y[:-1]), "as many rows as the table. Select"),
    "short y without a schema": (
        lambda: skdp.LogisticRegression().fit(FRAME, Y[:-1]),
        "as many rows as the table. Select",
    ),
    "text as levels": (lambda: skdp.Categorical("abc"), r"list, got 'abc'. Write"),
    "number as levels": (lambda: skdp.Categorical(3), r"list, got 3. Write \[3\]"),
    "text as names": (lambda: skdp.Vector("abc"), r"Write \['abc'\] for one entry"),
    "text as classes": (lambda: make(classes="ab").fit(X, Y), r"Write \['ab'\]"),
    "columns as a list": (lambda: skdp.Schema(["a"]), r"as in {'age': Numeric\(0"),
    "a pair as a column": (lambda: skdp.Schema({"a": (0, 1)}), r"'a' must be Numeric"),
    "a name as the target": (
        lambda: skdp.Schema(COLUMNS, target="b"),
        r"target must be \(name, description\), got 'b'. Write for example",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_sentence_says_what_to_do(mistake):
    act, said = MISTAKES[mistake]
    with pytest.raises(ValueError, match=said) as refused:
        act()
    assert str(refused.value).endswith((".", ")."))


@pytest.mark.parametrize("name", REPLACEMENTS)
@pytest.mark.parametrize("kind", [skdp.LogisticRegression, skdp.HuberRegressor])
def test_options_of_scikit_learn_are_translated(kind, name):
    with pytest.raises(TypeError, match=f"{kind.__name__} has no parameter '{name}'. "):
        kind(**{name: 1})
    assert name not in inspect.signature(kind).parameters


def test_refusing_options_changes_nothing_else():
    assert "epsilon" in inspect.signature(skdp.LinearSVC).parameters
    assert clone(make(epsilon=2.0)).epsilon == 2.0
    with pytest.raises(TypeError, match=r"no parameter 'epsilom'. Did you mean 'epsi"):
        make(epsilom=2.0)
    with pytest.raises(TypeError, match=r"'zzz'. See help.LinearSVC"):
        skdp.LinearSVC(zzz=2.0)


def test_partial_fit_is_refused_with_the_reason():
    assert not hasattr(make(), "partial_fit")
    with pytest.raises(AttributeError, match=r"no partial_fit. The noise of a fit"):
        make().partial_fit(X, Y)


def test_y_may_name_the_target_that_the_schema_describes():
    """As the named target does, and as a target without a name then becomes."""
    label = skdp.Categorical([0, 1])
    table, fits = FRAME.assign(y=Y), []
    for target, y in ((("y", label), None), (("y", label), "y"), (label, "y")):
        model = skdp.LogisticRegression(
            schema=skdp.Schema(COLUMNS, target=target), n_rows=60, random_state=1
        )
        with pytest.warns(UserWarning, match="constant"):
            fits.append(model.fit(table, y))
    assert len({fit.weights_.tobytes() for fit in fits}) == 1


def test_the_missing_column_and_its_file_are_named(tmp_path):
    FRAME.assign(y=Y).to_csv(tmp_path / "1.csv", index=False)
    FRAME.drop(columns="c").assign(y=Y).to_csv(tmp_path / "2.csv", index=False)
    fit = skdp.LogisticRegression(schema=LABELLED, n_rows=60).fit
    with pytest.raises(ValueError, match=r"In '2.csv': The table has no column 'c'"):
        fit(tmp_path)
    misspelt = skdp.Schema({"aa": skdp.Numeric(0, 1)}, target=LABELLED.target)
    with pytest.raises(ValueError, match=r"no column 'aa'. Did you mean 'a'"):
        skdp.LogisticRegression(schema=misspelt).fit(tmp_path / "1.csv")


def test_a_target_that_is_passed_apart_keeps_its_name():
    model = skdp.LogisticRegression(schema=LABELLED, n_rows=60, random_state=1)
    with pytest.warns(UserWarning, match="constant"):
        model.fit(FRAME, Y)
    assert model.schema_.target_name == "y"
    table = FRAME.assign(y=Y)
    options = {"epsilon": 1.0, "random_state": 2, "metrics": ["accuracy"]}
    named, apart = (
        skdp.evaluate(model, *given, **options) for given in ((table,), (FRAME, Y))
    )
    assert named.scores == apart.scores


def test_long_values_have_a_short_form():
    model = skdp.LogisticRegression(schema=LABELLED, n_rows=60, random_state=1)
    assert repr(LABELLED) == "<Schema: 3 columns, target y>"
    assert len(repr(model)) < 200
    with pytest.warns(UserWarning, match="constant"):
        model.fit(FRAME, Y)
    assert repr(model.privacy_) == "<PrivacyRecord: seeded: no privacy claim>"
    plan = skdp.plan(LABELLED, 20_000, 1.0, model="logistic")
    assert repr(plan).startswith("<Plan: logistic loss, 20000 rows, ε = 1, δ = ")


@pytest.mark.parametrize("name", ["self", "remainder", "n_jobs", "two__parts"])
def test_any_column_name_can_be_exported(name):
    table = FRAME.rename(columns={"a": name})
    model = make(epsilon=np.inf, neighbours="zero-out").fit(table, Y)
    assert (model.to_sklearn().predict(table) == model.predict(table)).all()
