"""No error, warning or charge depends on records: what one table raises, all raise.

Tables of the same public facts (types, columns, number of rows, parameters) are run
with the same seed. All must say the same: a refusal, word by word, or a release that
was charged the same. Tables are far more unlike each other than neighbours are, which
makes the property stronger, and easier to break.
"""

import math
import warnings

import numpy as np
import pytest

import skdp
from skdp.estimators.fit_warnings import ConstantModelWarning, UnknownLabelsWarning
from skdp.models import losses
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.solvers import SOLVERS, Problem
from skdp.solvers.certified import find_least_ridge

WIDE = 31
NAMES = [f"w{j}" for j in range(WIDE)]
CLASSES = ("logistic", "hinge", "softmax")


#: Enough where each run takes long.
SOME = ("plain", "one record replaced", "constant", "no label", "huge")


def some_tables(n_rows):
    return [(which, table) for which, table in tables(n_rows) if which in SOME]


def tables(n_rows, seed=3):
    """Cells (numbers, codes, vectors), labels in [0, 1] and weights, by name."""
    rng = np.random.default_rng(seed)
    plain = {
        "x": rng.uniform(size=n_rows),
        "bin": rng.uniform(size=n_rows),
        "job": rng.integers(0, 3, n_rows),
        "v": rng.normal(size=(n_rows, WIDE)),
        "y": rng.integers(0, 2, n_rows).astype(float),
        "weight": np.ones(n_rows),
    }

    def changed(**columns):
        return plain | {
            name: np.broadcast_to(value, plain[name].shape).copy()
            for name, value in columns.items()
        }

    yield "plain", plain
    first = {name: column.copy() for name, column in plain.items()}
    first["v"][0], first["y"][0] = 0.0, 1 - first["y"][0]
    yield "one record replaced", first
    yield "constant", changed(x=1.0, bin=1.0, job=0, v=1.0)
    yield "empty", changed(x=0.0, bin=0.0, job=-1, v=0.0)
    yield "one label", changed(y=1.0)
    yield "no label", changed(y=math.nan)
    yield "missing", changed(x=math.nan, bin=math.nan, v=math.nan, weight=math.nan)
    yield "infinite", changed(x=math.inf, bin=-math.inf, v=math.inf, y=math.inf)
    yield "huge", changed(x=1e308, bin=-1e308, v=1e308, y=1e308, weight=1e308)
    yield "tiny", changed(x=5e-324, v=5e-324, y=5e-324, weight=5e-324)
    yield "weightless", changed(weight=0.0)
    yield "negative", changed(x=-1.0, y=-1.0, weight=-1.0)
    one_sided = changed(v=0.0)
    one_sided["v"][:, 0] = 2 * plain["y"] - 1
    yield "separable", one_sided


def schema_of(loss):
    levels = [0, 1, 2] if loss == "softmax" else [0, 1]
    target = skdp.Categorical(levels) if loss in CLASSES else skdp.Numeric(0, 1)
    return skdp.Schema(
        {
            "x": skdp.Numeric(0, 1),
            "bin": skdp.Numeric(0, 1, bins=4, indicator=True),
            "job": skdp.Categorical([0, 1, 2]),
            "v": skdp.Vector(NAMES),
        },
        target=("y", target),
    )


def problem_of(table, loss, neighbours, *, n_rows=None, max_weight=1.0, weighted=False):
    schema = schema_of(loss.kind)
    target = table["y"]
    if loss.kind in CLASSES:
        known = np.isin(target, [0.0, 1.0, 2.0])
        target = Coded(
            np.where(known, np.nan_to_num(target, posinf=0), -1).astype(int), [0, 1, 2]
        )
    batch = Batch(
        columns={
            "x": table["x"],
            "bin": table["bin"],
            "job": Coded(table["job"], [0, 1, 2]),
            "v": table["v"],
        },
        target=target,
        weight=table["weight"] if weighted else None,
    )
    records = encode([batch], schema, max_weight=max_weight)
    return Problem(
        records=records,
        loss=loss,
        n_rows=n_rows or len(table["x"]),
        neighbours=neighbours,
    )


def said(act):
    """Return what a call shows: its error, or its charges and warnings.

    All warnings but that of a constant are errors.
    """
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("error")
        warnings.simplefilter("always", ConstantModelWarning)
        # Computed from released counts, and so as private as they are.
        warnings.simplefilter("ignore", UnknownLabelsWarning)
        try:
            record = act()
        except Exception as error:
            return type(error).__name__, str(error)
    texts = tuple(str(warning.message) for warning in warned)
    return "released", sum(record.events.values()), round(record.spent, 12), texts


def same(acts):
    """Return what all calls show, by name, if it is the same for all tables."""
    found = {name: said(act) for name, act in acts}
    assert len(set(found.values())) == 1, found
    return next(iter(found.values()))[0]


RUNS = {
    "plain": {},
    "light": {"max_weight": 1e-6},
    "heavy": {"max_weight": 1e6, "weighted": True},
    "weighted": {"weighted": True},
    "miscounted": {"n_rows": 1},
}
#: Few steps: what could raise is in all of them.
FEW = {
    "dp_sgd": {"n_steps": 2},
    "dp_svrg": {"n_epochs": 1, "n_inner": 2},
    "dp_cd": {"n_steps": 2},
    "dp_gcd": {"n_steps": 2},
    "dp_sega": {"n_steps": 2},
}


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("name", SOLVERS)
def test_solvers(name, kind):
    """Every loss of every solver, on one relation each; add-remove for a wrong n."""
    given = SOLVERS[name].losses or ("logistic", "softmax", "squared", "poisson")
    for index, loss in enumerate(given if kind == "plain" else given[:2]):
        neighbours = ("replace-one", "zero-out", "add-remove")[index % 3]
        if kind == "miscounted":
            neighbours = "add-remove"

        def act(table, loss=loss, neighbours=neighbours):
            problem = problem_of(table, losses.LOSSES[loss](), neighbours, **RUNS[kind])
            epsilon = 1.0
            share = SOLVERS[name].delta_share
            record = PrivacyRecord(
                epsilon=epsilon,
                delta=1e-6,
                neighbours=neighbours,
                reserved_delta=1e-6 * share,
            )
            own = FEW.get(name, {}) | {"random_state": 1, "record": record}
            return SOLVERS[name].run(problem, epsilon=epsilon, **own).record

        made = tables(40) if kind == "plain" else some_tables(40)
        outcome = same((which, lambda t=table: act(t)) for which, table in made)
        assert outcome == "released"


HINGES = (losses.SmoothedHinge(0.01), losses.Huber(0.001), losses.Poisson(50.0))


@pytest.mark.parametrize("loss", HINGES, ids=lambda loss: loss.kind)
@pytest.mark.parametrize("name", ["output_perturbation", "objective_perturbation"])
@pytest.mark.parametrize("part", [1.0, 0.5, 0.0])
def test_ridges_at_and_below_what_is_allowed(name, loss, part):
    """The least ridge solves every table; a smaller one is refused for all of them."""

    def act(table):
        problem = problem_of(table, loss, "replace-one")
        ridge = part * find_least_ridge(problem)
        options = {"epsilon": 300.0, "delta": 1e-3, "random_state": 1, "ridge": ridge}
        return SOLVERS[name].run(problem, **options).record

    outcome = same((which, lambda t=table: act(t)) for which, table in tables(20))
    assert outcome == ("released" if part == 1 else "InputError")


def columns_of(table):
    """A table as an estimator takes it."""
    wide = {name: table["v"][:, j] for j, name in enumerate(NAMES)}
    return {"x": table["x"], "bin": table["bin"], "job": table["job"]} | wide


MODELS = {
    "logistic": skdp.LogisticRegression,
    "hinge": skdp.LinearSVC,
    "squared": skdp.LinearRegression,
    "huber": skdp.HuberRegressor,
    "poisson": skdp.PoissonRegressor,
}
NEIGHBOURS = ("replace-one", "zero-out", "add-remove")


def model_of(loss, neighbours, **options):
    return MODELS[loss](
        schema=schema_of(loss),
        delta=1e-6,
        neighbours=neighbours,
        random_state=0,
        engine="reference",
        **({"epsilon": 1.0} | options),
    )


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("loss", MODELS)
def test_estimators(loss, neighbours):
    for options in ({}, {"max_weight": 1e-4}, {"epsilon": 1e-3}):

        def act(table, options=options):
            model = model_of(loss, neighbours, n_steps=2, **options)
            weight = table["weight"] if "max_weight" in options else None
            model.fit(columns_of(table), table["y"], sample_weight=weight)
            return model.privacy_

        made = some_tables(12) if options else tables(12)
        outcome = same((which, lambda t=t: act(t)) for which, t in made)
        assert outcome == "released"


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("neighbours", ["zero-out", "add-remove"])
def test_estimators_with_other_solvers(solver, neighbours):
    loss = "squared" if SOLVERS[solver].losses == ("squared",) else "logistic"

    def act(table):
        model = model_of(loss, neighbours, solver=solver, max_weight=0.1)
        return model.fit(columns_of(table), table["y"]).privacy_

    outcome = same((which, lambda t=table: act(t)) for which, table in some_tables(12))
    assert outcome == "released"


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared", "poisson"])
def test_evaluations(loss, neighbours):
    fitted = model_of(loss, "zero-out", n_steps=2)
    _, plain = next(tables(12))
    fitted.fit(columns_of(plain), plain["y"])
    for weighted in (False, True):

        def act(table, weighted=weighted):
            return skdp.evaluate(
                fitted,
                columns_of(table),
                table["y"],
                epsilon=0.5,
                delta=1e-6,
                neighbours=neighbours,
                sample_weight=table["weight"] if weighted else None,
                random_state=0,
            ).privacy_

        outcome = same((which, lambda t=t: act(t)) for which, t in some_tables(12))
        assert outcome == "released"


@pytest.mark.parametrize("method", ["split", "random"])
@pytest.mark.parametrize("neighbours", ["replace-one", "add-remove"])
@pytest.mark.parametrize("solver", ["skgd", "output_perturbation"])
def test_searches(method, neighbours, solver):
    steps = {"n_steps": 2} if solver == "skgd" else {}

    def act(table):
        search = skdp.PrivateSearchCV(
            model_of("logistic", neighbours, solver=solver, **steps),
            {"alpha": [0.01, 1.0]},
            epsilon=2.0,
            delta=1e-6,
            method=method,
            n_trials=None if method == "split" else 2.0,
            random_state=0,
        )
        return search.fit(columns_of(table), table["y"]).privacy_

    outcome = same((which, lambda t=table: act(t)) for which, table in some_tables(60))
    assert outcome == "released"
