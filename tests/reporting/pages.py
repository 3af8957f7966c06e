"""Small models of every kind, and a reader of their pages."""

import math
from html.parser import HTMLParser
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

import skdp
from bits import made_once

N = 900
RNG = np.random.default_rng(0)
NUMBERS = RNG.uniform(size=(N, 2))
WORDS = np.array(["red", "green", "blue"])[RNG.integers(0, 3, N)]
TABLE = pd.DataFrame(
    {
        "age": 20 + 60 * NUMBERS[:, 0],
        "gain": 100 * NUMBERS[:, 1] ** 3,
        "colour": WORDS,
        "ill": (NUMBERS[:, 0] + 0.3 * RNG.normal(size=N) > 0.5).astype(int),
        "state": np.array(["well", "ill", "worse"])[RNG.integers(0, 3, N)],
        "visits": np.minimum(RNG.poisson(1 + 3 * NUMBERS[:, 0]), 20),
    }
)
COLUMNS = {
    "age": skdp.Numeric(20, 80),
    "gain": skdp.Numeric(0, 100, scale="log"),
    "colour": skdp.Categorical(["red", "green", "blue"]),
}
ILL = skdp.Schema(COLUMNS, target=("ill", skdp.Categorical([0, 1])))
STATE = skdp.Schema(
    COLUMNS, target=("state", skdp.Categorical(["well", "ill", "worse"]))
)
VISITS = skdp.Schema(COLUMNS, target=("visits", skdp.Numeric(0, 20)))
ODD = skdp.Schema(
    {
        "age": skdp.Numeric(20, 80, bins=4, indicator=True),
        "gain": skdp.Numeric(0, 100, indicator=True),
        "colour": skdp.Categorical(["red", "green", "blue"]),
    },
    target=("ill", skdp.Categorical([0, 1])),
)
#: Categories that nobody should have, and some that people do.
HOSTILE = [
    "</script><script>document.title = 'pwned'</script>",
    '"><img src=x onerror="document.title = 1">',
    "{{ 7 * 7 }}",
    "\u202egnp.exe",
    "two\nlines",
    "x" * 300,
    "שלום",
    "&lt;b&gt;",
    r"$\frac{1}{0}$ costs",
]
WIDE = 60


def wide():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, WIDE, 4 * N)
    table = pd.DataFrame(
        {
            "zip": [f"zip {code:02d}" for code in codes],
            "y": (rng.uniform(size=4 * N) < 0.3 + 0.4 * (codes % 2)).astype(int),
        }
    )
    schema = skdp.Schema(
        {"zip": skdp.Categorical([f"zip {code:02d}" for code in range(WIDE)])},
        target=("y", skdp.Categorical([0, 1])),
    )
    return skdp.LogisticRegression(schema=schema).fit(table)


def hostile():
    table = TABLE.assign(**{"<b>age</b> & 'co'": TABLE["age"]})
    table["colour"] = [
        HOSTILE[i] for i in np.random.default_rng(2).integers(0, len(HOSTILE), N)
    ]
    schema = skdp.Schema(
        {
            "<b>age</b> & 'co'": skdp.Numeric(20, 80),
            "colour": skdp.Categorical(HOSTILE),
        },
        target=("ill", skdp.Categorical([0, 1])),
    )
    return skdp.LogisticRegression(schema=schema).fit(table)


def vectors():
    names = [f"e{i}" for i in range(5)]
    table = pd.DataFrame(np.random.default_rng(3).normal(size=(N, 5)), columns=names)
    table["ill"] = (table["e0"] > 0).astype(int)
    schema = skdp.Schema(
        {"text": skdp.Vector(names, norm=2.0)},
        target=("ill", skdp.Categorical([0, 1])),
    )
    return skdp.LogisticRegression(schema=schema).fit(table)


def logistic(schema=ILL, **given):
    return skdp.LogisticRegression(schema=schema, **given).fit(TABLE)


def persons():
    data = skdp.make_hospital(2000, random_state=1, patients=700)
    return skdp.LogisticRegression(schema=data.schema, epsilon=3.0).fit(data.columns)


def many():
    """A model of more classes than have a picture."""
    levels = [f"ward {code}" for code in range(8)]
    schema = skdp.Schema(
        {"age": skdp.Numeric(20, 80), "colour": ILL.columns["colour"]},
        target=("ward", skdp.Categorical(levels)),
    )
    wards = [levels[code] for code in np.random.default_rng(4).integers(0, 8, N)]
    return skdp.LogisticRegression(schema=schema, epsilon=8.0).fit(
        TABLE.assign(ward=wards)
    )


def curves():
    return skdp.AdditiveClassifier(schema=ILL, epsilon=20.0, knots=5).fit(TABLE)


MODELS = {
    "plain": logistic,
    "seeded": lambda: logistic(random_state=1),
    "noiseless": lambda: logistic(epsilon=math.inf),
    "constant": lambda: logistic(epsilon=0.02, neighbours="zero-out"),
    "softmax": lambda: logistic(STATE),
    "diagonal": lambda: logistic(geometry="diagonal"),
    "columns": lambda: logistic(sampling="columns", calibration="paper", epsilon=0.5),
    "replace-one": lambda: logistic(neighbours="replace-one"),
    "given rows": lambda: logistic(n_rows=N),
    "zero-out": lambda: logistic(neighbours="zero-out", class_weight={0: 1, 1: 0.5}),
    "odd": lambda: logistic(ODD),
    "no intercept": lambda: logistic(fit_intercept=False),
    "l1": lambda: logistic(alpha=1e-3, l1_ratio=0.5, n_steps=9),
    "found": lambda: skdp.LogisticRegression(epsilon=8.0).fit(
        TABLE[["age", "gain", "colour"]], TABLE["ill"]
    ),
    "svc": lambda: skdp.LinearSVC(schema=ILL).fit(TABLE),
    "linear": lambda: skdp.LinearRegression(schema=VISITS).fit(TABLE),
    "huber": lambda: skdp.HuberRegressor(schema=VISITS).fit(TABLE),
    "poisson": lambda: skdp.PoissonRegressor(schema=VISITS).fit(TABLE),
    "dp_sgd": lambda: logistic(solver="dp_sgd"),
    "dp_gcd": lambda: logistic(solver="dp_gcd"),
    "output": lambda: logistic(solver="output_perturbation"),
    "vectors": vectors,
    "hostile": hostile,
    "wide": wide,
    "persons": persons,
    "many": many,
    "curves": curves,
}


@made_once
def model(name):
    return MODELS[name]()


@made_once
def page(name):
    """The page of a model that was saved and loaded."""
    with TemporaryDirectory() as folder:
        model(name).save(f"{folder}/model")
        return skdp.report(f"{folder}/model")


class Reader(HTMLParser):
    """The words of a page, its tags with their attributes, and its tables."""

    VOID = ("meta", "link", "br")
    LONE = ("path", "circle")

    def __init__(self, page):
        super().__init__()
        self.words, self.tags, self.open, self.rows = [], [], [], []
        #: Each picture: its label, and its shapes with their attributes and texts.
        self.pictures = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "svg":
            self.pictures.append((dict(attributes)["aria-label"], []))
        elif "svg" in self.open and tag != "title":
            self.pictures[-1][1].append((tag, dict(attributes), ""))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert tag in self.LONE
        self.tags.append((tag, dict(attributes)))
        self.pictures[-1][1].append((tag, dict(attributes), ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        if "text" in self.open:
            tag, attributes, text = self.pictures[-1][1][-1]
            self.pictures[-1][1][-1] = (tag, attributes, text + data)
        self.words.append(data)
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data

    @property
    def text(self):
        return " ".join("".join(self.words).split())

    def row(self, label, n_cells=2):
        """The cells of the row that begins with a label, so many or more of them."""
        found = [r for r in self.rows if r[0].strip() == label and len(r) >= n_cells]
        assert found, label
        return found[0]

    def picture(self, label):
        """The shapes of the first picture whose label has these words."""
        return next(shapes for name, shapes in self.pictures if label in name)
