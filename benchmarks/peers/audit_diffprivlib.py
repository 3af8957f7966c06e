"""What is wrong with diffprivlib's claims, shown on tables of two rows.

A fit that claims ε must put any event at most e^ε times as often on one table as on a
table with one row replaced. Counts of an event on two such tables bound ε from below
(Clopper and Pearson, both bounds at once with confidence 99.9 %). Events come
from the formulas and were fixed before the fits that are counted.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable

import numpy as np
from diffprivlib import BudgetAccountant
from diffprivlib.models import LinearRegression, LogisticRegression
from scipy.stats import beta
from sklearn.model_selection import GridSearchCV

warnings.simplefilter("ignore")
FITS = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000


def lower_bound(often: int, seldom: int, n: int) -> float:
    """Smallest ε that the two counts leave possible."""
    low = beta.ppf(0.0005, often, n - often + 1)
    high = beta.ppf(0.9995, seldom + 1, n - seldom)
    return float(math.log(low / high))


def attack(name: str, event: Callable[..., bool], *tables: tuple) -> None:
    """Count an event on two neighbouring tables and print what it proves."""
    counts = [sum(event(*table) for _ in range(FITS)) for table in tables]
    bound = lower_bound(*counts, FITS)
    print(
        f"{name}: claimed 1, at least {bound:.2f} "
        f"({counts[0]} against {counts[1]} of {FITS} fits)"
    )


def logistic(norm: float = 100.0) -> None:
    """Objective perturbation whose curvature term forgets a square of the norm.

    The weight is near 0 as often as the noise falls on a range of width proportional to
    the curvature C⁻¹ + x²/4 there: many times larger for a row x = norm than for x = 0.
    The formula charges for C⁻¹ + norm/4.
    """

    def event(X: np.ndarray, y: np.ndarray) -> bool:
        model = LogisticRegression(
            epsilon=1.0, data_norm=norm, C=1 / norm, fit_intercept=False, tol=1e-10
        )
        return bool(abs(model.fit(X, y).coef_[0, 0]) < 1.5 / norm)

    y = np.array([0, 1])
    far, zero = np.array([[0.0], [norm]]), np.array([[0.0], [0.0]])
    attack(f"LogisticRegression, data_norm {norm:g}", event, (far, y), (zero, y))


def intercept() -> None:
    """An intercept that is not penalised, which the theorem needs.

    All is at the defaults but the tolerance, so that solutions are exact.

    Where the intercept is large, a row x = 0 bends the objective hardly at all. A row
    x = -1 does where the weight makes up for the intercept, and solutions gather there.
    """

    def event(X: np.ndarray, y: np.ndarray) -> bool:
        model = LogisticRegression(epsilon=1.0, data_norm=1.0, tol=1e-10).fit(X, y)
        constant, weight = model.intercept_[0], model.coef_[0, 0]
        return bool(4 < constant < 20 and abs(constant - weight) < 2)

    y = np.array([1, 0])
    far, zero = np.array([[0.0], [-1.0]]), np.array([[0.0], [0.0]])
    attack("LogisticRegression, data_norm 1, intercept", event, (far, y), (zero, y))


def linear() -> None:
    """The squares of a feature in [0, 1] are summed without noise.

    The weight is noise over that sum: large twice as far out if the sum is 1, not 2.
    """

    def event(X: np.ndarray, y: np.ndarray) -> bool:
        model = LinearRegression(
            epsilon=1.0, bounds_X=(0, 1), bounds_y=(0, 1), fit_intercept=False
        )
        return bool(abs(model.fit(X, y).coef_[0]) > 10)

    y = np.zeros(2)
    one, two = np.array([[1.0], [0.0]]), np.array([[1.0], [1.0]])
    attack("LinearRegression, bounds (0, 1)", event, (one, y), (two, y))


def diagonal() -> None:
    """Show the sums of squares that a fit works with beside the exact ones."""
    X, y = np.random.default_rng(0).uniform(size=(100, 3)), np.zeros(100)
    bounds = {"bounds_X": (0, 1), "bounds_y": (0, 1), "fit_intercept": False}
    model = LinearRegression(epsilon=0.01, **bounds).fit(X, y)
    noisy, exact = np.diag(model._obj_coefs[2]), (X**2).sum(0)
    print(f"LinearRegression, ε = 0.01, diagonal of XᵀX used: {noisy.round(6)}")
    print(f"LinearRegression, ε = 0.01, exact diagonal:       {exact.round(6)}")


def search() -> None:
    """Search with an accountant that allows one fit, and ask what it was charged."""
    X, y = np.random.default_rng(0).uniform(size=(60, 2)), np.arange(60) % 2
    accountant = BudgetAccountant(epsilon=1.0, delta=0)
    model = LogisticRegression(epsilon=1.0, data_norm=2.0, accountant=accountant)
    found = GridSearchCV(model, {"C": [0.1, 1.0, 10.0]}, refit=False).fit(X, y)
    fits = len(found.cv_results_["params"]) * found.n_splits_
    spent = accountant.total()[0]
    print(f"GridSearchCV: {fits} fits of ε = 1 each, ceiling 1, charged {spent:g}")


if __name__ == "__main__":
    logistic()
    intercept()
    linear()
    diagonal()
    search()
