r"""Output perturbation: solve the regularised problem, then add noise to the solution.

**Theorem** (Chaudhuri, Monteleoni, Sarwate 2011, Theorem 6, in the form used here). Let
w(D) minimise F(w) = Σᵢ φᵢ(xᵢ·w) + ½ Σⱼ qⱼ wⱼ², where all qⱼ > 0 and the φᵢ are convex
with slopes of at most r. Let ‖v‖_q² = Σ qⱼvⱼ². If one table has one record more than
the other,

.. math:: ‖w(D) - w(D')‖_q ≤ r · \sup_x ‖x‖_{1/q} .

If a record is replaced, the bound is twice as large.

*Proof.* Let Δ = w(D') - w(D), and let g be the gradient at w(D') of the record that D'
lacks. Then ∇F_D(w(D')) = g and ∇F_D(w(D)) = 0. Since F_D is q-strongly convex,
‖Δ‖_q² ≤ g·Δ ≤ ‖g‖_{1/q} ‖Δ‖_q. ∎

We compute some w̃ with ‖∇F(w̃)‖_{1/q} ≤ τ, which is proved for *every* table
(`certified`). So ‖w̃ - w(D)‖_q ≤ τ on either table, and 2τ is added to the sensitivity.
A table for which the proof failed would need another answer, such as an error or a
fixed point. That answer could be far from the answer of a neighbouring table. But there
is no such table.

√q∘w̃ is released with Gaussian noise of one scale and then divided by √q, so the noise
is smallest where the penalty is largest. Accounting is exact, because one Gaussian
release with noise multiplier z is (1/z)-GDP. The release is charged before the
minimiser is computed.

The paper's own noise has a density ∝ exp(-‖v‖/scale). It gives pure ε-DP and grows with
d. It is not offered here.

Neighbours: the proof is for zero-out and for add-remove. Under add-remove, `certified`
bounds the number of rows. Replace-one has the factor 2, because the gradients of two
records differ by at most twice the bound on one gradient.
"""

from __future__ import annotations

import math

import numpy as np

from skdp.privacy import accountant, queries
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.grid import round_up
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, check
from skdp.solvers.certified import (
    Bounds,
    Objective,
    bound_reach,
    check_ridge,
    find_least_ridge,
    locate_minimiser,
    read_ridge,
    refuse_outputs,
    refuse_steep,
)
from skdp.solvers.problem import (
    ONE_OUTPUT,
    Callback,
    EngineOf,
    Problem,
    ReferenceEngine,
    Solved,
    charge_run,
    open_run,
    register_solver,
)

QUERY = Kind.MINIMISER, "minimiser of the penalised loss, charged beforehand"

#: `queries.state_sensitivity` rounds each number by at most this, before the noise.
GRID = 2.0**-31


def choose_output_ridge(problem: Problem, mu: float) -> float:
    """Return the ridge λ of the mean loss that balances bias and noise.

    Let H be the Hessian of the mean loss, and w* its minimiser. The bias is ½ λ‖w*‖².
    The noise costs ½ tr(H) (cL/(nλμ))². Here L bounds the norm of a record's gradient,
    c is 2 for replace-one and 1 otherwise, and tr(H) ≤ βR². With this bound in place of
    tr(H), the sum of bias and noise is smallest at λ³ = 2βR² (cL/(nμ))²/‖w*‖². The
    public guess of ‖w*‖ assumes that each column's weights have norm 1.
    """
    times = queries.count_changes(problem.neighbours)
    norm = problem.row_norm
    noise = times * problem.slope_bound * norm / (problem.n_rows * mu)
    guess = float(len(problem.layout.groups))
    balanced = (2 * problem.curvature * norm**2 * noise**2 / guess) ** (1 / 3)
    return max(float(balanced), find_least_ridge(problem))


def bound_sensitivity(problem: Problem, quadratic: FloatArray, slack: float) -> float:
    """Bound how far one record moves the computed minimiser.

    The minimiser is multiplied by the square root of `quadratic`, and the distance is
    Euclidean.
    """
    times = queries.count_changes(problem.neighbours)
    moved = times * problem.slope_bound * bound_reach(problem, quadratic)
    rounded = 2 * GRID * math.sqrt(len(quadratic))
    return round_up(moved + slack + rounded)


@register_solver(losses=ONE_OUTPUT, reads_rows="minimises a function of all rows")
def output_perturbation(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None = None,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    engine: EngineOf = ReferenceEngine,
    callback: Callback | None = None,
    ridge: float | None = None,
) -> Solved:
    """Release the minimiser of a ridge-penalised loss, with Gaussian noise.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver. The engine is not used and the callback is not called.
    ridge : float, optional
        ½ ridge ‖w‖² is added to the mean loss, in addition to the penalty. It acts on
        every coordinate, including the intercept. In a run with noise,
        `choose_output_ridge` chooses the default, and 0 is refused unless the penalty
        acts on all coordinates. Without noise the default is 0.

    Notes
    -----
    **Guarantee.** For all neighbouring tables the result is post-processing of one
    Gaussian release. Its sensitivity is the bound of the module's theorem, plus the
    slack of `certified` and a bound on rounding.
    """
    refuse_outputs(problem)
    run = open_run(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
    )
    private = run.budget < math.inf
    if ridge is None:
        ridge = choose_output_ridge(problem, run.mu) if private else 0.0
    check(0 <= ridge < math.inf, f"ridge must be finite and at least 0, got {ridge}.")
    quadratic = read_ridge(problem) + problem.n_rows * ridge
    if not private:  # a tiny ridge hardly changes the minimiser
        quadratic = np.maximum(quadratic, 1e-9 * problem.n_rows)
    check_ridge(quadratic)
    if private:
        refuse_steep(problem, quadratic)
    bounds = Bounds.of(problem, quadratic)
    bound = bound_sensitivity(problem, quadratic, bounds.slack)
    z = accountant.noise_multiplier(run.mu, 1)
    n_draws = len(quadratic) if private else 0
    shown = charge_run(run, Event(*QUERY, bound, z, n_draws))
    found = locate_minimiser(Objective(problem, quadratic), bounds, proved=private)
    scale = np.sqrt(quadratic)[:, None]
    total = queries.state_sensitivity(found[:, None] * scale, bound, *QUERY)
    released = release(total, z, run.noise, shown)
    return Solved(
        weights=released.values / scale,
        record=run.record,
        n_steps=1,
        settings={
            "ridge": ridge,
            "tolerance": bounds.tolerance,
            "sensitivity": bound,
            "noise_multiplier": z,
        },
    )
