"""A small table for every solver, what it should find, and neighbours of it."""

import sys
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from skdp.engines.reference import to_dense
from skdp.models.losses import LOSSES
from skdp.models.penalties import ridge
from skdp.privacy import mechanism
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.schema import Categorical, Numeric, Schema
from skdp.solvers import SOLVERS
from skdp.solvers.problem import Problem

N_ROWS, ALPHA = 600, 0.02
CLASSES = ("logistic", "hinge", "softmax")


def schema_of(loss):
    levels = ["a", "b", "c"] if loss == "softmax" else ["a", "b"]
    target = Categorical(levels) if loss in CLASSES else Numeric(0.0, 1.0)
    columns = {
        "x": Numeric(0, 1),
        "z": Numeric(0, 1),
        "job": Categorical(["a", "b", "c", "d"]),
        "kin": Categorical(["a", "b"]),
    }
    return Schema(columns, target=target)


def rows(loss="logistic", n_rows=N_ROWS):
    """Columns, target and weights of a table that a model can learn from."""
    rng = np.random.default_rng(7)
    columns = {
        "x": rng.uniform(size=n_rows),
        "z": rng.uniform(size=n_rows) ** 2,
        "job": rng.choice(4, size=n_rows, p=[0.6, 0.3, 0.08, 0.02]),
        "kin": rng.choice(2, size=n_rows),
    }
    score = 2 * columns["x"] - 2 * columns["z"] + (columns["job"] == 1)
    score = score - 0.8 + rng.normal(size=n_rows) * 0.5
    target = np.clip(0.5 + score / 6, 0, 1)
    if loss in CLASSES:
        target = (score > 0) + (loss == "softmax") * (score > 0.8)
    return columns, np.asarray(target), np.ones(n_rows)


def problem_of(loss="logistic", neighbours="zero-out", table=None, penalty=None):
    columns, target, weight = rows(loss) if table is None else table
    schema = schema_of(loss)
    levels = ["a", "b", "c", "d"]
    coded = {key: Coded(columns[key], levels) for key in ("job", "kin")}
    batch = Batch(
        columns={"x": columns["x"], "z": columns["z"], **coded},
        target=Coded(target, levels) if loss in CLASSES else target,
        weight=weight,
    )
    records = encode([batch], schema)
    if penalty is None:
        penalty = ridge(ALPHA, records.layout.penalised)
    return Problem(
        records=records,
        loss=LOSSES[loss](),
        n_rows=len(target),
        penalty=penalty,
        neighbours=neighbours,
    )


def loss_of(name):
    """The loss that a solver is tried on."""
    return (SOLVERS[name].losses or ("logistic",))[0]


def features(problem):
    at = np.arange(problem.layout.n_features)
    parts = [
        to_dense(chunk, slice(None), at, problem.layout)
        for chunk in problem.records.chunks
    ]
    return np.vstack(parts) / 2**14


def objective(problem, weights):
    """Mean loss plus penalty, in plain floats."""
    X = features(problem)
    target = np.concatenate([chunk.target for chunk in problem.records.chunks])
    value = problem.loss.value(X @ weights, target).mean()
    return float(value) + problem.penalty.value(weights)


def optimum(problem):
    """Least value of the objective, by a solver of scipy's."""
    shape = problem.start.shape
    found = minimize(
        lambda w: objective(problem, w.reshape(shape)),
        np.zeros(shape).ravel(),
        method="L-BFGS-B",
        options={"ftol": 1e-14, "gtol": 1e-9, "maxiter": 2000, "maxfun": 10**6},
    )
    return float(found.fun)


def neighbouring_tables(loss="logistic"):
    """(table, other table) pairs that differ in the first record, most unlike it."""
    columns, target, weight = rows(loss)
    last = 2 if loss == "softmax" else 1
    extremes = [(0, 0), (1, last), (1, 0), (0, last)]
    for value, label in extremes:
        one = {key: column.copy() for key, column in columns.items()}
        one["x"][0] = one["z"][0] = value
        one["job"][0], one["kin"][0] = 3 * value, value
        labels = target.copy()
        labels[0] = label
        gone = weight.copy()
        gone[0] = 0.0  # a null record: it adds nothing
        yield "zero-out", (one, labels, weight), (one, labels, gone)
        other = {key: column.copy() for key, column in one.items()}
        flipped = labels.copy()
        flipped[0] = last - label
        yield "replace-one", (one, labels, weight), (other, flipped, weight)


@dataclass
class Seen:
    """A sum, its noise multiplier, what was said, and whether it was charged alone."""

    total: object
    noise_multiplier: float
    released: object
    known: bool
    presence: float


def watched(monkeypatch, said=None):
    """List what is released; with `said`, answers are those of an earlier run.

    What is asked next then depends on the same answers, on another table.
    """
    real, seen = mechanism.release, []

    def release(total, noise_multiplier, noise, record, presence=1.0):
        answer = real(total, noise_multiplier, noise, record, presence)
        if said is not None:
            answer = replace(answer, values=said[len(seen)].released.values)
        known = record.budget < np.inf
        seen.append(Seen(total, noise_multiplier, answer, known, presence))
        return answer

    for name, module in list(sys.modules.items()):
        if name.startswith("skdp.") and getattr(module, "release", None) is real:
            monkeypatch.setattr(module, "release", release)
    return seen


def distance(one, other):
    """How far two sums are apart, in units of their noise's shape."""
    difference = (one.value - other.value).astype(float) * one.unit
    return float(np.linalg.norm(difference / one.shape))
