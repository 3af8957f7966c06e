"""Random hostile pairs of neighbouring tables, and what is run on both.

`pair(seed)` draws everything: a schema, a table, one record that differs, an estimator
or a solver, its parameters and the relation. Rows sit in the corners of what a schema
allows, so that sums differ by as much as is claimed, or hold whatever a cell can hold.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from draws import RANGES, WEIGHTS, Draw, tabled
from shuffled import Shuffled
from watch import compare

import skdp
from skdp.descent.samplings import LAWS, Blocks, Nice
from skdp.descent.sketches import Sketched, randomised_hadamard
from skdp.estimators import opening
from skdp.models.losses import LOSSES, Softmax, Squared
from skdp.models.penalties import ElasticNet
from skdp.schema import Categorical, Numeric, Schema
from skdp.solvers import SOLVERS, Problem

NEIGHBOURS = ("replace-one", "zero-out", "add-remove")
#: What is attacked and how often; names with () are called with options of their own.
SUBJECTS = {
    "skgd": 30,
    "preset": 6,
    "sketch": 6,
    "discovery": 6,
    "evaluate": 8,
    "search": 4,
    "persons": 12,
    **dict.fromkeys(SOLVERS, 3),
    **{f"{name}()": 4 for name in SOLVERS},
}
#: Relations of subjects that are not attacked under all of them.
RELATIONS = dict.fromkeys(("discovery", "persons"), NEIGHBOURS[::2])
PRESETS = ("dp_gd", "dp_cd", "dp_skgd", "dp_skgd_importance", "dp_skgd_shuffled")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two tables that are neighbours, and what is run on them.

    `lone` is as in `watch.compare`; `told` says what was drawn.
    """

    seed: int
    subject: str
    neighbours: str
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
            neighbours=self.neighbours,
            seed=self.seed,
            lone=self.lone,
        )


def inferred(table):
    """A frame whose types pandas infers, also from one record's cells.

    The type of the ids is public. One missing id must not turn integers into floats,
    which are refused.
    """
    cells = {name: column.tolist() for name, column in table.items()}
    kept = {
        name: [None if isinstance(cell, complex) else cell for cell in column]
        for name, column in cells.items()
    }
    if "id" in kept:
        kept["id"] = pd.Series(kept["id"], dtype=object)
    try:
        return pd.DataFrame(kept)
    except OverflowError:  # of old versions of pandas, for large integers
        return pd.DataFrame(kept, dtype=object)


def pair(seed, subject=None, neighbours=None):
    """Draw a pair; `subject` and `neighbours` are drawn too unless they are given."""
    draw = Draw(seed)
    shares = np.array(list(SUBJECTS.values())) / sum(SUBJECTS.values())
    drawn = str(draw.rng.choice(list(SUBJECTS), p=shares))
    subject = subject or drawn
    neighbours = neighbours or draw.pick(RELATIONS.get(subject, NEIGHBOURS))
    make = {
        "preset": _preset,
        "sketch": _sketch,
        "discovery": _discovery,
        "evaluate": _evaluate,
        "search": _search,
        "persons": _persons,
    }.get(subject, _solver if subject.endswith("()") else _estimator)
    act, tables, lone, told = make(draw, subject.removesuffix("()"), neighbours)
    return Pair(
        seed=seed,
        subject=subject,
        neighbours=neighbours,
        act=act,
        table=tables[0],
        other=tables[1],
        lone=lone,
        told=told,
    )


def _estimator(draw, solver, neighbours):
    kind, target = draw.kind(SOLVERS[solver].losses if solver != "skgd" else ())
    schema = draw.schema(target)
    slow = solver == "dp_svrg"  # as many steps as rows and budget are worth
    tables, n, lone = draw.neighbouring_tables(
        schema, neighbours, most=5 if slow else 300
    )
    own, weight = draw.estimator(solver, neighbours, schema, kind, n)
    own |= {"epsilon": draw.pick([0.01, 0.1])} if slow else {}
    if draw.chance(0.1):
        tables = [inferred(table) for table in tables]

    def act(table):
        return kind(**own).fit(table, sample_weight=weight)

    return act, tables, lone, f"{kind.__name__}(**{own}), weights {weight}"


class Given(NamedTuple):
    """Tables of a problem, and a function that makes a problem of a table."""

    problem: Callable[[Any], Problem]
    tables: list[Any]
    n_rows: int
    lone: tuple[int, int] | None
    told: str


def _problem(draw, neighbours, losses=()):
    """A loss, a schema for it, tables, and a function that makes a problem of one."""
    loss = draw.pick([kind() for kind in LOSSES.values() if kind().n_outputs == 1])
    if losses == ("squared",):
        loss = Squared(draw.pick([1.0, 0.2]))
    elif not losses and draw.chance(0.2):
        loss = Softmax(3)
    target = Numeric(0.0, 1.0)
    if loss.n_classes:
        target = Categorical(list(range(loss.n_classes)))
    schema = draw.schema(target)
    tables, n, lone = draw.neighbouring_tables(schema, neighbours)
    own, weight = draw.weighing(schema)
    intercept, l2 = draw.chance(0.8), draw.pick([0.0, 0.0, 1e-3, 1.0])
    n_rows = draw.pick([n, n + 3, 1]) if neighbours == "add-remove" else n

    def problem(table):
        records = opening.read_records(
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
            neighbours=neighbours,
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
            "calibration": draw.pick(["exact", "paper"]),
            "clip": draw.pick([None, 1e-3, 0.4]),
            "n_steps": draw.pick([1, 3]),
            "n_restarts": draw.pick([1, 2]),
        },
        "dp_gcd": lambda: {
            "selection": draw.pick(["gaussian", "exponential", "exponential"]),
            "smoothness": draw.pick(["private", "public"]),
            "n_steps": draw.pick([1, 3]),
        },
        "dp_sega": lambda: {
            "damping": draw.pick([None, 1.0, 0.1, 0.0]),
            "decay": draw.pick([0.0, 0.2]),
            "n_steps": draw.pick([1, 4]),
        },
        "output_perturbation": lambda: {"ridge": draw.pick(ridges)},
        "objective_perturbation": lambda: {
            "ridge": draw.pick([None, None, 1.0]),
            "calibration": draw.pick(["exact", "exact", "paper"]),
        },
        "adassp": lambda: {"calibration": draw.pick(["exact", "paper"])},
    }
    return options[name]()


def _solver(draw, name, neighbours):
    losses = SOLVERS[name].losses
    own = _own(draw, name)
    if own.get("selection") == "exponential":
        losses = ("one output",)
        own["calibration"] = draw.pick(["exact", "exact", "paper"])
    given = _problem(draw, neighbours, losses)
    budget = draw.budget()

    def act(table):
        steps = []
        solved = SOLVERS[name].run(
            given.problem(table), **budget, **own, callback=steps.append
        )
        return [solved, steps]

    told = f"{name}({budget | own}) on {given.told}"
    return act, given.tables, given.lone, told


def _preset(draw, _, neighbours):
    given = _problem(draw, neighbours)
    name, own = draw.pick(PRESETS), {"n_steps": draw.pick([1, 4])} | draw.budget()
    own |= {"neighbours": neighbours, "n_rows": given.n_rows}

    def act(table):
        problem, steps = given.problem(table), []
        plan = skdp.preset(name, problem.layout, problem.loss, **own)
        return [skdp.run(plan, problem.records, callback=steps.append), steps]

    return act, given.tables, given.lone, f"preset({name}, {own}) on {given.told}"


def _sketch(draw, _, neighbours):
    given, budget = _problem(draw, neighbours), draw.budget()
    n_steps, law = draw.pick([1, 4, 9]), draw.pick(LAWS)
    own = {"law": law, "weighted": draw.chance(0.5), "explore": draw.pick([0.1, 1.0])}
    own["cap"] = draw.pick([1e-3, 0.3, 1.0, math.inf])
    if draw.chance(0.5):
        own |= {"gram_share": 0.3, "floor": draw.pick([1e-6, 0.1])}
    kind = draw.pick(["columns", "rotation", "normal", "eigenvectors"])
    kind = kind if own.get("gram_share") or kind != "eigenvectors" else "rotation"
    seed, n_sets = int(draw.rng.integers(99)), draw.pick([1, 2, 5])

    def make_plan(problem):
        d = problem.layout.n_features
        directions = {
            "columns": np.eye(d),
            "rotation": randomised_hadamard(d, seed),
            "normal": np.random.default_rng(seed).normal(size=(d + 2, d)),
            "eigenvectors": None,
        }[kind]
        rows = d if directions is None else len(directions)
        blocks = np.array_split(np.arange(rows), min(n_sets, rows))
        sampling = (
            Nice(rows, 1 + rows // 3) if law == "fixed" else Blocks.uniform(blocks)
        )
        return skdp.Plan(
            layout=problem.layout,
            loss=problem.loss,
            n_rows=given.n_rows,
            epsilon=budget["epsilon"],
            delta=budget["delta"] or 1e-6,
            sampling=sampling,
            geometry=Sketched(directions=directions, **own),
            n_steps=n_steps,
            penalty=problem.penalty,
            neighbours=neighbours,
        )

    def act(table):
        problem, steps = given.problem(table), []
        fit = skdp.run(make_plan(problem), problem.records, callback=steps.append)
        return [fit, steps]

    told = f"{kind}, {own}, {n_sets} sets, {n_steps} steps, {budget} on {given.told}"
    return act, given.tables, given.lone, told


def _discovery(draw, _, neighbours):
    kind, target = draw.kind()
    columns = {}
    for i in range(draw.pick([1, 2, 3])):
        name = f"c{i}"
        text = draw.chance(0.4)
        columns[name] = Categorical(["a", "b"]) if text else Numeric(*draw.pick(RANGES))
    schema = Schema(columns, target=("y", target))
    tables, n, lone = draw.neighbouring_tables(schema, neighbours, least=2)
    classifier = isinstance(target, Categorical)
    own = {"epsilon": draw.pick([1.0, 8.0, 50.0, 200.0]), "neighbours": neighbours}
    own |= {"n_steps": 2, "engine": "reference", "fit_intercept": draw.chance(0.8)}
    if neighbours == "add-remove":
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

    alone = draw.chance(0.3)

    def act(table):
        if alone:
            given = {"epsilon": own["epsilon"], "neighbours": neighbours}
            return skdp.discover(table["X"], **given)
        return kind(**own).fit(table["X"], table["y"])

    what = "discover" if alone else kind.__name__
    return act, found, lone, f"{what}(**{own}), as if {schema}"


def _numbers(cells):
    return np.array([x if isinstance(x, float) else math.nan for x in cells])


def _evaluate(draw, _, neighbours):
    kind, target = draw.kind()
    schema = draw.schema(target)
    tables, n, lone = draw.neighbouring_tables(schema, neighbours)
    model = kind(
        schema=schema, fit_intercept=draw.chance(0.8), epsilon=math.inf, n_steps=1
    ).set_params(engine="reference")
    model.fit(tabled(schema, [draw.row(schema, "usual", False)] * 3, False))
    size = draw.pick([0.0, 1.0, 30.0, 1e3])
    weights = size * draw.rng.normal(size=model.weights_.shape)
    with np.errstate(all="ignore"):  # of narrow ranges
        model._set_fitted(weights, schema, named=True)
    own, weight = draw.budget(), draw.maybe(0.4, ["w"])
    own |= {"neighbours": neighbours, "max_weight": draw.pick(WEIGHTS)}
    own["sample_weight"] = weight
    if neighbours == "add-remove":
        own["n_rows"] = draw.pick([None, n, n + 3])
    if isinstance(target, Categorical):
        own["max_loss"] = draw.pick([5.0, 0.1, 16.0])

    def act(table):
        return skdp.evaluate(model, table, **own)

    return act, tables, lone, f"evaluate({kind.__name__}, **{own}), {schema}"


def _search(draw, _, neighbours):
    kind, target = draw.kind()
    schema = draw.schema(target)
    tables, n, lone = draw.neighbouring_tables(schema, neighbours, least=8, most=60)
    own, weight = draw.estimator("skgd", neighbours, schema, kind, n)
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


def _persons(draw, _, neighbours):
    """Tables that differ in one person, with any number of rows."""
    kind, target = draw.kind()
    schema = replace(draw.schema(target), unit="id")
    tables, n = draw.tables_of_persons(schema, neighbours)
    if draw.chance(0.3):
        tables = [inferred(table) for table in tables]
    own, weight = draw.estimator("skgd", neighbours, schema, kind, n)
    own["engine"] = draw.pick(["reference", "compiled"])
    if neighbours == "add-remove" and draw.chance(0.3):
        own["max_rows_per_unit"] = draw.pick([1, 3, 1000])
    what = draw.pick(["fit", "fit", "fit", "evaluate", "discover"])
    if what == "evaluate":
        model = kind(schema=schema, epsilon=math.inf, n_steps=2, engine="reference")
        model.fit(tables[0])

    unordered = isinstance(tables[0], dict) and draw.chance(0.3)

    def act(table):
        table = Shuffled(table) if unordered else table
        if what == "discover":
            given = {"epsilon": own["epsilon"], "neighbours": neighbours}
            return skdp.discover(table, target="y", unit="id", **given)
        if what == "evaluate":
            given = {name: own[name] for name in ("epsilon", "delta", "max_weight")}
            given |= {"neighbours": neighbours, "sample_weight": weight}
            return skdp.evaluate(model, table, **given)
        return kind(**own).fit(table, sample_weight=weight)

    told = f"{what} {kind.__name__}(**{own}), weights {weight}, {unordered=}"
    return act, tables, None, told
