"""Provide algorithms other than DP-SkGD, each in its own file `skdp.solvers.<name>`.

All solvers have the same interface. A solver takes a `Problem`, a privacy budget and
its own parameters, and returns a `Solved`. The defaults of its parameters depend only
on public facts. A solver is registered in `SOLVERS` when its file is imported here.
Tests, experiments and estimators use that table.
"""

from skdp.solvers.adassp import adassp as adassp
from skdp.solvers.dp_cd import dp_cd as dp_cd
from skdp.solvers.dp_gcd import dp_gcd as dp_gcd
from skdp.solvers.dp_sega import dp_sega as dp_sega
from skdp.solvers.dp_sgd import dp_sgd as dp_sgd
from skdp.solvers.dp_svrg import dp_svrg as dp_svrg
from skdp.solvers.objective_perturbation import (
    objective_perturbation as objective_perturbation,
)
from skdp.solvers.output_perturbation import output_perturbation as output_perturbation
from skdp.solvers.problem import SOLVERS, Problem, Solved, Solver

__all__ = ["SOLVERS", "Problem", "Solved", "Solver", *SOLVERS]
