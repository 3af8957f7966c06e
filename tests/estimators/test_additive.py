"""Additive models: what is chosen, what is learnt, and what is shown of it."""

from copy import copy

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from sklearn.base import clone
from sklearn.preprocessing import SplineTransformer

import skdp
from skdp.descent.curves import choose_curves, place_knots
from skdp.descent.matrix import fill_gram, keep_relations
from skdp.engines.reference import ReferenceEngine
from skdp.estimators import plots
from skdp.estimators.additive import make_purifying_matrix
from skdp.estimators.effects import ALLOWANCE, Curve, list_curves
from skdp.estimators.predict import compute_margins
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.queries import GramPattern, Kind, gram
from skdp.schema import Factor, Product, split_hats

RNG = np.random.default_rng(7)
N = 6000
X = pd.DataFrame(
    {
        "age": RNG.uniform(0, 100, N),
        "dose": RNG.exponential(20.0, N),
        "site": RNG.choice(["a", "b", "c"], N),
    }
)
BENT = 3.0 * np.cos(X["age"] / 100 * 2 * np.pi)
LOGIT = BENT + 0.02 * X["dose"] + (X["site"] == "b")
Y = (RNG.uniform(size=N) < expit(LOGIT)).astype(int)
COLUMNS = {
    "age": skdp.Numeric(0, 100),
    "dose": skdp.Numeric(0, 200, scale="log"),
    "site": skdp.Categorical(["a", "b", "c"]),
}
SCHEMA = skdp.Schema(COLUMNS, target=skdp.Categorical([0, 1]))


def fit(**options):
    given = {"epsilon": 4.0, "schema": SCHEMA, "random_state": 0} | options
    return skdp.AdditiveClassifier(**given).fit(X, Y)


@pytest.fixture(scope="module")
def model():
    return fit(pairs=[("age", "site")])


def test_hats_are_the_splines_of_scikit_learn():
    values = np.linspace(-5, 105, 97)
    column = skdp.Numeric(0, 100, knots=6)
    places, shares = split_hats(column.compute_features(values), (6,))
    ours = np.zeros((len(values), 6))
    for place, share in zip(places.T, shares.T, strict=True):
        ours[np.arange(len(ours)), np.minimum(place, 5)] += share
    knots = np.linspace(0, 100, 6)[:, None]
    spline = SplineTransformer(degree=1, knots=knots, extrapolation="constant")
    theirs = spline.fit(values[:, None]).transform(np.clip(values, 0, 100)[:, None])
    np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_a_curve_learns_what_no_line_can(model):
    line = skdp.LogisticRegression(epsilon=4.0, schema=SCHEMA, random_state=0)
    assert model.score(X.copy(), Y) > line.fit(X, Y).score(X.copy(), Y) + 0.1
    curve = next(c for c in list_curves(model) if c.column == "age")
    knots = np.array(curve.axes[0][1])
    true = 3.0 * np.cos(knots / 100 * 2 * np.pi)
    assert np.corrcoef(curve.effects[:, 0], true)[0, 1] > 0.97


def test_a_line_beside_a_curve_is_shown_as_part_of_it():
    columns = COLUMNS | {"missing": skdp.Numeric(0, 1, indicator=True)}
    schema = skdp.Schema(columns, target=skdp.Categorical([0, 1]))
    table = X.assign(missing=np.where(X.index % 3, X["age"] / 100, np.nan))
    model = skdp.AdditiveClassifier(
        schema=schema, epsilon=4.0, knots=7, pairs=None, random_state=0
    ).fit(table, Y)
    groups = {group.name: group for group in model._layout.groups[:-1]}
    assert [*groups] == [*columns, "age (line)", "dose (line)"]
    assert model.schema_.inputs == tuple(columns)  # nothing is read twice
    curves = {curve.column: curve for curve in list_curves(model)}
    assert [*curves] == [*columns]
    assert not [name for name in model.params.index if "(line)" in name]
    assert "(line)" not in str(model.summary())
    for name in ("age", "dose"):
        assert abs(model.weights_[groups[f"{name} (line)"].start, 0]) > 0.05
        knots = curves[name].axes[0][1]
        rows = table.iloc[[0] * len(knots)].assign(**{name: knots})
        steps = np.diff(curves[name].effects[:, 0])
        assert np.diff(model._margins(rows)[:, 0]) == pytest.approx(steps, abs=1e-9)


def test_lines_beside_curves_stay_what_they_are_in_a_refit():
    """A look may narrow numbers, and the default draws curves, but not of these."""
    first = fit(pairs=None, knots=7).schema_
    again = skdp.AdditiveClassifier(schema=first, pairs=None, random_state=1).fit(X, Y)
    assert again.schema_.columns == first.columns
    assert (
        again.schema_.lines
        == first.lines
        == {
            "age": "age (line)",
            "dose": "dose (line)",
        }
    )
    assert skdp.Schema.from_toml(first.to_toml()).layout() == first.layout()
    assert not skdp.Schema(first.columns, row_norm=9.0).lines  # they are shortened
    other = Product.of(Factor("age", skdp.Numeric(0, 50)))  # not the curve's range
    assert not other.is_line_of(first.columns["age"])


def test_noise_that_contradicts_a_line_is_taken_off():
    """In each row a line is a sum of its curve's hats, on equal knots and on others."""
    columns = COLUMNS | {"dose": skdp.Numeric(0, 200, knots=(0.0, 3.0, 20.0, 200.0))}
    lines = {"dose (line)": Product.of(Factor("dose", skdp.Numeric(0, 200)))}
    choice = choose_curves(
        skdp.Schema(columns | lines, target=skdp.Categorical([0, 1])),
        loss=skdp.Logistic(),
        n_rows=N,
        mu=1.0,
        neighbours="add-remove",
        knots=6,
        pairs=[("age", "site")],
        lines=True,
    )
    layout = choice.schema.layout()
    heights = {g.name: g.heights for g in layout.groups if g.heights}
    assert heights["dose (line)"] == pytest.approx([0.0, 0.015, 0.1, 1.0])
    assert heights["age (line)"] == pytest.approx(np.linspace(0, 1, 6))
    data = {**X.to_dict("series"), "dose (line)": X["dose"], "age (line)": X["age"]}
    sites = Coded(np.searchsorted(["a", "b", "c"], X["site"]), ["a", "b", "c"])
    batch = Batch(columns=data | {"site": sites}, target=Coded(np.asarray(Y), [0, 1]))
    pattern = GramPattern.of(layout, "add-remove", centred=True)
    exact = gram(ReferenceEngine(encode([batch], choice.schema)), pattern)
    values = exact.value.astype(float) * exact.unit
    true = fill_gram(layout, pattern, values, N) / N
    same = keep_relations(layout, true, pattern.shift)
    np.testing.assert_allclose(same, true, atol=1e-3)
    noise = np.random.default_rng(0).normal(size=true.shape)
    noise = (noise + noise.T) / np.outer(layout.scales, layout.scales)
    off = keep_relations(layout, true + noise, pattern.shift) - true
    scaled = [
        np.linalg.norm(e * np.outer(layout.scales, layout.scales)) for e in (off, noise)
    ]
    share = 1 - len(heights) / layout.n_features  # of the directions are free
    assert scaled[0] == pytest.approx(share * scaled[1], rel=0.02)


def refit(target, loss=None, **options):
    """Return a model, and the same model with the weights of its run."""
    given = {"epsilon": 1.0, "random_state": 0, "pairs": "all", "knots": 8} | options
    if loss is None:
        schema = skdp.Schema(COLUMNS, target=skdp.Categorical([0, 1]))
        model = skdp.AdditiveClassifier(schema=schema, **given)
    else:
        schema = skdp.Schema(COLUMNS, target=skdp.Numeric(0, 30))
        model = skdp.AdditiveRegressor(schema=schema, loss=loss, **given)
    model.fit(X, target)
    run = copy(model)
    run._set_fitted(model._run_weights, model.schema_, True)
    run._errors = None
    return model, run


@pytest.mark.parametrize("loss", [None, "squared", "poisson"])
def test_bends_and_interactions_that_are_errors_are_shrunk_away(loss):
    """The truth is a line, which a model without bends and interactions is."""
    rng = np.random.default_rng(3)
    line = 0.02 * X["age"] - 1.0
    draw = {
        None: lambda: (rng.uniform(size=N) < expit(line)).astype(int),
        "squared": lambda: 15 + 3 * line + rng.normal(0, 2, N),
        "poisson": lambda: rng.poisson(np.exp(line)),
    }
    model, run = refit(draw[loss](), loss)
    off = [m._margins(X)[:, 0] for m in (model, run)]
    scale = {None: 1.0, "squared": 0.2, "poisson": 1.0}[loss]  # to margins
    wrong = [np.var(margin - scale * line) for margin in off]
    assert wrong[0] < 0.6 * wrong[1]
    assert abs(np.mean(off[0] - off[1])) < 0.1 * np.std(off[0] - off[1]) + 1e-3


def test_what_classes_have_in_common_keeps_no_bend():
    """It is hardly known, so its errors are large, and it changes no prediction."""
    levels = np.array(["a", "b", "c"])
    target = levels[np.random.default_rng(4).integers(0, 3, N)]
    schema = skdp.Schema(COLUMNS, target=skdp.Categorical(levels.tolist()))
    model = skdp.AdditiveClassifier(
        schema=schema, epsilon=1.0, random_state=0, knots=8, pairs=None
    ).fit(X, target)
    run = copy(model)
    run._set_fitted(model._run_weights, model.schema_, True)
    wrong = [np.var(np.log(m.predict_proba(X))) for m in (model, run)]
    assert wrong[0] < 0.6 * wrong[1]


def test_bends_that_are_true_stay():
    model, run = refit(Y, epsilon=4.0)
    found, raw = (
        next(c for c in list_curves(m) if c.column == "age").effects[:, 0]
        for m in (model, run)
    )
    assert np.linalg.norm(found - raw) < 0.03 * np.linalg.norm(raw)


def test_intervals_contain_those_of_the_run():
    model, run = refit(Y, pairs=None)
    for mine, before in zip(list_curves(model), list_curves(run), strict=True):
        told = np.isfinite(before.low)
        assert (mine.low[told] <= before.low[told] + 1e-9).all()
        assert (mine.high[told] >= before.high[told] - 1e-9).all()
    assert np.isfinite(model.summary().to_frame()["std err"]).any()


def test_nothing_is_shrunk_without_noise():
    model, run = refit(Y, epsilon=float("inf"), pairs=None, n_steps=20)
    assert np.array_equal(model.weights_, run.weights_)


def test_the_plan_says_what_was_chosen_and_why():
    plan = skdp.plan(SCHEMA, 1000, 0.5, model="additive", neighbours="zero-out")
    assert "curves: 4 knots per numeric" in str(plan)  # 3 intervals of 40 rows or more
    assert "pairs: none, because" in str(plan)
    assert skdp.Plan.from_json(plan.to_json()).to_json() == plan.to_json()
    many = skdp.plan(SCHEMA, 10**6, 1.0, model="additive")
    assert "pairs: 3, with 9 knots" in str(many)
    few = skdp.plan(SCHEMA, 200, 0.5, model="additive")
    assert "curves: none" in str(few)
    assert few.layout.n_features == 6


@pytest.mark.parametrize("look", [True, False])
def test_choices_depend_on_public_facts_alone(look):
    """No argument of the choice holds a record; rows and shares are released."""
    model = fit(pairs=None, neighbours="add-remove", look=look)
    first, second = list(model.privacy_.events)[:2]
    if look:
        query = "number of rows, histograms of 3 columns and of the target"
        assert first.query == query
        assert second.kind in (Kind.FINER_LOOK, Kind.GRAM)
    else:
        assert (first.kind, second.kind) == (Kind.ROW_COUNT, Kind.KNOT_SHARES)
    spent = sum(e.mu_squared for e in (first, second) if e.kind != Kind.GRAM)
    signal = model.plan_.n_rows * (model.privacy_.budget - spent) ** 0.5
    knots = model.schema_.columns["age"].n_knots
    assert knots == 1 + round(1.27 * (signal / 2.5 / 6**0.5) ** (1 / 2))


@pytest.mark.parametrize("look", [True, False])
def test_knots_are_where_the_rows_are(look):
    model = fit(pairs=None, neighbours="zero-out", look=look)
    spent = [event for event in model.privacy_.events if event.kind == Kind.KNOT_SHARES]
    assert len(spent) == (not look)
    if not look:
        share = 0.05 * model.privacy_.budget
        assert spent[0].mu_squared == pytest.approx(share, rel=1e-3)
        assert spent[0].sensitivity == pytest.approx(2**0.5)
    age, dose = (model.schema_.columns[name] for name in ("age", "dose"))
    assert np.allclose(age.place_knots(), np.linspace(0, 1, age.n_knots), atol=0.03)
    gaps = np.diff(dose.place_knots())  # doses are rare at both ends of the log scale
    assert gaps.min() < 0.8 * gaps.max()
    assert all(one.passed is not False for one in skdp.verify(model).checks)
    given = fit(knots=6, pairs=None, n_steps=2)
    assert given.schema_.columns["age"].knots == 6
    assert not [e for e in given.privacy_.events if e.kind == Kind.KNOT_SHARES]


def test_columns_with_two_values_have_two_knots_and_one_value_takes_one_interval():
    column, shares = skdp.Numeric(0, 10), np.zeros(64)
    assert np.allclose(place_knots(column, shares, 6), np.linspace(0, 10, 6))
    shares[0] = 1.0
    knots = place_knots(column, shares, 6)
    assert knots[1] < 10 / 64 + 1e-9 < knots[2]
    shares[[0, 63]] = 0.5
    assert place_knots(column, shares, 6) == (0.0, 10.0)


def test_a_model_prints_what_was_changed_and_names_its_parameters():
    model = skdp.AdditiveRegressor(epsilon=2.0, knots=5, loss="huber")
    assert repr(model) == "AdditiveRegressor(epsilon=2.0, knots=5, loss='huber')"
    assert {"loss", "pairs", "epsilon"} <= set(clone(model).get_params())
    assert skdp.AdditiveClassifier().get_params()["pairs"] == "auto"
    with pytest.raises(TypeError, match="Did you mean 'knots'"):
        skdp.AdditiveClassifier(knot=3)


def test_a_schema_has_the_last_word():
    own = COLUMNS | {"age": skdp.Numeric(0, 100, knots=3)}
    schema = skdp.Schema(own, target=skdp.Categorical([0, 1]))
    model = fit(schema=schema, knots=5, pairs=None, n_steps=2)
    assert model.schema_.columns["age"].knots == 3
    assert model.schema_.columns["dose"].knots == 5
    line = fit(schema=schema, knots=None, pairs=None, n_steps=2)
    assert line.schema_.columns["dose"].knots is None


def test_linear_models_resolve_knots_too():
    own = COLUMNS | {"age": skdp.Numeric(0, 100, knots="auto")}
    schema = skdp.Schema(own, target=skdp.Categorical([0, 1]))
    with pytest.raises(ValueError, match=r"knots of \['age'\] must be an integer"):
        skdp.encode([], schema)
    model = skdp.LogisticRegression(epsilon=4.0, schema=schema, random_state=0)
    assert model.fit(X, Y).schema_.columns["age"].n_knots > 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"knots": 1}, "knots must be 'auto' or an integer from 2 to 1000, got 1."),
        ({"pairs": "some"}, "pairs must be 'auto', 'all', None or a list of pairs"),
        ({"pairs": [("age", "nothing")]}, "must join two numeric or categorical"),
    ],
)
def test_wrong_choices_are_refused(options, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        fit(**options)


def test_curves_are_a_frame_with_intervals(model):
    frame = model.curves_
    assert list(frame) == ["column", "value", "effect", "low", "high"]
    assert set(frame["column"]) == {"age", "dose", "site"}
    age = frame[frame["column"] == "age"]
    assert age["value"].iloc[0] == 0
    assert age["value"].iloc[-1] == 100
    assert (age["low"] < age["effect"]).all()
    # The mean over the rows is about zero, as it is for boosted additive models.
    heights = np.interp(X["age"], age["value"].astype(float), age["effect"])
    assert abs(heights.mean()) < 0.1
    assert list(model.surfaces_)[1:3] == ["first_value", "second_value"]
    assert len(model.surfaces_) == 5 * 3


def test_a_band_contains_the_noise_of_privacy(model):
    """At a small budget the band is far wider than that of sampling alone."""
    free = fit(epsilon=float("inf"), pairs=None, knots=9, n_steps=40)
    tight = fit(epsilon=0.5, pairs=None, knots=9)
    wide, narrow = (
        np.median(one.curves_["high"] - one.curves_["low"]) for one in (tight, free)
    )
    assert wide > 1.5 * narrow
    errors = tight._standard_errors()
    shown = tight._shown_rows
    assert (errors.effects_std > errors.effects_noise_std)[shown].all()
    groups = {group.name: group for group in tight._layout.groups}
    for curve in list_curves(tight):
        at = groups[curve.column].coordinates
        half = (curve.high - curve.low)[:, 0] / 2
        assert half == pytest.approx(1.959964 * errors.effects_std[at, 0], rel=1e-6)


def test_models_are_saved_with_their_curves(model, tmp_path):
    model.save(tmp_path / "model")
    again = skdp.load(tmp_path / "model")
    assert (again.predict_proba(X) == model.predict_proba(X)).all()
    pd.testing.assert_frame_equal(again.curves_, model.curves_)
    assert again.schema_ == model.schema_
    assert all(one.passed is not False for one in skdp.verify(model).checks)
    page = skdp.report(again)
    assert "Curve of age" in page
    assert "2 more terms cannot be told from noise." in page
    assert "Map of age and site" not in page
    assert "A look at what rows fill: histograms of all columns" in page
    assert "There is no forecast" not in page  # the plan could be made again


def panels(figure):
    """The title of each panel, and the texts in it."""
    texts = [[text.get_text() for text in ax.texts] for ax in figure.axes]
    return {found[-1]: found for found in texts}


def test_figures_show_curves_bands_and_maps(model):
    pytest.importorskip("matplotlib")
    figure = model.plot(["dose", "age", "site", "age:site"])
    assert list(panels(figure)) == ["dose", "age", "site", "age ↑ × site →"]
    assert {"a", "b", "c"} <= set(panels(figure)["site"])
    assert {"a", "b", "c"} <= set(panels(figure)["age ↑ × site →"])
    assert len(model.plot(["age"]).axes) == len(model.plot("age").axes) == 1
    with pytest.raises(ValueError, match="columns must be among"):
        model.plot(["nothing"])


def make_curve(effects, std=0.1, name="x", **given):
    column = np.asarray(effects, float)[:, None]
    errors = np.broadcast_to(np.asarray(std, float)[..., None], column.shape)
    ends = tuple(np.linspace(0.0, 100.0, len(column)))
    return Curve(
        **{
            "column": name,
            "axes": ((name, ends),),
            "numeric": (True,),
            "effects": column,
            "std": errors,
            "likely_std": errors,
            "least_std": errors,
        }
        | given
    )


def test_noise_is_told_from_effects():
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(8))
    worst = 0.1 * np.sqrt(ALLOWANCE)
    found = [
        make_curve(worst * rng.normal(size=8), shares=shares).is_told
        for _ in range(2000)
    ]
    assert 0.02 < np.mean(found) < 0.12
    assert make_curve(0.1 * rng.normal(size=8) + 0.4, shares=shares).is_told
    assert make_curve(np.ones(8), std=np.inf).is_told is None
    assert make_curve(np.ones(8), least_std=None).is_told is None
    hidden = np.full((8, 1), 0.1)
    assert make_curve(np.ones(8), std=np.inf, least_std=hidden).is_told is True
    assert make_curve(np.full(8, 0.1), std=np.inf, least_std=hidden).is_told is False


def test_errors_that_noise_hides_are_guessed_from_the_others(model):
    errors = model._standard_errors()
    shown = model._shown_rows  # not the lines, which are parts of curves
    std, noise = errors.effects_std[shown], errors.effects_noise_std[shown]
    both = np.hypot(noise, errors.effects_sampling_std[shown])
    for name, whole in (("likely_std", std), ("least_std", both)):
        guesses = np.concatenate([getattr(curve, name) for curve in list_curves(model)])
        there = np.isfinite(whole)
        ratio = np.median(whole[there] / noise[there])
        assert ratio > 1.5
        known = there[:-1]  # the intercept is not a curve
        assert 0 < known.sum() < len(known)
        assert guesses[known] == pytest.approx(whole[:-1][known])
        assert guesses[~known] == pytest.approx(ratio * noise[:-1][~known])


def test_a_picture_leaves_out_noise_and_orders_the_rest(model, monkeypatch):
    pytest.importorskip("matplotlib")
    wave = np.array([1.0, -1.0] * 4)
    drawn = [
        make_curve(0.4 * wave, name="age"),
        make_curve(0.05 * wave, name="dose"),
        # Its effects are larger, but more of them is error.
        make_curve(0.42 * wave, std=0.17, name="age"),
        make_curve(0.05 * wave, name="dose"),
        make_curve(wave, std=np.inf, name="age:site"),
    ]
    monkeypatch.setattr(plots, "list_curves", lambda model: drawn)
    terms = plots.choose_terms(model)
    assert list(map(id, terms.shown)) == [id(drawn[0]), id(drawn[2])]
    assert terms.notes == (
        "2 more terms cannot be told from noise.",
        "1 more term is left out, because its error was not computed.",
    )
    assert [one.column for one in plots.choose_terms(model, most=1).shown] == ["age"]
    notes = plots.choose_terms(model, most=1).notes
    assert notes[0] == "1 more term explains less."
    # All panels have the same scale.
    figure = model.plot()
    labels = [
        [text for text in found if text.lstrip("−").replace(".", "").isdigit()]
        for found in (
            [t.get_text() for t in ax.texts if t.get_ha() == "right"]
            for ax in figure.axes
        )
    ]
    assert len(labels) == 2
    assert labels[0] == labels[1] != []
    written = " ".join(text.get_text() for text in figure.texts)
    assert " ".join(terms.notes) in written


def test_bands_are_whole_and_paler_where_they_are_a_guess(model):
    std = np.array([0.1, 0.1, np.inf, 0.1, 0.1, 0.1, 0.1, 0.1])
    likely = np.where(np.isfinite(std), std, 0.15)[:, None]
    curve = make_curve(np.zeros(8), std=std, likely_std=likely)
    column = skdp.Numeric(0, 100, knots=8)
    scale = plots.scale_linearly(0.0, 100.0)
    _, _, reach, guess = plots.trace(column, curve, scale)
    assert np.isfinite(reach).all()
    assert reach[[1, 3]] == pytest.approx(1.959964 * 0.1)
    assert reach[2] == pytest.approx(1.959964 * 0.15)
    assert guess.tolist() == [i == 2 for i in range(8)]
    runs = list(plots._find_runs(~guess))
    assert [(run.start, run.stop) for run in runs] == [(0, 2), (3, 8)]


@pytest.mark.parametrize(
    ("column", "shares", "place"),
    [
        # As spread over the range: a linear axis.
        (skdp.Numeric(0, 100, knots=5), [0.2] * 5, 0.25),
        # As the schema says.
        (
            skdp.Numeric(0, 100, scale="log", knots=5),
            [0.2] * 5,
            np.log(26) / np.log(101),
        ),
        # Among the smallest values: a logarithm.
        (skdp.Numeric(0, 10**5, knots=(0, 10, 100, 1000, 10**5)), None, None),
        # In the middle: each knot has the same room.
        (skdp.Numeric(-100, 100, knots=(-100, -1, 0, 1, 100)), None, None),
    ],
)
def test_skewed_columns_get_an_axis_on_which_they_are_seen(column, shares, place):
    shares = np.array(shares or [0.05, 0.3, 0.3, 0.3, 0.05])
    knots = tuple(column.unscale(column.place_knots()).tolist())
    curve = make_curve(np.ones(5), axes=(("x", knots),), shares=shares)
    scale = plots.choose_axis(column, curve)
    assert scale.place(np.array([column.low, column.high])).tolist() == [0.0, 1.0]
    assert 3 <= len(scale.ticks) <= 7
    if place is not None:
        assert float(scale.place(25.0)) == pytest.approx(place)
    else:
        at = scale.place(np.array(knots[1:-1]))
        assert (np.diff([0.0, *at, 1.0]) > 0.02).all()
        assert at[-1] - at[0] > 0.3


def test_a_bent_axis_bends_the_curve_between_knots():
    column = skdp.Numeric(0, 10**5, knots=(0, 10, 100, 1000, 10**5))
    curve = make_curve([0, 1, 2, 3, 4], axes=(("x", column.knots),), shares=None)
    scale = plots.choose_axis(column, curve)
    x, effect, *_ = plots.trace(column, curve, scale)
    inside = np.interp(scale.place(50_500.0), x, effect)
    assert inside == pytest.approx(3.5, abs=0.01)  # half way from 1,000 to 100,000


@pytest.mark.parametrize("loss", ["squared", "huber", "poisson"])
def test_regressors_of_each_loss(loss):
    rng = np.random.default_rng(3)
    rate = np.exp(1.0 + np.sin(X["age"] / 100 * 2 * np.pi))
    y = rng.poisson(rate).astype(float)
    schema = skdp.Schema(COLUMNS, target=skdp.Numeric(0, 20))
    model = skdp.AdditiveRegressor(
        loss=loss, epsilon=8.0, schema=schema, random_state=0, pairs=None
    ).fit(X, y)
    assert model.score(X.copy(), y) > 0.25
    assert model.get_params()["loss"] == loss
    assert set(model.get_params()) > {"knots", "pairs", "epsilon", "alpha"}
    predicted = model.predict(X[:50])
    np.testing.assert_allclose(model.to_sklearn().predict(X[:50]), predicted)


def test_drawn_curves_pass_through_knots_that_are_not_equally_spaced():
    column = skdp.Numeric(0, 100, knots=(0.0, 10.0, 50.0, 100.0))
    knots, heights = (0.0, 10.0, 50.0, 100.0), np.array([[0.0], [1.0], [2.0], [-1.0]])
    curve = Curve(
        column="x", axes=(("x", knots),), numeric=(True,), effects=heights, std=None
    )
    scale = plots.scale_linearly(0.0, 100.0)
    x, effect, *_ = plots.trace(column, curve, scale)
    assert x.tolist() == pytest.approx([0.0, 0.1, 0.5, 1.0])
    assert effect.tolist() == [0.0, 1.0, 2.0, -1.0]


def test_effects_add_up_to_the_prediction():
    """Effects that leave a pair are added to its columns, at shared knots."""
    columns = {
        "x": skdp.Numeric(0, 100, knots=(0.0, 10.0, 50.0, 100.0), indicator=True),
        "y": skdp.Categorical(["a", "b", "c"]),
        "x:y": skdp.Pair("x", "y", knots=4),
    }
    schema = skdp.Schema(columns)
    layout = schema.layout()
    weights = np.random.default_rng(0).normal(size=(layout.n_features, 1))
    shares = np.full(layout.n_features, 0.2)
    for group in layout.groups:
        shares[group.coordinates] = 1.0 / group.width
    effects = make_purifying_matrix(schema, layout, shares) @ weights
    table = {"x": [0.0, 10.0, 50.0, 100.0, np.nan], "y": ["a", "b", "c", "b", "a"]}
    wanted, found = (
        compute_margins(table, schema, layout, one) for one in (weights, effects)
    )
    np.testing.assert_allclose(found, wanted)
    pair = effects[layout.groups[2].coordinates].reshape(5, 3)
    np.testing.assert_allclose(pair.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(pair.mean(axis=1), 0.0, atol=1e-12)


def test_three_classes_have_a_curve_each():
    classes = np.where(X["age"] < 30, "low", np.where(X["age"] > 70, "high", "middle"))
    target = skdp.Categorical(["low", "middle", "high"])
    schema = skdp.Schema(COLUMNS, target=target)
    model = skdp.AdditiveClassifier(epsilon=8.0, schema=schema, random_state=0)
    model.fit(X, classes)
    assert model.score(X.copy(), classes) > 0.85
    assert list(model.curves_)[:2] == ["column", "class"]
    assert model.plot(["age"]).axes


def test_sampling_by_columns_sees_a_curve_as_one_block():
    choice = choose_curves(
        SCHEMA,
        loss=skdp.Logistic(),
        n_rows=N,
        mu=1.0,
        neighbours="zero-out",
        knots=5,
        pairs=[("age", "dose")],
    )
    layout = choice.schema.layout()
    assert [len(block) for block in layout.blocks] == [5, 5, 3, 36, 1]
    model = fit(knots=5, pairs=[("age", "dose")], sampling="columns", n_steps=30)
    assert np.isfinite(model.weights_).all()


def test_a_summary_has_one_line_per_curve_and_pair(model):
    found = model.summary()
    names = [*COLUMNS, "age:site", "Intercept"]
    assert [term.column for term in found.terms] == names
    assert len(found.to_frame()) == len(found.lines) > len(names)
    lines = str(found).splitlines()
    assert all(sum(x.startswith(f"{name} ") for x in lines) == 1 for name in names)
    age = found.terms[0]
    frame = model.curves_[model.curves_["column"] == "age"]
    largest = frame.loc[frame["effect"].abs().where(frame["high"] < np.inf).idxmax()]
    assert (age.lowest, age.highest) == (frame["effect"].min(), frame["effect"].max())
    assert age.effect == pytest.approx(largest["effect"])
    assert age.at == f"{largest['value']:.4g}"
    assert age.interval == pytest.approx((largest["low"], largest["high"]), rel=1e-6)
    pair = found.terms[3]
    assert pair.points == len(model.surfaces_)
    assert pair.highest == pytest.approx(model.surfaces_["effect"].max())
    assert found.to_dict()["terms"][0]["at"] == age.at
    ratios = model.summary(ratios=True)
    numbers = ratios.to_dict()["terms"][0]
    assert numbers["ratio_effect"] == pytest.approx(np.exp(numbers["effect"]))
    assert numbers["ratio_low"] == pytest.approx(np.exp(numbers["low"]))
    assert "factors by which the odds of 1 change" in " ".join(ratios.notes)
    assert found._repr_html_().count("<tr>") == len(names) + 1
