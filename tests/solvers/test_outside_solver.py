"""Without noise, every penalty's optimum is the one that cvxpy finds, to 1e-8."""

import math

import numpy as np
import pytest
from cases import features, objective

from skdp.descent import algorithm1
from skdp.descent.geometry import Diagonal
from skdp.descent.matrix import Matrix
from skdp.descent.plan import Plan, run
from skdp.descent.samplings import Blocks, Full
from skdp.descent.sega_bounds import choose_metric
from skdp.models.losses import Softmax, Squared
from skdp.models.penalties import (
    GroupLasso,
    Monotone,
    NuclearNorm,
    Simplex,
    TotalVariation,
)
from skdp.privacy.encoding import Batch, Coded, encode
from skdp.schema import Categorical, Numeric, Schema
from skdp.solvers import Problem, dp_sega

cvxpy = pytest.importorskip("cvxpy")
N_ROWS, TOLERANCE = 150, 1e-8
LEVELS = ["a", "b", "c", "d"]
EXACT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
PENALTIES = {
    "group-lasso": lambda parts, _: GroupLasso(0.02, parts),
    "total-variation": lambda _, chains: TotalVariation(0.01, chains),
    "monotone": lambda _, chains: Monotone(chains),
    "simplex": lambda parts, _: Simplex([np.concatenate(parts)], total=0.8),
    "nuclear-norm": lambda parts, _: NuclearNorm(0.05, [np.concatenate(parts)]),
}


def problem_of(name):
    rng = np.random.default_rng(5)
    grade, curve = rng.integers(4, size=N_ROWS), rng.uniform(size=N_ROWS)
    score = np.array([0.0, 0.3, 0.2, 0.6])[grade] + np.sin(3 * curve)
    score = score - 0.7 + 0.2 * rng.normal(size=N_ROWS)
    classes = name == "nuclear-norm"
    target = Categorical(LEVELS[:3]) if classes else Numeric(-2.0, 2.0)
    schema = Schema(
        {
            "x": Numeric(0, 1),
            "grade": Categorical(LEVELS),
            "curve": Numeric(0, 1, knots=4),
        },
        target=target,
    )
    labels = Coded((score > 0) + (score > 0.3) * 1, LEVELS)
    batch = Batch(
        columns={
            "x": rng.uniform(size=N_ROWS),
            "grade": Coded(grade, LEVELS),
            "curve": curve,
        },
        target=labels if classes else score,
    )
    records = encode([batch], schema)
    parts = records.layout.list_columns()
    chains = records.layout.list_columns(ordered=True)
    return Problem(
        records=records,
        loss=Softmax(3) if classes else Squared(),
        n_rows=N_ROWS,
        penalty=PENALTIES[name](parts, chains),
        neighbours="zero-out",
    )


def outside(problem):
    """The least objective, by cvxpy."""
    X = features(problem)
    target = np.concatenate([chunk.target for chunk in problem.records.chunks])
    w, psi = cvxpy.Variable(problem.start.shape), problem.penalty
    if isinstance(problem.loss, Softmax):
        picked = cvxpy.sum(cvxpy.multiply(np.eye(3)[target.astype(int)], X @ w))
        value = cvxpy.sum(cvxpy.log_sum_exp(X @ w, axis=1)) - picked
    else:
        value = cvxpy.sum_squares(X @ w[:, 0] - (2 * target / 2**14 - 1)) / 2
    parts, rules, value = [list(p) for p in psi.parts], [], value / N_ROWS
    if isinstance(psi, GroupLasso):
        for part in parts:
            value += psi.strength * math.sqrt(len(part)) * cvxpy.norm(w[part], "fro")
    elif isinstance(psi, TotalVariation):
        for part in parts:
            value += psi.strength * cvxpy.norm1(cvxpy.diff(w[part, 0]))
    elif isinstance(psi, Monotone):
        rules = [cvxpy.diff(w[part, 0]) >= 0 for part in parts]
    elif isinstance(psi, Simplex):
        rules = [w[parts[0]] >= 0, cvxpy.sum(w[parts[0]]) == psi.total]
    else:
        value += psi.strength * cvxpy.normNuc(w[parts[0]])
    solved = cvxpy.Problem(cvxpy.Minimize(value), rules)
    return float(solved.solve(solver="CLARABEL", **EXACT))


def by_sega(problem):
    """DP-SEGA, with the smoothness of the table itself, as nothing is private here."""
    X, law = features(problem), Blocks.uniform(problem.layout.blocks)
    largest = float(np.linalg.eigvalsh(X.T @ X / N_ROWS)[-1])
    M = np.full(X.shape[1], problem.loss.curvature * largest)
    return dp_sega(
        problem,
        epsilon=math.inf,
        random_state=0,
        damping=0.5,
        metric=choose_metric(M, law.probabilities, 0.5) / 2,  # the bound is cautious
        n_steps=2500 if problem.loss.n_outputs > 1 else 1000,
    ).weights


def by_plan(problem, geometry, n_steps):
    plan = Plan(
        layout=problem.layout,
        loss=problem.loss,
        n_rows=N_ROWS,
        epsilon=math.inf,
        delta=1e-6,
        sampling=Full(problem.layout.n_features),
        geometry=geometry,
        n_steps=n_steps,
        penalty=problem.penalty,
        average=algorithm1.last,
        neighbours="zero-out",
    )
    return run(plan, problem.records).weights


def by_full_steps(problem):
    M = np.full(problem.layout.n_features, problem.curvature * problem.row_norm**2)
    return by_plan(problem, Diagonal(smoothness=M, momentum=True), 400)


def by_matrix(problem):
    return by_plan(problem, Matrix(radius=1e4, floor=0.05), 60)


WAYS = {"dp_sega": by_sega, "full steps": by_full_steps, "matrix": by_matrix}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PENALTIES)
def test_the_optimum_is_the_outside_solvers(name, way):
    problem = problem_of(name)
    best = outside(problem)
    found = WAYS[way](problem)
    assert problem.penalty.value(found) < math.inf
    assert abs(objective(problem, found) - best) < TOLERANCE
