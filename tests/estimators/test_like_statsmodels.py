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
    intercept = frame.loc["intercept"].iloc[0]
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
    assert stds[["a", "c"]].max() < 0.5  # not the level of one that nobody can tell
