"""Other algorithms with one interface, one file each: `skdp.solvers.<name>`.

Each takes a `Problem`, a budget and its own parameters, whose defaults are public, and
returns a `Solved`. `SOLVERS` lists them for tests, experiments and estimators.
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
    """An algorithm and its requirements.

    Attributes
    ----------
    run : callable
        ``run(problem, *, epsilon, delta=None, random_state=None, noise=None,
        record=None, engine=ReferenceEngine, callback=None, **own) -> Solved``.
    losses : tuple of str
        Kinds of the losses that it fits; empty for all.
    delta_share : float
        The share of δ that it charges in addition to μ; a record must reserve it.
    """

    run: Callable[..., Solved]
    losses: tuple[str, ...] = ()
    delta_share: float = 0.0


#: Losses with one output, whose slopes are increasing functions of the margin.
ONE_OUTPUT = tuple(kind for kind, loss in LOSSES.items() if loss().n_outputs == 1)
#: Every solver, by name. The tests run through this table.
SOLVERS: dict[str, Solver] = {
    "dp_sgd": Solver(dp_sgd, delta_share=DELTA_SHARE),
    "dp_svrg": Solver(dp_svrg, delta_share=DELTA_SHARE),
    "dp_cd": Solver(dp_cd),
    "output_perturbation": Solver(output_perturbation, losses=ONE_OUTPUT),
    "objective_perturbation": Solver(objective_perturbation, losses=ONE_OUTPUT),
    "adassp": Solver(adassp, losses=("squared",)),
    "dp_gcd": Solver(dp_gcd),
}
