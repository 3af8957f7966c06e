"""Fits without noise give the numbers of statsmodels, under the same names."""

import math
from dataclasses import replace

import numpy as np
import pytest

import skdp
from skdp.estimators.effects import compute_effects

pd = pytest.importorskip("pandas")
smf = pytest.importorskip("statsmodels.formula.api")

SCHEMA = skdp.Schema(
    {
        "age": skdp.Numeric(20, 80),
        "dose": skdp.Numeric(-1, 3),
        "sex": skdp.Categorical(["f", "m"], reference="f"),
        "ward": skdp.Categorical(["a", "b", "c"], reference="b"),
    },
    target=("sick", skdp.Categorical([0, 1])),
)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    n = 4000
    table = pd.DataFrame(
        {
            "age": rng.uniform(20, 80, n),
            "dose": np.clip(rng.normal(1, 0.7, n), -1, 3),
            "sex": rng.choice(["f", "m"], n),
            "ward": rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2]),
        }
    )
    margin = 0.02 * table.age - 0.8 * table.dose + 0.7 * (table.ward == "c") - 0.5
    table["sick"] = (rng.random(n) < 1 / (1 + np.exp(-margin))).astype(int)
    return table


def fit(kind, schema=SCHEMA, **options):
    return kind(schema=schema, epsilon=math.inf, alpha=0, **options)


@pytest.fixture(scope="module")
def model(table):
    return fit(skdp.LogisticRegression, n_rows=len(table)).fit(table)


@pytest.fixture(scope="module")
def theirs(table):
    formula = "sick ~ age + dose + sex + C(ward, Treatment('b'))"
    return smf.logit(formula, table).fit(disp=False)


def test_a_reference_is_what_others_are_compared_with(model, theirs, table):
    found = model.summary()
    frame = found.to_frame()
    wards = frame.loc["ward"]
    assert [*wards.index] == ["a", "c"]
    for level in wards.index:
        name = f"C(ward, Treatment('b'))[T.{level}]"
        assert wards.loc[level, "coef"] == pytest.approx(theirs.params[name], rel=1e-3)
        assert wards.loc[level, "std err"] == pytest.approx(theirs.bse[name], rel=0.05)
    intercept = frame.loc["Intercept"].iloc[0]
    assert intercept["coef"] == pytest.approx(theirs.params["Intercept"], rel=1e-3)
    notes = " ".join(found.notes)
    assert "The other categories of ward are relative to b." in notes
    assert "relative to the mean" not in notes
    assert "b" not in {one.label for one in compute_effects(model)[0].effects}


def test_a_reference_changes_no_prediction_and_nothing_released(model, table):
    columns = {
        name: replace(one, reference=None) if name in ("sex", "ward") else one
        for name, one in SCHEMA.columns.items()
    }
    plain = fit(skdp.LogisticRegression, replace(SCHEMA, columns=columns))
    plain.set_params(n_rows=len(table)).fit(table)
    np.testing.assert_array_equal(plain.weights_, model.weights_)
    wards = plain.summary().to_frame().loc["ward", "coef"]
    own = model.summary().to_frame().loc["ward", "coef"]
    assert own["c"] == pytest.approx(wards["c"] - wards["b"])


def test_a_reference_is_kept_in_files(model, tmp_path):
    assert skdp.Schema.from_toml(SCHEMA.to_toml()) == SCHEMA
    model.save(tmp_path / "model")
    assert str(skdp.load(tmp_path / "model").summary()) == str(model.summary())
    with pytest.raises(ValueError, match="reference must be one of the levels"):
        skdp.Categorical(["a", "b"], reference="c")
    with pytest.raises(ValueError, match="The target cannot have a reference"):
        replace(SCHEMA, target=SCHEMA.columns["ward"])


def test_rare_categories_do_not_hide_the_contrast_of_two_others(table):
    """A contrast of two levels does not depend on a third that no row has."""
    ward = skdp.Categorical(["a", "b", "c", "nowhere"], reference="b")
    schema = replace(SCHEMA, columns={**SCHEMA.columns, "ward": ward})
    model = skdp.LogisticRegression(schema=schema, epsilon=8.0, random_state=0)
    stds = model.fit(table).summary().to_frame().loc["ward", "std err"]
    assert np.isnan(stds["nowhere"])
    assert stds[["a", "c"]].max() < 0.5  # they do not depend on the unknown level


#: Parameters in the order of ours, by the names of statsmodels.
THEIRS = [
    *("age", "dose", "sex[T.m]"),
    *("C(ward, Treatment('b'))[T.a]", "C(ward, Treatment('b'))[T.c]", "Intercept"),
]


def test_parameters_and_their_errors_are_those_of_statsmodels(model, theirs):
    own = pd.Index(["age", "dose", "sex[T.m]", "ward[T.a]", "ward[T.c]", "Intercept"])
    assert model.params.index.equals(own)
    np.testing.assert_allclose(model.params, theirs.params[THEIRS], rtol=1e-3)
    np.testing.assert_allclose(model.bse, theirs.bse[THEIRS], rtol=0.03)
    np.testing.assert_allclose(model.tvalues, model.params / model.bse)
    np.testing.assert_allclose(model.tvalues, theirs.tvalues[THEIRS], rtol=0.03)
    np.testing.assert_allclose(model.pvalues, theirs.pvalues[THEIRS], atol=0.01)
    for alpha in (0.05, 0.2):
        ends, expected = model.conf_int(alpha), theirs.conf_int(alpha).loc[THEIRS]
        assert [*ends.columns] == [*expected.columns] == [0, 1]
        away = (ends.to_numpy() - expected.to_numpy()) / theirs.bse[THEIRS].to_numpy()[
            :, None
        ]
        assert np.abs(away).max() < 0.06
    frame = model.summary().to_frame()
    np.testing.assert_array_equal(frame["coef"], model.params)
    np.testing.assert_array_equal(frame["std err"], model.bse)


def test_covariances_are_those_of_statsmodels(model, theirs):
    found = model.cov_params()
    expected = theirs.cov_params().loc[THEIRS, THEIRS].to_numpy()
    size = np.sqrt(np.diag(expected))
    np.testing.assert_allclose(np.sqrt(np.diag(found)), model.bse)
    away = (found.to_numpy() - expected) / np.outer(size, size)
    assert np.abs(away).max() < 0.06


def test_contrasts_are_those_of_statsmodels(model, theirs):
    said = "age = 0.02, {} - {} = 0, 2 * dose / 3 + 1 = 0"
    found = model.t_test(said.format("ward[T.a]", "ward[T.c]"))
    expected = theirs.t_test(said.format(*THEIRS[3:5]))
    np.testing.assert_allclose(found.effect, expected.effect, rtol=1e-3)
    np.testing.assert_allclose(found.sd, expected.sd, rtol=0.03)
    np.testing.assert_allclose(found.tvalue, expected.tvalue, rtol=0.03)
    np.testing.assert_allclose(found.pvalue, expected.pvalue, atol=0.01)
    ends, sd = expected.conf_int(0.1), expected.sd
    assert np.abs((found.conf_int(0.1) - ends) / sd[:, None]).max() < 0.06
    assert found.names[1] == "ward[T.a] - ward[T.c]"
    assert "ward[T.a] - ward[T.c]" in str(found)
    matrix = np.zeros((2, 6))
    matrix[0, 3] = matrix[1, 4] = 1
    again = model.t_test((matrix, [0.0, 0.1]))
    np.testing.assert_allclose(again.effect, model.params.iloc[3:5])
    np.testing.assert_allclose(again.sd, model.bse.iloc[3:5])
    expected = theirs.wald_test(f"{THEIRS[3]} = 0, {THEIRS[4]} = 0", scalar=True)
    for one in (matrix, "ward[T.a] = 0, ward[T.c] = 0"):
        joint = model.wald_test(one)
        assert joint.df_denom == expected.df_denom == 2
        assert joint.statistic == pytest.approx(expected.statistic, rel=0.03)
        assert joint.pvalue < 1e-9
    assert "chi2 = " in str(joint)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("age * dose = 0", "must be linear"),
        ("height = 0", "must be linear in the names of params"),
        ("age = dose = 0", "one = in each equation"),
        ("age +", "not an equation"),
        ("", "at least one equation"),
        (np.ones((1, 4)), "a column for each of the 6 parameters"),
    ],
)
def test_wrong_constraints_are_refused(model, given, said):
    with pytest.raises(ValueError, match=said):
        model.t_test(given)
    with pytest.raises(ValueError, match="must be linearly independent"):
        model.wald_test("age = 0, 2 * age = 1")


@pytest.mark.parametrize(
    "options", [{}, {"at": "mean"}, {"dummy": True}, {"at": "mean", "dummy": True}]
)
def test_marginal_effects_are_those_of_statsmodels(model, theirs, options):
    found = model.get_margeff(**options)
    frame = theirs.get_margeff(**options).summary_frame().loc[THEIRS[:-1]]
    assert found.names == tuple(model.params.index[:-1])
    se = frame["Std. Err."].to_numpy()
    assert np.abs((found.margeff - frame["dy/dx"]) / se).max() < 0.1
    np.testing.assert_allclose(found.margeff_se, se, rtol=0.05)
    assert [*found.summary_frame().columns] == [
        *("dy/dx", "std err", "z", "p", "[0.025", "0.975]")
    ]
    assert str(found.summary()).split()[:3] == ["dy/dx", "std", "err"]
    with pytest.raises(ValueError, match="other points are not released"):
        model.get_margeff(at="median")


def test_predictions_are_those_of_statsmodels(model, table):
    sm = pytest.importorskip("statsmodels.api")
    formula = "sick ~ age + dose + sex + C(ward, Treatment('b'))"
    theirs = smf.glm(formula, table, family=sm.families.Binomial()).fit()
    rows = table.iloc[:20]
    found = model.get_prediction(rows)
    expected = theirs.get_prediction(rows).summary_frame()
    frame = found.summary_frame()
    assert [*frame.columns] == [*expected.columns]
    np.testing.assert_allclose(frame["mean"], model.predict_proba(rows)[:, 1])
    assert np.abs(frame.to_numpy() - expected.to_numpy()).max() < 2e-3
    with pytest.raises(ValueError, match="obs=True requires a linear regression"):
        found.conf_int(obs=True)


def linear_schema():
    return replace(SCHEMA, target=("cost", skdp.Numeric(-40, 90)))


def test_linear_regression_is_like_theirs(table):
    rng = np.random.default_rng(1)
    table = table.assign(cost=10 + 0.3 * table.age - 4 * table.dose)
    table["cost"] += 5 * rng.standard_normal(len(table)) + 3 * (table.ward == "c")
    # Without any noise there is no histogram of the target, hence no standard error.
    options = {"epsilon": 1e6, "alpha": 0, "n_rows": len(table), "random_state": 0}
    model = skdp.LinearRegression(schema=linear_schema(), **options).fit(table)
    theirs = smf.ols("cost ~ age + dose + sex + C(ward, Treatment('b'))", table).fit()
    away = (model.params.to_numpy() - theirs.params[THEIRS]) / theirs.bse[THEIRS]
    assert np.abs(away).max() < 0.05
    assert (model.bse.to_numpy() > 0.95 * theirs.bse[THEIRS]).all()
    rows = table.iloc[:5]
    found = model.get_prediction(rows)
    expected = theirs.get_prediction(rows).summary_frame()
    frame = found.summary_frame()
    assert {*frame.columns} == {*expected.columns}
    np.testing.assert_allclose(frame["mean"], expected["mean"], rtol=1e-3)
    wide = expected["obs_ci_upper"] - expected["obs_ci_lower"]
    own = frame["obs_ci_upper"] - frame["obs_ci_lower"]
    assert (own / wide).between(0.95, 1.1).all()
    np.testing.assert_allclose(model.get_margeff().margeff, model.params.iloc[:-1])


def test_what_cannot_be_told_has_no_test_and_no_interval(table, tmp_path):
    """Noise hides one column. It is inf or nan everywhere, and others are not."""
    schema = replace(
        SCHEMA, columns={**SCHEMA.columns, "dose": skdp.Numeric(-1000, 3000)}
    )
    model = skdp.LogisticRegression(schema=schema, look=False, random_state=0)
    model.fit(table)
    assert model.bse["dose"] == math.inf
    for found in (model.tvalues, model.pvalues, model.conf_int()[0]):
        assert math.isnan(found["dose"])
        assert np.isfinite(found[["age", "sex[T.m]"]]).all()
    matrix = model.cov_params()
    assert matrix.loc["dose", "dose"] == math.inf
    assert math.isnan(matrix.loc["dose", "age"])
    assert matrix.loc["age", "sex[T.m]"] == matrix.loc["sex[T.m]", "age"] != 0
    assert math.isnan(model.wald_test("dose = 0, age = 0").statistic)
    effects = model.get_margeff()
    assert effects.margeff_se[effects.names.index("dose")] == math.inf
    assert np.isfinite(effects.margeff_se[effects.names.index("age")])
    # A mean can be told where no coefficient has to be told apart from the others.
    assert np.isfinite(model.get_prediction(table.iloc[:3]).conf_int()).all()
    model.save(tmp_path / "model")
    loaded = skdp.load(tmp_path / "model")
    pd.testing.assert_series_equal(loaded.bse, model.bse)
    with pytest.raises(AttributeError, match="no cov_params of a loaded model"):
        loaded.cov_params()


def test_results_of_what_is_not_known(table):
    model = skdp.LogisticRegression(schema=SCHEMA, random_state=0)
    with pytest.raises(AttributeError, match="not fitted, so it has no params"):
        _ = model.params
    model.set_params(l1_ratio=0.5, n_steps=20).fit(table)
    assert len(model.params) == 6
    with pytest.raises(AttributeError, match=r"no pvalues\. .*ℓ₁ penalty"):
        _ = model.pvalues
    target = ("ward", replace(SCHEMA.columns["ward"], reference=None))
    columns = {k: v for k, v in SCHEMA.columns.items() if k != "ward"}
    classes = skdp.LogisticRegression(
        schema=skdp.Schema(columns, target=target), random_state=0
    ).fit(table)
    assert classes.params.index[0] == ("a", "age")
    assert (classes.conf_int()[0] < classes.params).all()
    with pytest.raises(ValueError, match="t_test is for models with one output"):
        classes.t_test("age = 0")
