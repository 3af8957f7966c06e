"""Random hostile pairs of neighbouring tables, and what is run on both.

`pair(seed)` draws everything: a schema, a table, one record that differs, an estimator
or a solver, its parameters and the relation. Rows sit in the corners of what a schema
allows, so that sums differ by as much as is claimed, or hold whatever a cell can hold.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from watch import NULL, compare

import skdp
from skdp.estimators import reading
from skdp.losses import LOSSES, Softmax, Squared
from skdp.penalties import ElasticNet
from skdp.schema import Categorical, Numeric, Schema, Vector
from skdp.solvers import SOLVERS, Problem

RELATIONS = ("replace-one", "zero-out", "add-remove")
#: What is attacked and how often; names with () are called with options of their own.
SUBJECTS = {
    "skgd": 30,
    "preset": 6,
    "discovery": 6,
    "evaluate": 8,
    "search": 4,
    **dict.fromkeys(SOLVERS, 3),
    **{f"{name}()": 4 for name in SOLVERS},
}
RANGES = [
    *((0.0, 1.0), (0.0, 1.0), (-5.0, 5.0), (0.0, 1e5), (-1.0, 0.0)),
    *((0.0, 1e-300), (1e6, 1e6 + 1e-9), (-8e307, 8e307), (5e-324, 1e-323)),
]
NORMS = (1.0, 1.0, 1e-3, 30.0, 1e300, 1e-300)
FLOATS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, -0.0, 2.0**70]
CELLS = [None, True, "", "x", "nan", "1e999", 10**400, b"\xff", (1, 2), 1j, "é\n"]
EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
WEIGHTS = (1.0, 1.0, 1.0, 1.0, 0.5, 0.1, 1e-4, 1e-6, 3.0, 17.3, 1e3)
ROWS = (1, 2, 3, 5, 8, 13, 30, 30, 60, 150, 300)
SAMPLINGS = ("auto", "full", "coordinates", "columns", "importance", "shuffled")
PRESETS = ("dp_gd", "dp_cd", "dp_skgd", "dp_skgd_importance", "dp_skgd_shuffled")
CERTIFIED = ("output_perturbation", "objective_perturbation")
CLASSIFIERS = (skdp.LogisticRegression, skdp.LogisticRegression, skdp.LinearSVC)
REGRESSORS = (skdp.LinearRegression, skdp.HuberRegressor, skdp.PoissonRegressor)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two tables that are neighbours, and what is run on them.

    `lone` is as in `watch.compare`; `told` says what was drawn.
    """

    seed: int
    subject: str
    relation: str
    act: Callable[[Any], Any]
    table: dict[str, Any]
    other: dict[str, Any]
    lone: tuple[int, int] | None
    told: str

    def compare(self):
        """Run it."""
        return compare(
            self.act,
            self.table,
            self.other,
            relation=self.relation,
            seed=self.seed,
            lone=self.lone,
        )


class Draw:
    """Random choices of one pair."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]

    def chance(self, share):
        return bool(self.rng.random() < share)

    def maybe(self, share, options):
        """One of some options, or None."""
        return self.pick(options) if self.chance(share) else None

    # ---- schemas

    def column(self, name):
        kind = self.pick(
            ["linear"] * 3
            + ["log", "bins", "indicator", "binned", "missing", "category", "category"]
            + ["vector", "vector"]
        )
        if kind == "category":
            levels = self.pick(
                [["a", "b", "c"], [1, 2, 3.5, "x"], [True, False], ["a"]]
            )
            return Categorical(levels, other=self.maybe(0.3, levels))
        if kind == "vector":
            width = self.pick([1, 2, 3, 5, 5, 31, 260 if self.chance(0.02) else 4])
            names = [f"{name}{j}" for j in range(width)]
            return Vector(names, norm=self.pick(NORMS))
        low, high = self.pick(RANGES)
        options: dict[str, Any] = {
            "log": {"scale": "log"},
            "bins": {"bins": self.pick([2, 3, 7])},
            "indicator": {"indicator": True},
            "binned": {"bins": 3, "indicator": True, "scale": "log"},
            "missing": {"missing": self.pick([low, high])},
        }.get(kind, {})
        return Numeric(low, high, **options)

    def schema(self, target, simple=False):
        n = self.pick([1, 1, 2, 3, 3, 5])
        columns = {f"c{i}": self.column(f"c{i}") for i in range(n)}
        if simple:
            columns = {f"c{i}": Numeric(*self.pick(RANGES)) for i in range(n)}
        codes = sum(g.kind == "code" for g in Schema(columns).layout(False).groups)
        norm = self.maybe(0.2, [0.3, 1.0, 2.0])
        norm = None if norm is None else math.sqrt(codes + norm**2)
        return Schema(columns, target=("y", target), row_norm=norm)

    def classes(self, most):
        levels: Any = self.pick(
            [["no", "yes"], [0, 1], [0, 1], [False, True]]
            if most == 2 or self.chance(0.7)
            else [["a", "b", "c"], [1, 2, 3, 4]]
        )
        return Categorical(levels, other=self.maybe(0.15, levels))

    # ---- cells

    def number(self, column, style, plain):
        low, high = column.low, column.high
        if style == "corner":
            return float(self.pick([low, high, high]))
        if style == "odd":
            return self.pick(FLOATS if plain or self.chance(0.5) else CELLS)
        return float(low + self.rng.random() * (high - low))

    def category(self, column, style):
        unknown = ["zzz", None, np.nan, "", 7, (1,), b"a"]
        if style == "odd":
            return self.pick(unknown)
        return self.pick(column.levels)

    def vector(self, column, style, plain):
        m, norm = len(column.names), column.norm
        if style == "odd":
            odd = FLOATS if plain else [*FLOATS, *CELLS]
            return [self.pick(odd) for _ in range(m)]
        if style == "corner":
            cells = self.rng.choice([-1.0, 1.0], m)
            if self.chance(0.5):
                cells *= np.arange(m) == self.rng.integers(m)
            return (cells * norm * self.pick([1.0, 1.0, 1e3])).tolist()
        return (self.rng.normal(size=m) * norm / math.sqrt(m)).tolist()

    def row(self, schema, style, plain):
        found = {}
        for key, column in schema.columns.items():
            own = style if style != "mixed" else self.pick(["corner", "odd", "usual"])
            if isinstance(column, Categorical):
                found[key] = self.category(column, own)
            elif isinstance(column, Vector):
                cells = self.vector(column, own, plain)
                found |= dict(zip(column.names, cells, strict=True))
            else:
                found[key] = self.number(column, own, plain)
        target, own = schema.target_column, style if style != "mixed" else "odd"
        if isinstance(target, Categorical):
            known = own != "odd" or self.chance(0.5)
            found["y"] = self.category(target, "usual" if known else "odd")
        else:
            found["y"] = self.number(target, own, plain)
        found["w"] = {
            "usual": lambda: float(self.rng.random()),
            "corner": lambda: 1e308,
        }.get(own, lambda: self.pick([*FLOATS, 0.0, -1.0]))()
        return found

    def opposed(self, schema, row):
        """The same features with the target at the other end."""
        target = schema.target_column
        if isinstance(target, Categorical):
            others = [level for level in target.levels if level != row["y"]]
            return row | {"y": self.pick(others or target.levels)}
        middle = target.low + (target.high - target.low) / 2
        number = row["y"] if isinstance(row["y"], float) else math.nan
        return row | {"y": target.low if number > middle else target.high}

    def rows(self, schema, n, plain):
        style = self.pick(["usual", "usual", "corner", "mixed", "constant"])
        if style == "constant":
            return [self.row(schema, "corner", plain)] * n
        return [self.row(schema, style, plain) for _ in range(n)]

    def neighbours(self, schema, relation, least=1, most=300):
        """Rows of two tables, and `lone`."""
        n = self.pick([n for n in ROWS if least <= n <= most])
        plain = self.chance(0.3)
        rows = self.rows(schema, n, plain)
        at = int(self.rng.integers(n))
        own = self.row(schema, self.pick(["corner", "corner", "mixed"]), plain)
        rows[at] = own
        if relation == "add-remove":
            pair, lone = [rows, rows[:at] + rows[at + 1 :]], (at, n)
        else:
            other = self.pick([self.opposed(schema, own), *self.rows(schema, 1, plain)])
            other = own | {"y": NULL} if relation == "zero-out" else other
            pair, lone = [rows, [*rows[:at], other, *rows[at + 1 :]]], None
        if self.chance(0.5):
            pair.reverse()
        return [tabled(schema, some, plain) for some in pair], n, lone

    # ---- parameters

    def budget(self):
        return {
            "epsilon": self.pick(EPSILONS),
            "delta": self.pick([None, None, 1e-5, 5e-4]),
        }

    def penalty(self, ridge):
        alpha = self.pick(["auto", "auto", 0.0, 1e-3, 0.1, 10.0])
        return {"alpha": alpha, "l1_ratio": 0.0 if ridge else self.pick([0.0, 0.5, 1])}

    def weighing(self, schema):
        """Whether rows have weights, and what they and classes count for."""
        found = {"max_weight": self.pick(WEIGHTS)}
        if isinstance(schema.target_column, Categorical) and self.chance(0.2):
            level = schema.target_column.levels[0]
            found["class_weight"] = {level: self.pick([0.0, 0.5, 7.0, 1e9])}
        return found, self.maybe(0.4, ["w"])

    def kind(self, losses=()):
        """An estimator and a target for it."""
        if losses == ("squared",):
            kind = skdp.LinearRegression
        else:
            kind = self.pick(CLASSIFIERS + REGRESSORS)
        if kind in REGRESSORS:
            low, high = self.pick(RANGES[:4])
            counts = kind is skdp.PoissonRegressor
            return kind, Numeric(0.0 if counts else low, max(high, 1.0))
        several = kind is skdp.LogisticRegression and not losses
        return kind, self.classes(4 if several else 2)

    def estimator(self, solver, relation, schema, kind, n):
        """Parameters of an estimator, and the column of weights."""
        own, weight = self.weighing(schema)
        own |= self.budget() | {"neighbours": relation, "schema": schema}
        own |= self.penalty(solver in ("adassp", *CERTIFIED))
        own["fit_intercept"] = self.chance(0.8)
        own["engine"] = self.pick(["reference"] * 4 + ["compiled"])
        if kind in REGRESSORS:
            own["slope_bound"] = self.pick(["auto", "auto", 0.01, 0.3, 2.0])
        if relation == "add-remove":
            own["n_rows"] = self.pick([None, n, n + 3, 1])
        if solver == "skgd":
            own["geometry"] = self.pick(["auto", "auto", "matrix", "diagonal"])
            if own["geometry"] != "matrix":
                own["sampling"] = self.pick(SAMPLINGS)
            own["calibration"] = self.pick(["exact", "exact", "exact", "paper"])
            own["n_steps"] = self.pick([1, 2, 3, 5])
            own["verbose"] = int(self.chance(0.02))
        elif solver in ("dp_sgd", "dp_cd", "dp_gcd"):
            own["n_steps"] = self.pick([1, 2, 3])
        if solver != "skgd":
            own["solver"] = solver
        return own, weight


def tabled(schema, rows, plain):
    """Rows as columns: of floats where cells are nothing else, of objects if not."""
    names = [*schema.inputs, "y", "w"]
    numeric = {"w"}
    for key, column in schema.columns.items():
        if not isinstance(column, Categorical):
            numeric |= set(column.names if isinstance(column, Vector) else [key])
    typed = numeric if plain else set()
    return {
        name: np.fromiter(
            (row[name] for row in rows),
            dtype=float if name in typed else object,
            count=len(rows),
        )
        for name in names
    }


def inferred(table):
    """A frame whose types pandas infers, from one record's cells too."""
    cells = {name: column.tolist() for name, column in table.items()}
    kept = {
        name: [None if isinstance(cell, complex) else cell for cell in column]
        for name, column in cells.items()
    }
    return pd.DataFrame(kept)


def pair(seed, subject=None, relation=None):
    """Draw a pair; `subject` and `relation` are drawn too unless they are given."""
    draw = Draw(seed)
    shares = np.array(list(SUBJECTS.values())) / sum(SUBJECTS.values())
    drawn = str(draw.rng.choice(list(SUBJECTS), p=shares))
    subject = subject or drawn
    relations = RELATIONS[::2] if subject == "discovery" else RELATIONS
    relation = relation or draw.pick(relations)
    make = {
        "preset": _preset,
        "discovery": _discovery,
        "evaluate": _evaluate,
        "search": _search,
    }.get(subject, _solver if subject.endswith("()") else _estimator)
    act, tables, lone, told = make(draw, subject.removesuffix("()"), relation)
    return Pair(
        seed=seed,
        subject=subject,
        relation=relation,
        act=act,
        table=tables[0],
        other=tables[1],
        lone=lone,
        told=told,
    )


def _estimator(draw, solver, relation):
    kind, target = draw.kind(SOLVERS[solver].losses if solver != "skgd" else ())
    schema = draw.schema(target)
    slow = solver == "dp_svrg"  # as many steps as rows and budget are worth
    tables, n, lone = draw.neighbours(schema, relation, most=5 if slow else 300)
    own, weight = draw.estimator(solver, relation, schema, kind, n)
    own |= {"epsilon": draw.pick([0.01, 0.1])} if slow else {}
    if draw.chance(0.1):
        tables = [inferred(table) for table in tables]

    def act(table):
        return kind(**own).fit(table, sample_weight=weight)

    return act, tables, lone, f"{kind.__name__}(**{own}), weights {weight}"


class Given(NamedTuple):
    """Tables of a problem, and what makes one of a table."""

    problem: Callable[[Any], Problem]
    tables: list[Any]
    n_rows: int
    lone: tuple[int, int] | None
    told: str


def _problem(draw, relation, losses=()):
    """A loss, a schema for it, tables, and what makes a problem of one."""
    loss = draw.pick([kind() for kind in LOSSES.values() if kind().n_outputs == 1])
    if losses == ("squared",):
        loss = Squared(draw.pick([1.0, 0.2]))
    elif not losses and draw.chance(0.2):
        loss = Softmax(3)
    target = Numeric(0.0, 1.0)
    if loss.n_classes:
        target = Categorical(list(range(loss.n_classes)))
    schema = draw.schema(target)
    tables, n, lone = draw.neighbours(schema, relation)
    own, weight = draw.weighing(schema)
    intercept, l2 = draw.chance(0.8), draw.pick([0.0, 0.0, 1e-3, 1.0])
    n_rows = draw.pick([n, n + 3, 1]) if relation == "add-remove" else n

    def problem(table):
        records = reading.read_records(
            table,
            schema,
            target=None,
            sample_weight=weight,
            class_weight=own.get("class_weight"),
            intercept=intercept,
            max_weight=own["max_weight"],
            verbose=0,
        )
        return Problem(
            records=records,
            loss=loss,
            n_rows=n_rows,
            penalty=ElasticNet(l1=0.0, l2=l2, penalised=records.layout.penalised),
            relation=relation,
        )

    told = f"{loss}, {schema}, {own}, weights {weight}, intercept {intercept}, l2 {l2}"
    return Given(problem, tables, n_rows, lone, told)


def _own(draw, name):
    """Options of a solver that an estimator leaves at their defaults."""
    ridges = [None, None, 1e-8, 1e-4, 1.0]
    rate = draw.pick([None, 1.0, 0.3, 0.05])
    options: dict[str, Callable[[], dict[str, Any]]] = {
        "dp_sgd": lambda: {
            "form": draw.pick(["practised", "analysed"]),
            "n_steps": draw.pick([1, 3]),
            "rate": rate,
            "clip": draw.pick([None, 1e-3, 0.4, 1e3]),
        },
        "dp_svrg": lambda: {
            "n_epochs": draw.pick([1, 2]),
            "n_inner": draw.pick([1, 3]),
            "rate": rate,
        },
        "dp_cd": lambda: {
            "smoothness": draw.pick(["private", "public"]),
            "calibration": draw.pick(["tight", "printed"]),
            "clip": draw.pick([None, 1e-3, 0.4]),
            "n_steps": draw.pick([1, 3]),
            "n_restarts": draw.pick([1, 2]),
        },
        "dp_gcd": lambda: {
            "selection": draw.pick(["gaussian", "exponential", "exponential"]),
            "smoothness": draw.pick(["private", "public"]),
            "n_steps": draw.pick([1, 3]),
        },
        "output_perturbation": lambda: {"ridge": draw.pick(ridges)},
        "objective_perturbation": lambda: {
            "ridge": draw.pick([None, None, 1.0]),
            "calibration": draw.pick(["tight", "tight", "printed"]),
        },
        "adassp": lambda: {"calibration": draw.pick(["exact", "printed"])},
    }
    return options[name]()


def _solver(draw, name, relation):
    losses = SOLVERS[name].losses
    own = _own(draw, name)
    if own.get("selection") == "exponential":
        losses = ("one output",)
        own["calibration"] = draw.pick(["exact", "exact", "printed"])
    given = _problem(draw, relation, losses)
    budget = draw.budget()

    def act(table):
        steps = []
        solved = SOLVERS[name].run(
            given.problem(table), **budget, **own, callback=steps.append
        )
        return [solved, steps]

    told = f"{name}({budget | own}) on {given.told}"
    return act, given.tables, given.lone, told


def _preset(draw, _, relation):
    given = _problem(draw, relation)
    name, own = draw.pick(PRESETS), {"n_steps": draw.pick([1, 4])} | draw.budget()
    own |= {"relation": relation, "n_rows": given.n_rows}

    def act(table):
        problem, steps = given.problem(table), []
        plan = skdp.preset(name, problem.layout, problem.loss, **own)
        return [skdp.run(plan, problem.records, callback=steps.append), steps]

    return act, given.tables, given.lone, f"preset({name}, {own}) on {given.told}"


def _discovery(draw, _, relation):
    kind, target = draw.kind()
    columns = {}
    for i in range(draw.pick([1, 2, 3])):
        name = f"c{i}"
        text = draw.chance(0.4)
        columns[name] = Categorical(["a", "b"]) if text else Numeric(*draw.pick(RANGES))
    schema = Schema(columns, target=("y", target))
    tables, n, lone = draw.neighbours(schema, relation, least=2)
    classifier = isinstance(target, Categorical)
    own = {"epsilon": draw.pick([1.0, 8.0, 50.0, 200.0]), "neighbours": relation}
    own |= {"n_steps": 2, "engine": "reference", "fit_intercept": draw.chance(0.8)}
    if relation == "add-remove":
        own["n_rows"] = draw.pick([None, n])
    if draw.chance(0.5):
        own |= (
            {"classes": list(target.levels)}
            if classifier
            else {"target_bounds": (target.low, target.high)}
        )
    found = []
    for table in tables:
        # Types are public: numbers are numbers, whatever one record holds.
        typed = {
            name: table[name] if isinstance(c, Categorical) else _numbers(table[name])
            for name, c in columns.items()
        }
        found.append({"X": typed, "y": table["y"]})

    def act(table):
        return kind(**own).fit(table["X"], table["y"])

    return act, found, lone, f"{kind.__name__}(**{own}), as if {schema}"


def _numbers(cells):
    return np.array([x if isinstance(x, float) else math.nan for x in cells])


def _evaluate(draw, _, relation):
    kind, target = draw.kind()
    schema = draw.schema(target)
    tables, n, lone = draw.neighbours(schema, relation)
    model = kind(
        schema=schema, fit_intercept=draw.chance(0.8), epsilon=math.inf, n_steps=1
    ).set_params(engine="reference")
    model.fit(tabled(schema, [draw.row(schema, "usual", False)] * 3, False))
    size = draw.pick([0.0, 1.0, 30.0, 1e3])
    weights = size * draw.rng.normal(size=model.weights_.shape)
    with np.errstate(all="ignore"):  # of narrow ranges
        model._set_fitted(weights, schema, named=True)
    own, weight = draw.budget(), draw.maybe(0.4, ["w"])
    own |= {"neighbours": relation, "max_weight": draw.pick(WEIGHTS)}
    own["sample_weight"] = weight
    if relation == "add-remove":
        own["n_rows"] = draw.pick([None, n, n + 3])
    if isinstance(target, Categorical):
        own["max_loss"] = draw.pick([5.0, 0.1, 16.0])

    def act(table):
        return skdp.evaluate(model, table, **own)

    return act, tables, lone, f"evaluate({kind.__name__}, **{own}), {schema}"


def _search(draw, _, relation):
    kind, target = draw.kind()
    schema = draw.schema(target)
    tables, n, lone = draw.neighbours(schema, relation, least=8, most=60)
    own, weight = draw.estimator("skgd", relation, schema, kind, n)
    own |= {"n_steps": 1, "verbose": 0}
    budget = {"epsilon": own.pop("epsilon"), "delta": own.pop("delta")}
    asked = budget | {"method": draw.pick(["auto", "split", "random"])}
    if asked["method"] == "random":
        asked["n_trials"] = draw.pick([1.0, 1.5])
    grid = {"alpha": [0.0, 1.0]}
    own.pop("alpha")

    def act(table):
        search = skdp.PrivateSearchCV(kind(**own), grid, **asked)
        return search.fit(table, sample_weight=weight)

    return act, tables, lone, f"search({kind.__name__}(**{own}), {asked})"
