"""What notebooks show: scikit-learn's diagram, and the promise that goes with it."""

import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import skdp

rng = np.random.default_rng(0)
N = 400
X = rng.uniform(size=(N, 2))
Y = (X[:, 0] > X[:, 1]).astype(int)
MODEL = skdp.LogisticRegression(bounds=(0, 1), classes=[0, 1], n_steps=5)
ALL = [
    MODEL,
    skdp.LinearSVC(bounds=(0, 1), classes=[0, 1]),
    skdp.LinearRegression(bounds=(0, 1), target_bounds=(0, 1)),
    skdp.HuberRegressor(bounds=(0, 1), target_bounds=(0, 1)),
    skdp.PoissonRegressor(bounds=(0, 1), target_bounds=(0, 1), n_steps=5),
]


class Words(HTMLParser):
    """The text of a page, and the tags that it was made of."""

    def __init__(self):
        super().__init__()
        self.words, self.tags, self.depth = [], [], 0

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)


def read(html):
    words = Words()
    words.feed(html)
    return " ".join(" ".join(words.words).split()), words.tags


@pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)
def test_the_diagram_stays_and_the_promise_is_added(model):
    model = clone(model)
    bundle = model._repr_mimebundle_()
    assert bundle["text/plain"] == repr(model)
    said, _ = read(bundle["text/html"])
    assert type(model).__name__ in said
    assert "A fit will spend ε = 1.0, δ = 1e-09 neighbouring tables: add-rem" in said
    assert "Releasing the number of rows takes a hundredth of the budget." in said
    given, _ = read(clone(model).set_params(n_rows=100)._repr_html_())
    assert "A fit will spend ε = 1.0, δ = min(1e-6, 1/(10 rows))" in given
    assert "is released" not in given
    model.fit(X, Y)
    html = model._repr_mimebundle_()["text/html"]
    assert model._repr_html_().count("<details") == html.count("<details")
    assert "sk-container" in html  # scikit-learn's own
    said, _ = read(html)
    assert "A fit will spend" not in said
    for line in str(model.privacy_).splitlines():
        assert line in said


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epsilon": math.inf}, "no noise and claim no privacy"),
        ({"random_state": 0}, "claim no privacy (random_state is set)"),
        ({"epsilon": 0.3, "delta": 1e-7}, "ε = 0.3, δ = 1e-07"),
        ({"neighbours": "add-remove"}, "neighbouring tables: add-remove"),
        ({"ledger": "/there/budget.db"}, "The budget is first charged to a ledger."),
        ({"bounds": None}, "Inferring ranges"),
        ({"epsilon": "nonsense", "delta": []}, "ε = nonsense"),
    ],
)
def test_what_a_fit_would_promise(change, sentence):
    said, _ = read(clone(MODEL).set_params(**change)._repr_html_())
    assert sentence in said


def test_a_seeded_fit_says_so_first():
    model = clone(MODEL).set_params(random_state=1).fit(X, Y)
    assert "<summary><b>seeded: no privacy claim</b>" in model._repr_html_()


def test_names_of_strangers_are_text():
    bad = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
    schema = skdp.Schema(
        {bad: skdp.Numeric(0, 1), "b": skdp.Categorical([bad, "x"])},
        target=("y", skdp.Categorical([bad, "no"])),
    )
    texts = np.array([bad, "x"])[Y], np.array([bad, "no"])[Y]
    model = skdp.LogisticRegression(schema=schema, neighbours="replace-one")
    model.fit({bad: X[:, 0], "b": texts[0], "y": texts[1]})
    model.privacy_.assumptions = (*model.privacy_.assumptions, bad)
    html = re.sub(r"<style>.*?</style>", "", model._repr_html_(), flags=re.DOTALL)
    said, tags = read(html)
    assert "img" not in tags
    assert bad in said  # shown as it is, as text
    assert "<script>alert" not in html
    model.neighbours = bad
    assert "<img" not in clone(model)._repr_html_()


def test_one_record_changes_nothing_but_what_was_released():
    """Seeded alike, tables apart in one row differ in released numbers alone."""
    shown = []
    for row in ([0.5, 0.5], [math.nan, 1e300]):
        table = X.copy()
        table[3] = row
        model = clone(MODEL).set_params(random_state=1).fit(table, Y)
        html = model._repr_html_()[-3000:]
        shown.append(html[html.rindex("<details") :])
    assert shown[0] == shown[1]


def test_other_displays_and_pipelines_are_scikit_learns():
    model = clone(MODEL)
    with sklearn.config_context(display="text"):
        assert set(model._repr_mimebundle_()) == {"text/plain"}
        assert not hasattr(model, "_repr_html_")
    html = make_pipeline(MinMaxScaler(), model)._repr_html_()
    assert "MinMaxScaler" in html
    assert "LogisticRegression" in html


class Printer:
    def __init__(self):
        self.said = ""

    def text(self, words):
        self.said += words


def test_what_is_printed_well_is_shown_well(tmp_path):
    """IPython's protocol: plans, evaluations, verifications and ledgers."""
    model = clone(MODEL).fit(X, Y)
    model.save(tmp_path / "model")
    for shown in (
        model.plan_,
        skdp.evaluate(model, X, Y, epsilon=1.0),
        skdp.verify(tmp_path / "model"),
        skdp.Ledger(tmp_path / "budget.db", epsilon=1, delta=1e-6),
    ):
        printer = Printer()
        shown._repr_pretty_(printer, False)
        assert printer.said == str(shown)
