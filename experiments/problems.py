"""Data sets as problems to solve, and how far weights are from the best ones.

The objective f is the mean loss over all rows plus the light ridge that the estimators
have by default; the loss is logistic for classes and squared for numbers. Rows are read
and put on the grid as the estimators do it.
"""

from functools import cache, lru_cache
from typing import Any

import numpy as np
from scipy.sparse import csr_array, diags_array, vstack

from experiments.folders import modules
from skdp.descent.rule import make_penalty
from skdp.engines.reference import ROWS, to_dense
from skdp.models.losses import Logistic, Loss, Squared
from skdp.privacy.encoding import encode
from skdp.privacy.grid import FEATURE_ONE
from skdp.schema import FloatArray
from skdp.solvers import Problem
from skdp.tables import batches


def make_problem(
    table: Any, neighbours: Any = "zero-out", alpha: float | str = "auto"
) -> Problem:
    """Return the problem of a table with `X`, `y`, `schema` and `classification`.

    Parameters
    ----------
    table : Table
        As in ``benchmarks/tables.py``.
    neighbours : {"zero-out", "replace-one"}
        Which tables are neighbours.
    alpha : float or "auto"
        The ridge; by default that of the estimators.
    """
    loss: Loss = Logistic() if table.classification else Squared()
    records = encode(batches(table.X, table.schema, target=table.y), table.schema)
    return Problem(
        records=records,
        loss=loss,
        n_rows=len(table.y),
        penalty=make_penalty(records.layout, loss, alpha, 0.0),
        neighbours=neighbours,
    )


@cache
def problem_of(name: str) -> Problem:
    """Return the problem of a data set, by the name of its file."""
    return make_problem(modules("data")[name].load())


@lru_cache(maxsize=8)
def rows_of(problem: Problem) -> csr_array:
    """Return the encoded rows of a problem in plain floating point."""
    pieces = [
        csr_array(to_dense(chunk, rows, problem.all, problem.layout))
        for chunk in problem.records.chunks
        for rows in _pieces(len(chunk.target))
    ]
    return csr_array(vstack(pieces, format="csr") / FEATURE_ONE)


class Objective:
    """f, its minimum and its minimiser, in plain floating point.

    Parameters
    ----------
    problem : Problem
        With a loss of one output and a ridge.

    Attributes
    ----------
    minimiser : float64 (d, 1)
        Where f is least, by Newton's method.
    minimum : float
        f there: no step makes it smaller by more than 1e-14.
    """

    def __init__(self, problem: Problem) -> None:
        assert problem.loss.n_outputs == 1
        self.problem = problem
        chunks = problem.records.chunks
        self._X = rows_of(problem)
        self._target = np.concatenate([chunk.target for chunk in chunks])
        self.minimiser = self._newton()
        self.minimum = self.value(self.minimiser)

    def value(self, weights: FloatArray) -> float:
        """f(w) of weights (d, 1)."""
        loss = self.problem.loss.value(self._X @ weights, self._target)
        return float(loss.mean()) + self.problem.penalty.value(weights)

    def excess(self, weights: FloatArray) -> float:
        """f(w) - min f."""
        return self.value(weights) - self.minimum

    def hessian(self, weights: FloatArray, step: float = 1.0 / 128) -> FloatArray:
        """Second derivatives (d, d), slopes being differenced over a table's step."""
        margin, loss = self._X @ weights, self.problem.loss
        up, down = (loss.slope(margin + h, self._target) for h in (step, -step))
        bend = ((up - down) / (2 * step))[:, 0] / len(self._target)
        total = (self._X.T @ (diags_array(bend) @ self._X)).toarray()
        return np.asarray(total + np.diag(self._ridge()))

    def gradient(self, weights: FloatArray) -> FloatArray:
        """First derivatives (d, 1)."""
        slope = self.problem.loss.slope(self._X @ weights, self._target)
        ridge = self._ridge()[:, None] * weights
        return np.asarray(self._X.T @ slope / len(self._target) + ridge)

    def _ridge(self) -> FloatArray:
        penalty: Any = self.problem.penalty
        assert penalty.l1 == 0
        on = np.ones(self.problem.layout.n_features)
        return np.asarray(
            penalty.l2 * (on if penalty.penalised is None else on * penalty.penalised)
        )

    def _newton(self) -> FloatArray:
        weights = self.problem.start
        value, least = self.value(weights), 1e-9 * np.eye(len(weights))
        while True:
            bend = self.hessian(weights) + least
            move = np.linalg.solve(bend, self.gradient(weights))
            for length in 0.5 ** np.arange(30):
                there = weights - length * move
                reached = self.value(there)
                if reached < value:
                    break
            gained, weights, value = value - reached, there, reached
            if gained < 1e-14:
                return weights


def _pieces(n_rows: int) -> list[slice]:
    return [slice(start, start + ROWS) for start in range(0, n_rows, ROWS)]


@cache
def objective_of(name: str) -> Objective:
    """Return the objective of a data set, by the name of its file."""
    return Objective(problem_of(name))
