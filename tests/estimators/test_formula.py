"""Formulas: the same model as statsmodels', public terms only, and clear refusals."""

import math
import sys

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf

import skdp
from skdp.estimators.model_formula import read_formula
from skdp.schema import Factor, Product, toml_files

WARD = skdp.Categorical(["a", "b", "c"])
SCHEMA = skdp.Schema(
    {
        "age": skdp.Numeric(0, 120),
        "sex": skdp.Categorical(["f", "m"]),
        "ward": WARD,
        "bmi": skdp.Numeric(10, 80),
        "cost": skdp.Numeric(0, 1e5, scale="log"),
        "dose": skdp.Numeric(0, 9, knots=4),
        "text": skdp.Vector(["w0", "w1"]),
    },
    target=("ill", skdp.Categorical([0, 1])),
)


def make_table(n, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(50, 15, n).clip(18, 95).round()
    sex, ward = rng.choice(["f", "m"], n), rng.choice([*"abc"], n, p=[0.5, 0.3, 0.2])
    bmi = rng.normal(26, 4, n).clip(15, 50)
    cost = rng.lognormal(5, 1, n).clip(0, 1e5)
    margin = 0.02 * (age - 50) + 0.4 * (ward == "b") + 0.02 * (age - 50) * (sex == "m")
    ill = (rng.uniform(size=n) < 1 / (1 + np.exp(-margin))).astype(int)
    columns = {"age": age, "sex": sex, "ward": ward, "bmi": bmi, "cost": cost}
    stay = rng.poisson(np.exp(0.3 + 0.01 * age))
    return pd.DataFrame(columns | {"ill": ill, "stay": stay, "y": margin + bmi / 9})


@pytest.mark.parametrize(
    ("formula", "family"),
    [
        ("ill ~ age + C(ward, Treatment('b')) + age:sex", "binomial"),
        ("ill ~ age*sex + ward*sex", "binomial"),
        ("y ~ np.log(bmi) + np.log1p(age) + age:bmi + ward:age + ward - 1", "gaussian"),
        ("stay ~ (age + sex + bmi)**2", "poisson"),
    ],
)
def test_without_noise_it_is_the_model_of_statsmodels(formula, family):
    table, new = make_table(3000), make_table(50, 1)
    target = formula.split()[0]
    targets = {"y": skdp.Numeric(-5, 20), "stay": skdp.Numeric(0, 40)}
    own = targets.get(target, SCHEMA.target_column)
    schema = skdp.Schema(SCHEMA.columns, target=(target, own))
    model = skdp.fit(formula, table, schema, family, math.inf, alpha=0, random_state=0)
    known = getattr(smf, {"gaussian": "ols", "binomial": "logit"}.get(family, family))
    found = known(formula, table).fit(disp=0)
    proba = getattr(model, "predict_proba", None)
    means = model.predict(new) if proba is None else proba(new)[:, 1]
    np.testing.assert_allclose(means, found.predict(new), rtol=2e-3)
    if "- 1" in formula:  # which has no reference here
        assert "Intercept" not in model.params.index
        head, *_ = str(model.summary()).split("Standard errors require")
        assert "Intercept" not in head
        assert "[0.025" not in head
    else:
        ours, theirs = (np.sort(one.params.to_numpy()) for one in (model, found))
        np.testing.assert_allclose(ours, theirs, rtol=5e-3, atol=2e-3)


def test_it_is_charged_saved_and_predicts_the_columns_of_the_formula(tmp_path):
    formula = "ill ~ age*sex + cost:age + C(ward, Sum)"
    model = skdp.fit(formula, make_table(2000), SCHEMA, "binomial", 2.0)
    assert skdp.verify(model)
    assert model.feature_names_in_.tolist() == ["age", "sex", "ward", "cost"]
    model.save(tmp_path / "model")
    loaded, new = skdp.load(tmp_path / "model"), make_table(30, 1)
    np.testing.assert_array_equal(
        loaded.predict_proba(new), model.predict_proba(new[["cost", *new][:5]])
    )
    assert str(loaded.schema_) == str(model.schema_)
    assert "age:sex[T.m]" in str(model.summary())
    assert "ward[S.a]" in model.params.index
    one = {"age": [40], "sex": ["m"], "ward": ["c"], "cost": [100]}
    assert model.predict_proba(one).shape == (1, 2)
    exported = model.to_sklearn().predict_proba(new[["age", "sex", "ward", "cost"]])
    np.testing.assert_allclose(exported, model.predict_proba(new), rtol=1e-12)
    for export in (model.to_onnx, model.get_margeff):
        with pytest.raises(ValueError, match="interactions or logarithms"):
            export()


def test_cells_that_are_missing_or_out_of_range_enter_as_in_the_main_effect():
    factors = [
        Factor("age", skdp.Numeric(0, 120, missing=40)),
        Factor("sex", skdp.Categorical(["f", "m"]), "m"),
    ]
    product = Product.of(*factors)
    assert (product.low, product.high) == (0, 120)
    schema = skdp.Schema({"p": product}, target=("y", skdp.Numeric(0, 1)))
    assert schema.inputs == ("age", "sex")
    from skdp.tables import batches

    table = {"age": [30, None, 999, -5, 7, 7], "sex": [*"mmmmf", "odd"], "y": [0] * 6}
    (batch,) = batches(pd.DataFrame(table), schema)
    np.testing.assert_array_equal(batch.columns["p"], [30, 40, 120, 0, 0, 0])
    with pytest.raises(ValueError, match="a number in one place"):
        skdp.Schema({"p": product, "age": WARD}, target=("y", skdp.Numeric(0, 1)))
    assert toml_files.loads(toml_files.dumps(schema)) == schema


def test_the_range_holds_whatever_the_cells_are():
    rng = np.random.default_rng(0)
    cells = rng.standard_cauchy((2, 500)) * 100
    for low, high in ((-30, -2), (-3, 8), (4, 90)):
        for transform in ("linear", "log1p") if low > -1 else ("linear",):
            product = Product.of(
                Factor("a", skdp.Numeric(low, high), transform=transform),
                Factor("b", skdp.Numeric(-7, 50)),
            )
            made = product.multiply({"a": cells[0], "b": cells[1]})
            assert product.low <= made.min() < made.max() <= product.high


def test_a_centred_product_is_measured_from_the_middle_and_reported_from_zero():
    table = make_table(4000)
    model = skdp.fit(
        "ill ~ age*sex + age*log(bmi) + sex:ward + ward",
        table,
        SCHEMA,
        "binomial",
        3.0,
        random_state=0,
    )
    made = model.schema_.columns["age:sex[T.m]"]
    assert made.factors[0].centre == pytest.approx(50, abs=5)
    assert made.low < -8 < 8 < made.high
    # A change of the centre changes no prediction: coefficients say the same.
    new = make_table(40, 1).assign(sex="m", ward="c")
    inside = new[(new.age - 50).abs().lt(20) & (new.bmi - 26).abs().lt(6)]
    b = model.params
    bmi = np.log(inside.bmi)
    margin = b["Intercept"] + b["sex[T.m]"] + b["log(bmi)"] * bmi
    margin += b["ward[T.c]"] + b["sex[T.m]:ward[T.c]"]
    margin += (b["age"] + b["age:sex[T.m]"] + b["age:log(bmi)"] * bmi) * inside.age
    np.testing.assert_allclose(margin, model.decision_function(inside), rtol=1e-6)


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("ill ~ bs(age, df=3)", "knots="),
        ("ill ~ scale(age)", "scaled by their public ranges"),
        ("ill ~ center(age)", "Leave it out"),
        ("ill ~ poly(age, 2)", "a curve"),
        ("ill ~ I(age**2)", "Only log"),
        ("ill ~ {age + bmi}", "Only log"),
        ("ill ~ exp(age)", "no function 'exp'"),
        ("ill ~ C(age)", "levels that are public"),
        ("ill ~ C(ward, Treatment('z'))", "reference must be one of"),
        ("ill ~ C(ward, levels=['a'])", "Levels are those of the schema"),
        ("ill ~ C(ward, Poly)", "Treatment"),
        ("ill ~ height", "no column 'height'"),
        ("ill ~ log(height)", "no column 'height'"),
        ("ill ~ log(age)", "a range above 0"),
        ("ill ~ log(ward)", "requires a numeric column"),
        ("ill ~ log(cost)", "on a log scale already"),
        ("ill ~ age:dose", "bins, knots or an indicator"),
        ("ill ~ age:text", "cannot be part of an interaction"),
        ("ill ~ ward:sex", "both columns as terms"),
        ("ill ~ age*sex*ward", "two columns"),
        ("ill ~ C(ward, Sum)*sex", "requires a reference"),
        ("ill ~ C(ward, Treatment('b')) + C(ward, Treatment('a')):sex + sex", "ways"),
        ("ill ~ 2*age", "cannot be parsed"),
        ("ill ~ age +", "cannot be parsed"),
        ("ill ~ 2:age", "number as a factor"),
        ("log(age) ~ ward", "column of the schema as its target"),
        ("age + ward", "one target"),
        ("ill + age ~ ward", "one target"),
        ("ill ~ age | ward", "one target"),
        ("ill ~ 1", "no columns"),
    ],
)
def test_what_cannot_be_said_privately_is_refused_with_a_remedy(formula, said):
    with pytest.raises(ValueError, match=said):
        read_formula(formula, SCHEMA)


def test_names_references_and_dots():
    schema = skdp.Schema(
        {
            "length of stay": skdp.Numeric(0, 9),
            "ward": skdp.Categorical(["a", "b"], reference="b"),
            "ill": skdp.Categorical([0, 1]),
        },
        target=("cost", skdp.Numeric(0, 9)),
    )
    described, intercept = read_formula("ill ~ . - cost - 1", schema)
    assert [*described.columns] == ["length of stay", "ward"]
    assert described.columns["ward"].reference == "b"
    assert (described.target_name, intercept) == ("ill", False)
    named, _ = read_formula("cost ~ `length of stay`:C(ward)", schema)
    assert [*named.columns] == ["length of stay:ward[a]", "length of stay:ward[b]"]
    quoted, _ = read_formula("cost ~ Q('length of stay')*ward", schema)
    assert [*quoted.columns][-1] == "length of stay:ward[T.a]"
    assert read_formula("ill ~ C(ward)", schema)[0].columns["ward"].reference == "b"


def test_a_plan_of_a_formula_is_that_of_its_fit():
    plan = skdp.plan(SCHEMA, 900, 1.0, formula="ill ~ age*sex - 1")
    described, _ = read_formula("ill ~ age*sex - 1", SCHEMA)
    assert plan.layout == described.layout(intercept=False)


def test_parameters_and_a_missing_library(monkeypatch):
    for options, said in (
        ({"family": "gamma"}, "family must be one of"),
        ({"fit_intercept": False}, "The formula decides"),
    ):
        with pytest.raises(ValueError, match=said):
            skdp.fit("ill ~ age", {}, SCHEMA, **options)
    for name in [n for n in sys.modules if n.partition(".")[0] == "formulaic"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'skdp\[formula\]'"):
        read_formula("ill ~ age", SCHEMA)
