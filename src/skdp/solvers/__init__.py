"""Other algorithms, all with the same interface, one file each: `skdp.solvers.<name>`.

Each solver takes a `Problem`, a budget and parameters of its own, and returns a
`Solved`. The defaults of the parameters depend only on public facts. `SOLVERS` lists
the solvers for tests, experiments and estimators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skdp.models.losses import LOSSES
from skdp.solvers.adassp import adassp
from skdp.solvers.dp_cd import dp_cd
from skdp.solvers.dp_gcd import dp_gcd
from skdp.solvers.dp_sgd import dp_sgd
from skdp.solvers.dp_svrg import dp_svrg
from skdp.solvers.objective_perturbation import objective_perturbation
from skdp.solvers.output_perturbation import output_perturbation
from skdp.solvers.poisson_batches import DELTA_SHARE
from skdp.solvers.problem import Problem, Solved

__all__ = [
    "SOLVERS",
    "Problem",
    "Solved",
    "Solver",
    "adassp",
    "dp_cd",
    "dp_gcd",
    "dp_sgd",
    "dp_svrg",
    "objective_perturbation",
    "output_perturbation",
]


@dataclass(frozen=True)
class Solver:
    """An algorithm and what it requires of a problem and of a privacy record.

    Attributes
    ----------
    run : callable
        ``run(problem, *, epsilon, delta=None, random_state=None, noise=None,
        record=None, engine=ReferenceEngine, callback=None, **own) -> Solved``.
    losses : tuple of str
        Kinds of the losses that the algorithm can fit. If empty, it can fit all.
    delta_share : float
        The share of δ that the algorithm charges in addition to μ. A privacy record
        must have reserved this share.
    reads_rows : bool
        Whether the algorithm reads the rows itself, so that they must be in one
        process. Other algorithms only ask an engine for sums.
    """

    run: Callable[..., Solved]
    losses: tuple[str, ...] = ()
    delta_share: float = 0.0
    reads_rows: bool = False


#: Losses with one output, whose slopes are increasing functions of the margin.
ONE_OUTPUT = tuple(kind for kind, loss in LOSSES.items() if loss().n_outputs == 1)
#: Every solver, by name. The tests run each solver in this table.
SOLVERS: dict[str, Solver] = {
    "dp_sgd": Solver(dp_sgd, delta_share=DELTA_SHARE, reads_rows=True),
    "dp_svrg": Solver(dp_svrg, delta_share=DELTA_SHARE, reads_rows=True),
    "dp_cd": Solver(dp_cd, reads_rows=True),
    "output_perturbation": Solver(
        output_perturbation, losses=ONE_OUTPUT, reads_rows=True
    ),
    "objective_perturbation": Solver(
        objective_perturbation, losses=ONE_OUTPUT, reads_rows=True
    ),
    "adassp": Solver(adassp, losses=("squared",)),
    "dp_gcd": Solver(dp_gcd),
}
