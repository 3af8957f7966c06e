"""Compute Table 1 of the paper, both as printed and corrected.

The printed columns use the proof of Theorem 4.2 with the factors in the paper's table,
including its typographical errors. The corrected columns are `convex_tight` and
`strongly_convex_corrected` with the right factors (erratum 9). As in the paper, all
rows use the same M. The bounds hold if Diag(M) ⪰ H.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.theory.rates import (
    convex_printed,
    strongly_convex_corrected,
    strongly_convex_printed,
)
from skdp.descent.bounds import Budget, Prior, Rate, convex_tight

__all__ = ["ProblemConstants", "Row", "compute_table1"]


@dataclass(frozen=True, kw_only=True)
class ProblemConstants:
    """The constants of a problem that the bounds in Table 1 use.

    Parameters
    ----------
    smoothness : array of shape (d,)
        The smoothness constants M of the coordinates.
    blocks : sequence of index arrays
        The partition A_1, …, A_b.
    block_lipschitz : array of shape (b,)
        The Lipschitz constant L of each block.
    coordinate_lipschitz : array of shape (d,)
        The Lipschitz constant L of each coordinate.
    lipschitz : float
        The Lipschitz constant L of the whole gradient.
    block_probabilities : array of shape (b,)
        q, for the row of block sampling with given probabilities.
    coordinate_probabilities : array of shape (d,)
        p, for the row of single coordinates with given probabilities.
    strong_convexity : float
        The modulus μ in the Euclidean norm.
    scaled_strong_convexity : float
        The modulus μ_M in the norm of M. It is at least μ/max(M).
    """

    smoothness: ArrayLike
    blocks: Sequence[ArrayLike]
    block_lipschitz: ArrayLike
    coordinate_lipschitz: ArrayLike
    lipschitz: float
    block_probabilities: ArrayLike
    coordinate_probabilities: ArrayLike
    strong_convexity: float
    scaled_strong_convexity: float

    def __post_init__(self) -> None:
        arrays = (
            ("smoothness", self.n_coordinates),
            ("coordinate_lipschitz", self.n_coordinates),
            ("coordinate_probabilities", self.n_coordinates),
            ("block_lipschitz", len(self.blocks)),
            ("block_probabilities", len(self.blocks)),
        )
        for name, size in arrays:
            array = np.asarray(getattr(self, name), dtype=np.float64)
            if array.shape != (size,) or not (0 < array.min() <= array.max() < np.inf):
                raise ValueError(
                    f"ProblemConstants: {name} must be {size} finite positive numbers, "
                    f"got {getattr(self, name)!r}."
                )
            object.__setattr__(self, name, array)
        found = np.sort(np.concatenate([np.ravel(block) for block in self.blocks]))
        if not np.array_equal(found, np.arange(self.n_coordinates)):
            raise ValueError(
                "ProblemConstants: blocks must be a partition of the coordinates, got "
                f"{self.blocks!r}."
            )

    @property
    def n_coordinates(self) -> int:
        """The number of coordinates d."""
        return int(np.size(self.smoothness))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of Table 1.

    Parameters
    ----------
    name : str
        The method.
    sigma_squared : float
        Σ², as returned by `bounds.sigma_squared`.
    distance_squared : float
        R², as returned by `bounds.distance_squared`, or an upper bound that the row
        uses instead.
    condition : float
        max_i(M_i/p_i)/μ, or d/μ_M in the row of DP-CD.
    convex_printed, convex, strongly_convex_printed, strongly_convex : Rate
        The bounds, as printed and corrected.
    """

    name: str
    sigma_squared: float
    distance_squared: float
    condition: float
    convex_printed: Rate
    convex: Rate
    strongly_convex_printed: Rate
    strongly_convex: Rate


class _Factors(NamedTuple):
    """The factors of a row: Σ², the weights in the norm of R², and max_i(M_i/p_i)/μ.

    `missing_square` marks the row whose printed factor lacks a square (erratum 9).
    """

    name: str
    sigma_squared: float
    weights: NDArray[np.float64]
    condition: float
    missing_square: bool = False


def compute_table1(
    problem: ProblemConstants, prior: Prior, budget: Budget
) -> tuple[Row, ...]:
    """Compute the nine rows of Table 1, from DP-SkGD-BS to DP-SGD and DP-SVRG.

    Parameters
    ----------
    problem : ProblemConstants
        M, L, blocks, probabilities and strong convexity.
    prior : Prior
        Assumptions about w0 - w* and f(w0) - f*.
    budget : Budget
        The budget. The printed columns always use replace-one neighbours and the noise
        of Theorem 4.1. The corrected columns use the neighbours and the calibration of
        the budget.
    """
    blocks = problem.blocks
    factors = (*_block_rows(problem), *_coordinate_rows(problem), *_full_rows(problem))
    return tuple(_make_row(each, blocks, prior, budget) for each in factors)


def _make_row(
    factors: _Factors, blocks: Sequence[ArrayLike], prior: Prior, budget: Budget
) -> Row:
    """Apply Theorem 4.2 with the factors of one row."""
    sigma, condition = factors.sigma_squared, factors.condition
    distance = prior.distance_squared(factors.weights, blocks)
    # Erratum 9: one cell of the table is printed with ‖L‖ instead of ‖L‖².
    printed = math.sqrt(sigma) if factors.missing_square else sigma
    return Row(
        name=factors.name,
        sigma_squared=sigma,
        distance_squared=distance,
        condition=condition,
        convex_printed=convex_printed(
            distance_squared=distance, sigma_squared=sigma, budget=budget
        ),
        convex=convex_tight(
            distance_squared=distance, sigma_squared=sigma, budget=budget
        ),
        strongly_convex_printed=strongly_convex_printed(
            condition=condition,
            sigma_squared=printed,
            excess=prior.excess,
            budget=budget,
        ),
        strongly_convex=strongly_convex_corrected(
            condition=condition,
            sigma_squared=sigma,
            excess=prior.excess,
            budget=budget,
        ),
    )


def _partition_rows(
    problem: ProblemConstants,
    blocks: Sequence[ArrayLike],
    lipschitz: ArrayLike,
    probabilities: ArrayLike,
) -> list[_Factors]:
    """Return the rows for given, uniform and importance probabilities."""
    smoothness, mu = np.asarray(problem.smoothness), problem.strong_convexity
    label = np.empty(problem.n_coordinates, dtype=np.intp)  # B(i), for i in [d]
    for i, block in enumerate(blocks):
        label[np.asarray(block)] = i
    sigma = float(np.sum(np.square(lipschitz)[label] / smoothness))
    ratio = smoothness / np.asarray(probabilities)[label]
    uniform = len(blocks) * smoothness
    total = sum(float(smoothness[np.asarray(block)].max()) for block in blocks)
    importance = np.full(problem.n_coordinates, total)
    return [
        _Factors("DP-SkGD-BS", sigma, ratio, float(ratio.max()) / mu),
        _Factors("uniform", sigma, uniform, float(uniform.max()) / mu),
        _Factors("importance", sigma, importance, total / mu),
    ]


def _block_rows(problem: ProblemConstants) -> list[_Factors]:
    given, uniform, importance = _partition_rows(
        problem, problem.blocks, problem.block_lipschitz, problem.block_probabilities
    )
    return [given, uniform, importance._replace(missing_square=True)]


def _coordinate_rows(problem: ProblemConstants) -> list[_Factors]:
    """Return the rows for blocks of one coordinate (b = d), and the row of DP-CD.

    The row of DP-CD is the uniform row with the modulus μ_M in place of μ.
    """
    d = problem.n_coordinates
    rows = _partition_rows(
        problem,
        [np.array([j]) for j in range(d)],
        problem.coordinate_lipschitz,
        problem.coordinate_probabilities,
    )
    cd = rows[1]._replace(name="DP-CD", condition=d / problem.scaled_strong_convexity)
    return [*(row._replace(name=f"{row.name}, b = d") for row in rows), cd]


def _full_rows(problem: ProblemConstants) -> list[_Factors]:
    """Return the two rows of the table for one block (b = 1).

    The first row is for the metric M, the second for M_max I. Here M_max is the largest
    entry of M. The row with M_max I is the row of DP-SGD. Its
    factors do not depend on M_max. They are L√d·R_I (convex), where R_I is the
    Euclidean distance ‖w0 - w*‖, and L²d/μ (strongly convex).
    """
    smoothness = np.asarray(problem.smoothness)
    isotropic = np.full_like(smoothness, smoothness.max())
    condition = float(smoothness.max()) / problem.strong_convexity
    return [
        _Factors(name, problem.lipschitz**2 * float(np.sum(1 / m)), m, condition)
        for name, m in (
            ("DP-SkGD-BS, b = 1", smoothness),
            ("DP-SGD, DP-SVRG", isotropic),
        )
    ]
