"""coef_std_, coef_noise_std_ and summary() are right, or absent with a reason."""

import json
import math

import numpy as np
import pytest
import scipy.stats
from sklearn.base import clone

import skdp
from skdp import datasets
from skdp.estimators import summary as summaries
from skdp.estimators.standard_errors import make_centring_matrix, make_unit_matrices
from skdp.inference.covariances import estimate


@pytest.fixture(scope="module")
def data():
    return datasets.make_hospital(20_000, random_state=2)


@pytest.fixture(scope="module")
def model(data):
    return skdp.LogisticRegression(schema=data.schema, random_state=0).fit(data.columns)


def test_errors_have_the_form_of_what_they_belong_to(model):
    assert model.coef_std_.shape == model.coef_noise_std_.shape == model.coef_.shape
    assert model.intercept_std_.shape == model.intercept_.shape == (1,)
    assert np.all(model.coef_noise_std_ > 0)
    assert np.all(model.coef_std_ > model.coef_noise_std_)
    assert model.intercept_std_ > model.intercept_noise_std_ > 0


def test_errors_are_in_the_units_of_the_coefficients(model, data):
    """A range that is ten times wider has coefficients and errors a tenth as large."""
    columns = data.columns | {"age": data.columns["age"] * 10}
    wide = skdp.Schema(
        dict(data.schema.columns) | {"age": skdp.Numeric(180, 950)},
        target=data.schema.target,
    )
    other = clone(model).set_params(schema=wide).fit(columns)
    ratio = np.ones(model.coef_.shape)
    ratio[0, 0] = 0.1
    np.testing.assert_allclose(other.coef_std_, ratio * model.coef_std_, rtol=1e-6)


def test_a_fit_without_noise_has_textbook_errors(data):
    model = skdp.LogisticRegression(epsilon=math.inf, schema=data.schema)
    model.fit(data.columns)
    assert np.all(model.coef_noise_std_ == 0)
    from skdp.privacy.encoding import encode

    layout = data.schema.layout()
    X = datasets.compute_true_margins(
        encode([data.batch], data.schema), np.eye(layout.n_features)
    )
    chance = 1.0 / (1.0 + np.exp(-X @ model.weights_[:, 0]))
    fisher = (X * (chance * (1 - chance))[:, None]).T @ X
    covariance = np.linalg.pinv(fisher, rcond=1e-9)
    centred = make_unit_matrices(model)[1]
    textbook = np.sqrt(np.diag(centred @ covariance @ centred.T))
    errors = model._standard_errors()
    for found in (errors.effects_std, errors.effects_sampling_std):
        ratio = found[:, 0] / textbook
        assert np.all((ratio > 0.8) & (ratio < 1.25)), ratio
    private = clone(model).set_params(epsilon=1.0).fit(data.columns)
    told = private._standard_errors().effects_sampling_std[:, 0]
    ratio = told[np.isfinite(told)] / textbook[np.isfinite(told)]
    assert 0.8 < np.median(ratio) < 1.25
    assert ratio.max() < 2  # not twice as large, as it was with all allowances


def test_effects_predict_the_same(model, data):
    from skdp.privacy.encoding import encode

    matrix = make_centring_matrix(data.schema.layout())
    moved = matrix @ model.weights_
    records = encode([data.batch], data.schema)
    np.testing.assert_allclose(
        datasets.compute_true_margins(records, moved),
        datasets.compute_true_margins(records, model.weights_),
        atol=1e-9,
    )
    for group in data.schema.layout().groups:
        if group.kind == "code":
            assert abs(moved[group.coordinates].sum()) < 1e-9


def test_summary_is_a_table(model):
    found = model.summary()
    text = str(found)
    assert text == repr(found)
    assert "LogisticRegression of readmitted" in text
    rows = model.plan_.n_rows  # released
    assert f"about {rows:,} rows; ε 1, δ 1e-09, add-remove neighbours; 80 ste" in text
    assert "seeded: no privacy claim" in text
    notes = " ".join(text.split())
    assert "do not account for" in notes
    assert "length_of_stay, prior_admissions, creatinine: per unit of log(" in notes
    lines = text.splitlines()
    assert sum(line.startswith("  Surgery ") for line in lines) == 1
    assert lines.count("department") == 1
    line = next(line for line in found.lines if line.label == "prior_admissions")
    assert line.coef == pytest.approx(model.coef_[0, 2])
    assert line.std == pytest.approx(model.coef_std_[0, 2])
    assert line.z == pytest.approx(line.coef / line.std)
    low, high = line.interval
    assert high - low == pytest.approx(2 * 1.96 * line.std, rel=1e-4)
    assert len({len(line) for line in lines if line.startswith(("=", "-"))}) == 1
    page = found._repr_html_()
    assert page.count("<tr>") == len(found.lines) + 4 + 1
    assert "Surgery" in page


def test_summary_says_what_is_modelled_and_gives_its_numbers(model):
    found = model.summary()
    assert "Coefficients describe the log-odds of class yes against no." in str(found)
    frame = found.to_frame()
    line = frame.loc[("prior_admissions", "prior_admissions")]
    assert (*frame.columns,) == found.head == summaries.HEAD
    assert line["std err"] ** 2 > line["sampling"] ** 2 + line["privacy"] ** 2
    assert line.p == pytest.approx(2 * scipy.stats.norm.sf(abs(line.z)))
    assert len(frame) == len(found.lines) == len(found.to_dict()["coefficients"])
    assert json.dumps(found.to_dict())


def test_ratios_are_exponentials(model):
    plain, ratios = model.summary().lines, model.summary(ratios=True)
    assert ratios.head == ("odds ratio", "z", "p", "[0.025", "0.975]")
    said = " ".join(str(ratios).split())
    assert "by which the odds of yes change if the column rises by one unit" in said
    assert "z and p test whether the ratio is 1" in said
    assert "std err" not in said  # no such column is shown
    assert max(map(len, str(ratios).splitlines())) == summaries.LEAST_WIDTH
    for line, ratio in zip(plain, ratios.lines, strict=True):
        numbers = ratio.to_dict()
        told = math.isfinite(line.std)
        assert numbers["ratio"] == (
            pytest.approx(math.exp(line.coef)) if told else None
        )
        assert numbers["low"] == line.to_dict()["low"]
        if numbers["low"] is not None:
            assert numbers["ratio_low"] == pytest.approx(math.exp(numbers["low"]))
        assert ratio.z == line.z or math.isnan(line.z)
        expected = [math.exp(end) for end in line.interval if math.isfinite(end)]
        assert list(ratio.ratio_interval)[: len(expected)] == pytest.approx(expected)
    svc = skdp.LinearSVC(bounds=(0, 1), classes=[0, 1], epsilon=math.inf, n_rows=9)
    with pytest.raises(ValueError, match="ratios=True requires a model of two classes"):
        svc.fit(np.eye(9), [0, 1, 0] * 3).summary(ratios=True)


def test_a_ratio_is_shown_with_its_interval_or_not_at_all(data):
    model = skdp.LogisticRegression(schema=data.schema, look=False, random_state=0)
    model.fit(data.columns)
    frame = model.summary(ratios=True).to_frame()
    told = np.isfinite(model.summary().to_frame()["std err"])
    assert 0 < (~told).sum() < len(told)
    assert (np.isfinite(frame["odds ratio"]) == told).all()


def test_without_intervals_there_are_no_columns_of_them(data):
    model = skdp.LogisticRegression(schema=data.schema, random_state=0, l1_ratio=0.5)
    found = model.set_params(n_steps=20).fit(data.columns).summary()
    lines = str(found).splitlines()
    head = next(line for line in lines if "coef" in line.split())
    assert head.split() == ["coef"]
    age = next(line for line in lines if line.startswith("age "))
    assert age.split() == ["age", f"{found.lines[0].coef:.4g}"]
    assert "0.975" not in found._repr_html_()
    assert (*found.to_frame().columns,) == summaries.HEAD
    with pytest.raises(ValueError, match=r"only with intervals.*ℓ₁ penalty"):
        model.summary(ratios=True)


def test_a_plot_shows_effects_that_can_be_compared(model):
    pytest.importorskip("matplotlib")
    from skdp.estimators.effects import compute_effects

    (ax,) = model.plot().axes
    (output,) = compute_effects(model)
    shown = [text.get_text() for text in ax.texts]
    assert {"age", "department", "Surgery"} <= set(shown)
    dots = [line.get_xdata()[0] for line in ax.lines]
    effects = np.array([one.effect for one in output.effects])
    assert len(dots) == len(effects)
    assert np.corrcoef(dots, effects)[0, 1] == pytest.approx(1.0)
    ages = model.schema_.columns["age"]
    coef = next(one for one in model.summary().lines if one.column == "age").coef
    assert effects[0] == pytest.approx(coef * (ages.high - ages.low))


def test_a_plot_draws_into_the_axes_it_is_given(model):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, ax = pyplot.subplots()
    assert model.plot(ax) is figure
    assert ax.lines
    with pytest.raises(ValueError, match="one entry per class"):
        model.plot([])
    pyplot.close("all")


def noted(columns, **options):
    """Notes of a model of these columns, in one line."""
    schema = skdp.Schema(columns, target=("y", skdp.Categorical([0, 1])))
    table = {name: np.arange(100) % 3 for name in [*columns, "y"]}
    kind = skdp.LogisticRegression(schema=schema, random_state=0, **options)
    return " ".join(kind.fit(table).summary().notes)


def test_notes_are_about_what_is_there():
    number, log = skdp.Numeric(0, 2), skdp.Numeric(0, 2, scale="log")
    category = skdp.Categorical([0, 1, 2])
    plain = noted({"a": number, "b": skdp.Numeric(0, 2, scale="log", bins=3)})
    assert "log(" not in plain
    assert "Categories are" in plain
    assert "Categories are" not in noted({"a": number, "b": log})
    asked = skdp.Numeric(0, 2, indicator=True)
    both = noted({"a": log, "b": category, "c": asked, "d": log})
    assert "with a question mark is the effect of a missing cell" in both
    assert "question mark" not in plain
    assert "Categories are relative to the mean" in both
    assert "a, d: per unit of log(1 + value - low), where low is the lower end" in both
    many = noted(dict.fromkeys("stuvwx", log))
    assert "s, t, u, v and 2 more: per unit of" in many
    bare = noted({"a": log, "b": category}, fit_intercept=False)
    assert "Categories are" not in bare
    assert "a: per unit of" in bare


def test_html_is_escaped():
    schema = skdp.Schema(
        {"<b>": skdp.Numeric(0, 1)}, target=("y", skdp.Categorical([0, 1]))
    )
    rng = np.random.default_rng(0)
    table = {"<b>": rng.random(500), "y": rng.integers(0, 2, 500)}
    model = skdp.LogisticRegression(schema=schema, random_state=0).fit(table)
    assert "<b>" not in model.summary()._repr_html_().split("</b>", 1)[1]


def test_errors_survive_saving(model, tmp_path):
    model.save(tmp_path / "model")
    read = skdp.load(tmp_path / "model")
    np.testing.assert_array_equal(read.coef_std_, model.coef_std_)
    np.testing.assert_array_equal(read.intercept_noise_std_, model.intercept_noise_std_)
    assert str(read.summary()) == str(model.summary())


def test_changed_errors_are_refused(model, tmp_path):
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    text = path.read_text("utf-8")
    path.write_text(text.replace('"effects_std": [', '"effects_std": [1.0,'), "utf-8")
    with pytest.raises(ValueError, match="standard errors of each kind"):
        skdp.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("said", "kind", "options"),
    [
        ("not a likelihood", skdp.LinearSVC, {}),
        ("diagonal geometry. Its", skdp.LogisticRegression, {"geometry": "diagonal"}),
        (
            "steps on blocks of columns",
            skdp.LogisticRegression,
            {"geometry": "matrix", "sampling": "columns"},
        ),
        ("solver='skgd'", skdp.LogisticRegression, {"solver": "dp_sgd"}),
        ("ℓ₁ penalty", skdp.LogisticRegression, {"l1_ratio": 0.5, "n_steps": 20}),
        ("weight 0", skdp.LogisticRegression, {"class_weight": {"yes": 0}}),
        ("intercept", skdp.LogisticRegression, {"fit_intercept": False}),
    ],
)
def test_what_is_not_known_is_absent_and_says_why(said, kind, options, tmp_path):
    data = datasets.make_hospital(2000, random_state=1)
    model = kind(schema=data.schema, random_state=0, **options).fit(data.columns)
    assert not hasattr(model, "coef_std_")
    with pytest.raises(AttributeError, match=said):
        _ = model.coef_noise_std_
    text = str(model.summary())
    assert said in " ".join(text.split())
    assert "nan" not in text
    model.save(tmp_path / "model")
    with pytest.raises(AttributeError, match=said):
        _ = skdp.load(tmp_path / "model").coef_std_


def classes(levels, **options):
    """A model of so many classes, two numbers and a category."""
    schema = skdp.Schema(
        {
            "a": skdp.Numeric(0, 10),
            "b": skdp.Numeric(-3, 5, scale="log"),
            "c": skdp.Categorical(["u", "v"]),
        },
        target=("kind", skdp.Categorical(levels)),
    )
    rng = np.random.default_rng(0)
    table = {
        "a": 10 * rng.random(3000),
        "b": 8 * rng.random(3000) - 3,
        "c": rng.choice(["u", "v"], 3000),
        "kind": rng.choice(levels, 3000),
    }
    model = skdp.LogisticRegression(
        epsilon=50.0, schema=schema, random_state=0, **options
    )
    assert not hasattr(model, "coef_std_")  # before it is fitted
    return model.fit(table), table


def test_more_classes_have_a_table_each():
    model, _ = classes(["low", "middle", "<high>"])
    assert model.coef_std_.shape == model.coef_.shape
    assert model.intercept_std_.shape == model.intercept_.shape
    found = model.summary()
    heads = [line for line in str(found).splitlines() if "  std err " in line]
    assert [head.split()[0] for head in heads] == ["<high>", "low", "middle"]
    lines = [line for line in found.lines if line.label == "a"]
    assert [line.output for line in lines] == ["<high>", "low", "middle"]
    assert abs(sum(line.coef for line in lines)) < 1e-9
    assert all(0 < line.noise_std < line.std for line in lines)
    page = found._repr_html_()
    assert page.count("&lt;high&gt;") == 1
    assert found.to_dict()["coefficients"][0]["class"] == "<high>"
    frame = found.to_frame()
    assert frame.index.names == ["class", "column", "label"]
    assert frame.loc[("low", "c", "u"), "std err"] > 0
    # The true effects are 0. One of twelve is this far away once in a thousand tables.
    assert max(abs(line.z) for line in found.lines if line.column != "Intercept") < 4


def test_more_classes_without_errors_have_a_column_each():
    model, table = classes(["low", "middle", "<high>"], l1_ratio=0.5, n_steps=20)
    assert not hasattr(model, "coef_std_")
    found = model.summary()
    text = str(found)
    lines = text.splitlines()
    assert ["<high>", "low", "middle"] in [line.split() for line in lines]
    assert any("ℓ₁ penalty" in note for note in found.notes)
    assert "std err" not in text
    assert "coef_" not in text
    age = next(line for line in lines if line.startswith("a "))
    assert age.split()[1:] == [f"{coef:.4g}" for coef in found.lines[0].coefs]
    page = found._repr_html_()
    assert "&lt;high&gt;" in page
    assert page.count("<tr>") == len(found.lines) + 1 + 1

    # The numbers are the model's: they add up to its margins but for a common part.
    coefs = {line.label: np.array(line.coefs) for line in found.lines}
    assert all(abs(values.sum()) < 1e-9 for values in coefs.values())
    assert np.abs(coefs["u"] + coefs["v"]).max() < 1e-9
    margins = (
        coefs["Intercept"]
        + np.outer(table["a"], coefs["a"])
        + np.outer(np.log1p(table["b"] + 3), coefs["b"])
        + np.where((table["c"] == "u")[:, None], coefs["u"], coefs["v"])
    )
    chances = np.exp(margins) / np.exp(margins).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(chances, model.predict_proba(table), atol=2e-3)


def test_many_classes_follow_below_each_other():
    model, _ = classes([f"class {k}" for k in range(8)], l1_ratio=0.5, n_steps=5)
    lines = str(model.summary()).splitlines()
    assert max(map(len, lines)) <= 88
    assert lines.count("c") == 2  # once in each part, above its categories
    heads = [line for line in lines if "class " in line]
    assert [head.count("class") for head in heads] == [6, 2]


def test_regressors_have_them_in_the_target_s_units():
    rng = np.random.default_rng(0)
    X = rng.random((20_000, 2))
    y = 50 + 30 * X[:, 0] - 10 * X[:, 1] + 5 * rng.standard_normal(20_000)
    model = skdp.LinearRegression(bounds=(0, 1), target_bounds=(0, 100), epsilon=5.0)
    model.fit(X, y)
    assert isinstance(model.intercept_std_, float)
    errors = np.abs(model.coef_ - [30, -10]) / model.coef_std_
    assert errors.max() < 5  # one of the two is larger once in 9e5 fits
    assert 0.05 < model.coef_std_.max() < 2
    fitted_again = model.coef_std_
    model.fit(X[:5000], y[:5000])
    assert np.all(model.coef_std_ > fitted_again)


NUMBERS = ("a", "half", "hardly", "constant", "missing")


def hidden(n_rows=4000, epsilon=3.0, seed=0, names=NUMBERS, **options):
    """A fit of columns that vary visibly, hardly and not at all; only `a` counts."""
    rng = np.random.default_rng(3)
    schema = skdp.Schema(
        dict.fromkeys(names, skdp.Numeric(0, 1)) | {"c": skdp.Categorical(["u", "v"])},
        target=("y", skdp.Categorical(["n", "y"])),
    )
    table = {
        "a": rng.random(n_rows),
        "half": 0.3 + 0.5 * (rng.random(n_rows) - 0.3),
        "hardly": 0.3 + 0.02 * (rng.random(n_rows) - 0.3),
        "constant": np.full(n_rows, 0.3),
        "missing": np.full(n_rows, math.nan),
        "c": rng.choice(["u", "v"], n_rows),
    }
    chance = 1.0 / (1.0 + np.exp(1.0 - 2.0 * table["a"]))
    table["y"] = np.where(rng.random(n_rows) < chance, "y", "n")
    options = {"look": False} | options  # a look finds ranges that hide less
    model = skdp.LogisticRegression(
        epsilon=epsilon, schema=schema, random_state=seed, **options
    )
    return model.fit(table)


def test_what_noise_hides_cannot_be_told(tmp_path):
    model = hidden()
    lines = {line.label: line for line in model.summary().lines}
    for name in ("hardly", "constant", "missing", "Intercept"):
        line = lines[name]
        assert math.isinf(line.std)
        assert math.isnan(line.z)
        assert line.interval == (-math.inf, math.inf)
        assert line.format_cells()[1] == ""
        assert line.format_cells()[3:] == [""] * 5
        assert math.isfinite(line.noise_std)
    for name in ("a", "half", "u"):
        assert lines[name].noise_std < lines[name].std < math.inf
        assert lines[name].z == pytest.approx(lines[name].coef / lines[name].std)
    # Every interval allows for what a hidden number may explain.
    seen = hidden(names=("a", "half")).summary().lines
    assert lines["a"].z < next(line.z for line in seen if line.label == "a") > 4
    assert summaries.HIDDEN in model.summary().notes
    text = str(model.summary())
    assert "inf" not in text
    assert "nan" not in text
    model.save(tmp_path / "model")
    read = skdp.load(tmp_path / "model")
    np.testing.assert_array_equal(read.coef_std_, model.coef_std_)
    assert np.isinf(read.coef_std_).sum() == 3
    assert str(read.summary()) == text


def test_a_constant_column_cannot_be_told_without_noise_either():
    """The same for a column that varies so little that the ridge dominates."""
    model = hidden(epsilon=math.inf, alpha=1e-5)
    told = np.isfinite(model.coef_std_[0])
    names = [str(name) for name in model.get_feature_names_out()[told]]
    assert names == ["a", "half", "c=u", "c=v"]


def test_a_table_whose_columns_all_vary_has_no_such_note(model):
    wide = datasets.make_hospital(50_000, random_state=3)
    clear = skdp.LogisticRegression(epsilon=20.0, schema=wide.schema, random_state=0)
    clear.fit(wide.columns)
    assert np.all(np.isfinite(clear.coef_std_))
    assert summaries.HIDDEN not in clear.summary().notes


@pytest.mark.filterwarnings("ignore::skdp.estimators.DoubtfulSchemaWarning")
@pytest.mark.parametrize("look", [False, True])
def test_intervals_of_noise_hold_zero(look):
    """Of five columns without effect, two can be told; all intervals hold zero.

    After a look, the one that fills a fiftieth of its range can be told as well.
    """
    names = ("half", "u", "hardly", "constant", "missing")
    fits = [hidden(seed=seed, look=look).summary().lines for seed in range(16)]
    found = [{line.label: line.z for line in lines} for lines in fits]
    z = np.array([[each[name] for name in names] for each in found])
    told = ~np.isnan(z)
    n_told = 2 + look
    assert told[:, :n_told].mean() > 0.8
    assert told[:, n_told:].mean() < 0.05
    assert np.mean(np.abs(z[told]) > 1.96) < 0.1
    # Where all numbers are seen, they are not wide without need.
    seen = NUMBERS[:n_told]
    fits = [hidden(seed=i, look=look, names=seen).summary().lines for i in range(16)]
    z = np.array([[line.z for line in lines if line.label == "half"] for lines in fits])
    assert np.sqrt(np.nanmean(z**2)) > 0.3
    assert np.mean(np.abs(z) > 1.96) < 0.1


def test_a_standard_error_holds_privacy_and_sampling():
    # What a hidden number may add to the others would be larger than both.
    model = hidden(n_rows=20_000, epsilon=0.3, seed=1, names=("a",))
    found = estimate(model.plan_, model.privacy_.transcript, model.weights_)
    contrasts = make_unit_matrices(model)[1]
    sampling = np.diag(contrasts @ found.usual.sampling @ contrasts.T)[:, None]
    errors = model._standard_errors()
    both = np.sqrt(errors.effects_noise_std**2 + 0.9 * sampling)
    told = np.isfinite(errors.effects_std)
    assert told.all()
    assert np.all(errors.effects_std > 0.98 * both)
    assert np.all(errors.effects_std[1:3] < 1.1 * both[1:3])  # without an effect
    assert np.all(both > 1.08 * np.sqrt(sampling))


def test_a_column_of_one_category_has_no_effect_to_tell():
    rng = np.random.default_rng(0)
    schema = skdp.Schema(
        {"x": skdp.Numeric(0, 1), "only": skdp.Categorical(["a"])},
        target=("y", skdp.Categorical([0, 1])),
    )
    table = {"x": rng.random(4000), "only": ["a"] * 4000}
    table["y"] = (rng.random(4000) < table["x"]).astype(int)
    model = skdp.LogisticRegression(schema=schema, random_state=0).fit(table)
    told = {line.label: line.z for line in model.summary().lines}
    assert told["x"] > 2
    assert math.isnan(told["a"])


def test_null_stands_only_for_what_cannot_be_told(tmp_path):
    hidden().save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    about = json.loads(path.read_text("utf-8"))
    assert None in about["uncertainty"]["std"]
    about["uncertainty"]["noise_std"][0] = None
    path.write_text(json.dumps(about), "utf-8")
    with pytest.raises(ValueError, match="a standard error without its part"):
        skdp.load(tmp_path / "model")
