"""A page says what the record and the model say, and nothing else."""

import base64
import hashlib
import json
import math
import re
import sys

import numpy as np
import pytest
from pages import HOSTILE, MODELS, TABLE, WIDE, Reader, model, page

import skdp
from skdp.descent.forecast import forecast
from skdp.descent.plan_files import summary_digest
from skdp.estimators import plots
from skdp.estimators.effects import compute_effects
from skdp.estimators.standard_errors import compute_class_effects
from skdp.formatting import escape_unprintable, format_number
from skdp.privacy.budget import Event
from skdp.privacy.queries import Kind
from skdp.reporting import model_card, pictures
from skdp.reporting import report as report_module
from skdp.reporting.report import remake_plan
from skdp.reporting.statement import write_parts

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
NO_CLAIM = ("seeded", "noiseless")
#: Models that are saved as others are, with other numbers.
SAVED_ALIKE = (
    *("seeded", "given rows", "replace-one", "zero-out", "l1", "no intercept", "huber"),
    *("dp_gcd", "output", "wide", "hostile", "diagonal", "many", "svc"),
)


def words(text):
    return " ".join(text.replace("`", "").split())


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_has_a_page(name):
    fitted = model(name)
    written = page(name)
    read = Reader(written)
    text = read.text
    # The saved model is enough, so the page can show only public and released values.
    if name not in SAVED_ALIKE:
        mine = set(skdp.report(fitted).splitlines())
        assert len(mine - set(written.splitlines())) <= 1  # skdp verify MODEL
    _, promised, public, unprotected, checked = (
        lines for _, lines in write_parts(fitted)
    )
    for line in [*public, *unprotected, *checked]:
        assert words(line) in text
    if name in NO_CLAIM:
        alarm = text.index("No privacy is claimed: do not publish")
        assert alarm < text.index("requested")
        assert "differential privacy" not in text
    else:
        assert "No privacy is claimed" not in text
        for line in promised:
            assert words(line) in text
    for event in fitted.privacy_.events:
        assert event.query in text
    for wanted in ("nan", "None", "Undefined", "object at"):
        assert wanted not in text


@pytest.mark.parametrize("name", ["plain", "hostile", "seeded", "softmax"])
def test_a_page_is_complete_in_itself(name):
    written = page(name)
    read = Reader(written)
    assert {tag for tag, _ in read.tags} & {
        "script",
        "img",
        "iframe",
        "object",
    } == set()
    for _, attributes in read.tags:
        assert not any(key.startswith("on") or key == "style" for key in attributes)
        for key in ("href", "src"):
            assert attributes.get(key, "#").startswith(("#", "data:,"))
    assert "url(" not in written
    assert "@import" not in written
    style = re.search("<style>(.*?)</style>", written, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(a for _, a in read.tags if "http-equiv" in a)["content"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}';")


def test_names_are_shown_as_they_are_and_do_nothing():
    read = Reader(page("hostile"))
    for level in HOSTILE:
        shown = level.replace("\u202e", "\\u202e").replace("\n", "\\n")
        assert any(row[0] == f"colour: {shown}" for row in read.rows), level
    assert "<b>age</b> & 'co'" in read.text
    assert not [tag for tag, _ in read.tags if tag == "b"]
    assert "\u202e" not in read.text
    texts = [text for _, shapes in read.pictures for *_, text in shapes]
    for level in (HOSTILE[2], HOSTILE[-2], HOSTILE[-1]):  # letter by letter
        assert level in texts


def test_a_page_has_the_same_bytes_whatever_the_settings_of_matplotlib():
    from matplotlib import rc_context, rcParams

    first = skdp.report(model("curves"))
    kept = dict(rcParams)
    odd = {"path.sketch": (1, 100, 2), "text.usetex": True, "svg.fonttype": "path"}
    with rc_context(odd | {"figure.dpi": 11, "axes.facecolor": "red"}):
        assert skdp.report(model("curves")) == first
    assert dict(rcParams) == kept
    assert "<image" not in first
    assert re.findall("<(?:svg|g|path|text|circle)[^>]* id=", first) == []


@pytest.mark.parametrize("name", ["plain", "curves", "softmax", "many"])
def test_the_page_knows_all_colours_of_its_pictures(name):
    """Its style sheet replaces them on a dark screen."""
    style, _, body = page(name).partition("</style>")
    drawn = set(re.findall('(fill|stroke)="(#[0-9a-f]{6})"', body))
    assert len(drawn) > 5
    for kind, colour in drawn:
        if colour not in (plots.MORE, plots.LESS, *plots.CLASSES):
            assert f'[{kind}="{colour}"]' in style, (kind, colour)


def test_dots_stand_where_the_axis_says():
    shapes = Reader(page("plain")).picture("5 coefficients with 95 % intervals")

    def number(text):
        return float(text.replace("−", "-"))

    texts = [(one, text) for tag, one, text in shapes if tag == "text"]
    ticks = [
        (number(t), float(a["x"])) for a, t in texts if a["text-anchor"] == "middle"
    ]
    (low, left), (high, right) = ticks[0], ticks[-1]
    dots = [one for tag, one, _ in shapes if tag == "circle"]
    # Wider intervals have fewer digits.
    plain = re.compile(r"−?\d+\.?(\d*)")
    ends = [t for a, t in texts if a["text-anchor"] == "end"]
    written = [found for t in ends if (found := plain.fullmatch(t))]
    assert len(dots) == len(written) == 5
    for dot, found in zip(dots, written, strict=True):
        at = low + (float(dot["cx"]) - left) * (high - low) / (right - left)
        close = 0.6 * 10.0 ** -len(found[1]) + 0.02
        assert at == pytest.approx(number(found[0]), abs=close)


def test_what_does_not_print_is_written_out():
    assert escape_unprintable("a\ud800b\x00\u200fc") == "a\\ud800b\\x00\\u200fc"
    assert escape_unprintable("µ ≤ 3 שלום") == "µ ≤ 3 שלום"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (20000, "20,000"),
        (-3, "−3"),
        (1e-6, "10⁻⁶"),
        (-7.13e-5, "−7.13·10⁻⁵"),
        (1.0, "1"),
        (0.0, "0"),
        (123456.0, "1.235·10⁵"),
        (-0.25, "−0.25"),
        (math.nan, ""),
        (math.inf, "∞"),
    ],
)
def test_numbers_are_written_for_people(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize("name", ["plain", "found", "replace-one", "dp_sgd", "columns"])
def test_bars_are_the_shares_that_were_spent(name):
    record = model(name).privacy_
    found = model_card.group_by_purpose(record)
    assert math.fsum(one.share for one in found) == pytest.approx(1.0, abs=2e-3)
    spent = [one for one in found if one.spent]
    assert math.fsum(one.mu_squared for one in spent) == pytest.approx(record.spent)
    read = Reader(page(name))
    bars = []
    for _, attributes, _ in read.picture("Share of the budget"):
        if attributes.get("stroke") in (plots.ACCENT, plots.SOFT):
            start, end = (point.split()[0] for point in attributes["d"][1:].split("L"))
            bars.append((float(end) - float(start)) / plots.INTERVAL_WIDTH)
    assert bars == pytest.approx([one.share for one in found], abs=1e-3)
    assert len(bars) == {"found": 7, "plain": 5, "replace-one": 5}.get(name, len(bars))


def test_what_is_left_of_a_budget_is_shown():
    record = skdp.PrivacyRecord(epsilon=1.0, delta=1e-6, neighbours="replace-one")
    record.charge(
        Event(Kind.ROW_COUNT, "number of rows", 1.0, 2 / math.sqrt(record.budget), 1)
    )
    rows, left = model_card.group_by_purpose(record)
    assert (rows.name, left.name) == ("Number of rows", model_card.UNSPENT)
    assert (rows.share, left.share) == pytest.approx((0.25, 0.75))


@pytest.mark.parametrize("name", ["plain", "linear", "odd", "huber"])
def test_intervals_are_those_of_the_summary(name):
    fitted = model(name)
    read = Reader(page(name))
    told = fitted.summary().lines
    (output,) = compute_effects(fitted)
    drawn = [*output.effects, output.intercept]
    assert len(told) == len(drawn)
    for line, effect in zip(told, drawn, strict=True):
        numbers = [line.coef, line.noise_std, line.std, *line.interval]
        assert effect.in_units() == pytest.approx(numbers, rel=1e-9, abs=1e-12)
    coef = read.row("age: 20 to 35" if name == "odd" else "age", 6)[1]
    assert coef == format_number(told[0].coef)
    assert "Standard error" in read.text


@pytest.mark.parametrize("name", ["plain", "poisson", "linear", "vectors", "odd"])
def test_effects_are_what_predictions_change_by(name):
    """Of a number from end to end; of a category against the mean of its column."""
    fitted = model(name)
    (output,) = compute_effects(fitted)
    found = {(e.column, e.label): e.effect for e in output.effects}
    units = [e.in_units()[0] for e in [*output.effects, output.intercept]]
    assert units == pytest.approx(compute_class_effects(fitted)[:, 0])
    if name in ("plain", "poisson", "linear"):
        # A look may have found that the target fills less than its range.
        unit = fitted._target_units()[1] if name == "linear" else 1.0
        rows = TABLE.iloc[[0, 0]].assign(age=[20, 80])
        margins = fitted._margins(rows)[:, 0] * unit
        assert found["age", ""] == pytest.approx(margins[1] - margins[0], abs=1e-3)
        rows = TABLE.iloc[[0, 0, 0]].assign(colour=["red", "green", "blue"])
        margins = fitted._margins(rows)[:, 0] * unit
        assert found["colour", "red"] == pytest.approx(margins[0] - margins.mean())


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_bins_are_described_by_the_values_that_fall_into_them(scale):
    column = skdp.Numeric(5, 1005, scale=scale, bins=4)
    schema = skdp.Schema({"gain": column}, target=("y", skdp.Numeric(0, 1)))
    made = skdp.LinearRegression(schema=schema)
    made._set_fitted(np.zeros((5, 1)), schema, True)
    made._errors = "There are no standard errors."
    (output,) = compute_effects(made)
    labels = [effect.label for effect in output.effects]
    for place, label in enumerate(labels):
        low, high = (float(end.replace(",", "")) for end in label.split(" to "))
        room = 0.05 * (high - low)  # what is written is rounded
        inside = np.array([low + room, high - room])
        assert column.compute_features(inside).tolist() == [place, place]
    assert len(labels) == 4


def test_classes_are_told_apart_and_sum_to_nothing():
    found = compute_effects(model("softmax"))
    assert [one.class_name for one in found] == ["ill", "well", "worse"]
    each = np.array([[e.effect for e in one.effects] for one in found])
    assert each.sum(axis=0) == pytest.approx(0.0, abs=1e-9)
    weights = model("softmax").weights_
    assert each[0, 0] - each[1, 0] == pytest.approx(weights[0, 0] - weights[0, 1])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("svc", "not a likelihood"),
        ("diagonal", "no standard errors in the diagonal geometry"),
        ("dp_sgd", "Standard errors are available only for solver='skgd'."),
        ("constant", "has only an intercept"),
    ],
)
def test_a_sentence_says_why_there_are_no_errors(name, sentence):
    read = Reader(page(name))
    assert sentence in read.text
    assert "95 % from" not in read.text


def test_many_categories_stay_readable():
    written = page("wide")
    read = Reader(written)
    dots = [one for one in read.picture("by column") if one[0] == "circle"]
    assert len(dots) == plots.MOST_MARKS
    assert f"The {plots.MOST_MARKS} of {WIDE} effects that are largest" in read.text
    for code in range(WIDE):
        read.row(f"zip: zip {code:02d}")
    assert len(written) < 80_000


def test_pictures_have_names_and_tables():
    for name in ("plain", "softmax", "wide", "curves"):
        read = Reader(page(name))
        labels = [label for label, _ in read.pictures]
        assert len(labels) == len(set(labels)) > 3
        for tag, attributes in read.tags:
            if tag == "svg":
                assert attributes["role"] == "img"
                assert attributes["aria-label"].endswith(". The table has the numbers.")


@pytest.mark.parametrize(
    "name", ["plain", "replace-one", "found", "softmax", "columns"]
)
def test_curves_are_forecasts_of_plans_without_data(name, tmp_path):
    fitted = model(name)
    fitted.save(tmp_path / "model")
    loaded = skdp.load(tmp_path / "model")
    again = remake_plan(loaded)
    assert again.to_json() == fitted.plan_.to_json()
    forecasts = pictures.make_forecasts(again)
    assert len(forecasts) == 2
    for panel in forecasts:
        here = panel.here
        asked = forecast(fitted.plan_)
        # What was spent on ranges and rows before is not in the curves.
        close = {"found": 0.05, "columns": 1e-6}.get(name, 0.01)
        assert here.both == pytest.approx(asked.excess, rel=close)
        assert here.value in (fitted.plan_.epsilon, fitted.plan_.n_rows)
        costs = [point.both for point in panel.drawn]
        assert costs[-1] < costs[len(costs) // 2] < costs[0]
        assert len(costs) > 2


def test_a_constant_model_is_told_what_would_do():
    read = Reader(page("constant"))
    assert "rows cannot support a single coefficient" in read.text
    assert "no model, only a constant" in read.text
    assert "this fit" not in read.text.partition("The curves, in numbers")[0]
    assert "this fit" in Reader(page("plain")).text.partition("The curves, in num")[0]


def test_a_plan_of_parts_that_were_not_saved_is_not_guessed(tmp_path):
    from skdp.descent.matrix import Matrix

    own = Matrix(radius=1.0, floor=0.1, gram_share=0.3)
    schema = model("plain").schema_
    fitted = skdp.LogisticRegression(schema=schema, geometry=own, n_steps=7)
    fitted.fit(TABLE).save(tmp_path / "own")
    assert "There is no forecast" not in Reader(skdp.report(fitted)).text
    read = Reader(skdp.report(tmp_path / "own"))
    assert "There is no forecast, because the plan cannot be made again" in read.text
    assert "geometry = an object" in Reader(skdp.report(fitted)).text


def test_the_number_of_rows_is_told_as_it_may_be():
    for name, why in {
        "replace-one": "900, a public number",
        "given rows": "900, given as public",
        "plain": "approximate, because released with noise",
    }.items():
        assert why in Reader(page(name)).text
    count = remake_plan(model("plain")).n_rows
    assert f"{count:,}, approximate" in Reader(page("plain")).text


def test_a_ledger_is_looked_into_and_its_path_not_shown(tmp_path):
    ledger = skdp.Ledger(tmp_path / "secret place.db", epsilon=3.0, delta=1e-5)
    schema = model("plain").schema_
    fitted = skdp.LogisticRegression(schema=schema, ledger=ledger).fit(TABLE)
    read = Reader(skdp.report(fitted, ledger))
    assert read.text.count("charged to a ledger") == 1
    assert any(row[1] == "ledger" and "entry" in row[2] for row in read.rows)
    assert "secret place" not in read.text
    other = skdp.Ledger(tmp_path / "other.db", epsilon=3.0, delta=1e-5)
    with pytest.raises(
        ValueError, match="no entry paid for the releases of this model"
    ):
        skdp.report(fitted, other)


def test_a_record_that_does_not_hold_gets_no_page(tmp_path):
    model("plain").save(tmp_path / "forged")
    path = tmp_path / "forged" / "privacy.json"
    about = json.loads(path.read_text())
    about["neighbours"] = "replace-one"
    path.write_text(json.dumps(about))
    with pytest.raises(ValueError, match=r"failed a check.*neighbours: replace-one"):
        skdp.report(tmp_path / "forged")


def test_a_model_that_a_stranger_wrote_gets_a_sentence_or_a_page(tmp_path):
    """With the digest that the changed plan has: a stranger would change it too."""
    where = tmp_path / "model"
    model("plain").save(where)
    record = json.loads((where / "privacy.json").read_text())
    about = json.loads((where / "model.json").read_text())
    refused, n_pages = 0, 0
    for part, keys in (
        ("plan", ("n_rows", "l1", "geometry")),
        ("parameters", ("geometry", "ledger", "alpha")),
        ("versions", ("numpy",)),
    ):
        for key in keys:
            for value in (None, [1], "<script>alert(1)</script>"):
                changed = about | {part: about[part] | {key: value}}
                (where / "model.json").write_text(json.dumps(changed))
                record["plan_digest"] = summary_digest(changed["plan"])
                (where / "privacy.json").write_text(json.dumps(record))
                try:
                    read = Reader(skdp.report(where))
                except ValueError:
                    refused += 1
                else:
                    assert "script" not in [tag for tag, _ in read.tags]
                    n_pages += 1
    assert refused > 1
    assert n_pages > 1


def test_something_else_than_a_model_is_refused_in_one_sentence(tmp_path):
    for given in (skdp.LogisticRegression(), 3, None, tmp_path):
        with pytest.raises(
            ValueError, match=r"must be a fitted model|is not a saved model"
        ):
            skdp.report(given)
    with pytest.raises(ValueError, match=r"is a ledger, got 'page\.html'"):
        skdp.report(tmp_path, "page.html")
    with pytest.raises(ValueError, match="must be fitted"):
        skdp.report(skdp.PrivateSearchCV(skdp.LogisticRegression(), {}))


def test_without_jinja_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    report_module._load_templates.cache_clear()
    with pytest.raises(ImportError, match=r"pip install 'skdp\[report\]'"):
        skdp.report(model("plain"))


def test_an_evaluation_has_a_page():
    found = skdp.evaluate(
        model("plain"), TABLE, epsilon=2.0, metrics=["accuracy", "calibration"]
    )
    read = Reader(skdp.report(found))
    value = float(read.row("accuracy")[1])
    assert value == pytest.approx(found["accuracy"], rel=1e-3)
    assert "Evaluation of LogisticRegression of " in read.text
    assert "approximate, because released with noise" in read.text
    assert "(2, 1e-09)-differential privacy" in read.text
    assert "The releases add up to ε = 2 at" in read.text
    drawn = read.picture("Observed rate")
    dots = [one for one in drawn if one[0] == "circle"]
    assert len(dots) == len(found.calibration)
    hollow = [one for one in dots if one[1]["fill"] == plots.PAPER]
    assert len(hollow) == sum(one.too_noisy for one in found.calibration)
    seeded = skdp.evaluate(model("plain"), TABLE, epsilon=2.0, random_state=1)
    assert "do not publish this evaluation" in Reader(skdp.report(seeded)).text


@pytest.mark.parametrize("method", ["split", "random"])
def test_a_search_has_a_page_of_what_it_chose(method):
    search = skdp.PrivateSearchCV(
        skdp.LogisticRegression(schema=model("plain").schema_, n_steps=5),
        {"alpha": [1e-4, 1e-1]},
        epsilon=2.0,
        method=method,
    ).fit(TABLE)
    read = Reader(skdp.report(search))
    for line in search.privacy_.assumptions:
        assert line in read.text
    told = "releases of one trial" in read.text
    assert told == (method == "random")
    assert f"({search.privacy_.spent_epsilon:.4g}, 1e-09)-differential" in read.text
