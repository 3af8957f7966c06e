r"""Objective perturbation: add a random linear term to the loss, then minimise it.

    w = argmin Σᵢ φᵢ(xᵢ·w) + ½ Σⱼ qⱼ wⱼ² + b·w,   b ~ N(0, σ²I)

The random vector b is called the tilt.

**Paper** (Kifer, Smith, Thakurta 2012, Theorem 2 with Gaussian noise). The exact
minimiser is (ε, δ)-private if one record is added or removed, provided that ∇²φᵢ has
rank one, ‖∇φᵢ‖ ≤ L, ∇²φᵢ ⪯ βR², min q ≥ 2βR²/ε and σ² = L²(8 log(2/δ) + 4ε)/ε².

**Exact** (the default). `profiles.objective_delta` computes the privacy curve. It
follows Redberg, Koskela, Wang (2023) with three changes. The determinant enters as
log(1+κ), not as |log(1-κ)|, where κ bounds a record's curvature relative to the
quadratic term. For losses with `one_sign`, the sign of slopes costs no factor 2. Small
ε are treated differently. For any chosen noise, the run is charged the smallest μ whose
GDP curve it never exceeds. Unlike a guarantee at a single (ε, δ), this charge can be
composed with others.

**The minimiser need not be exact** (approximate minima: Iyengar et al. 2019, Theorem
1). We compute some w̃ whose distance from w is bounded. The bound is proved for every
table and every b (`certified`). If w were known, then w̃, shortened to a public radius,
would have sensitivity 2τ for all tables. Here τ is the proved tolerance, which also
covers the last rounding of b. So √q∘w̃ is released with Gaussian noise, for a hundredth
of the budget. The probability that w exceeds the radius is e⁻³². Privacy does not
depend on this, because the sensitivity is right for longer w too. So no δ is spent.

**The noise** b is not released, because b and w together reveal the sum of all
gradients at w. It is drawn by calling `release` on a sum that is zero, with a temporary
privacy record. This happens *after* the run was charged, and b never leaves this file.

`release` rounds to a grid of spacing 2⁻¹⁰σ, but b must have a density. Therefore b is
the sum of four draws, each with 2⁻⁸ times the standard deviation of the previous draw.
Let σ₁ and σ₂ be the standard deviations of the first two draws. The part that rounding
cut off the first draw is a shift that is independent of the records. Given this shift,
the first draw is on a lattice of spacing G ≤ 2⁻¹⁰σ₁, with normal weights. To it, a
normal draw with σ₂ = 4G or more is added. By Poisson's summation formula, the density
of the sum is the density of N(0, σ₁²+σ₂²) times 1 ± 2exp(-2π²·15). The same holds for
the further draws. Only the rounding of the last draw remains, of size 2⁻³⁵σ.

Neighbours: the theorem is for zero-out and for add-remove. Under add-remove,
`certified` bounds the number of rows. Replacing a record is two such changes, so
replace-one costs twice the μ (group privacy: Dong, Roth, Su 2022, Theorem 2.14).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from skdp.privacy import accountant, profiles, queries
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.grid import round_up
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, check, count_in_words
from skdp.solvers.certified import (
    STEEPER,
    Bounds,
    Objective,
    bound_steepness,
    check_ridge,
    find_least_ridge,
    locate_minimiser,
    read_ridge,
    refuse_outputs,
    refuse_steep,
)
from skdp.solvers.output_perturbation import GRID
from skdp.solvers.problem import (
    ONE_OUTPUT,
    Callback,
    EngineOf,
    Problem,
    ReferenceEngine,
    Run,
    Solved,
    charge_run,
    open_run,
    register_solver,
)

#: Share of the budget spent on the release of the computed minimiser. The noise of this
#: release hides the distance from the exact minimiser.
OUTPUT_SHARE = 0.01
#: Number of draws whose sum is b, and the ratio of their standard deviations.
LEVELS, SHRINK = 4, 2.0**-8
QUERY = Kind.DISTANCE, "distance to minimiser, charged beforehand"


def choose_objective_ridge(problem: Problem, mu: float) -> float:
    """Return the ridge λ of the mean loss that balances bias and noise.

    Let H be the Hessian of the summed loss, and w* its minimiser. The bias is
    ½ nλ‖w*‖². The tilt b costs ½ E bᵀ(H+nλ)⁻¹H(H+nλ)⁻¹b ≤ dσ²/(8nλ). Both are equal at
    nλ = σ√d/(2‖w*‖). Here σ = L/μ, where L bounds the norm of a record's gradient. The
    public guess of ‖w*‖ assumes that each column's weights have norm 1. The ridge is
    raised if necessary, so that the bound κ on a record's relative curvature is at most
    .8 μ.
    """
    std = problem.slope_bound * problem.row_norm / mu
    guess = math.sqrt(len(problem.layout.groups))
    balanced = std * math.sqrt(problem.layout.n_features) / (2 * guess)
    least = STEEPER * problem.curvature * problem.row_norm**2 / (0.8 * mu)
    return max(max(balanced, least) / problem.n_rows, find_least_ridge(problem))


def compute_kifer_noise(epsilon: float, delta: float) -> float:
    """Return the ratio σ/L of Kifer, Smith and Thakurta (2012).

    σ is the standard deviation of the tilt, and L bounds the norm of a record's
    gradient.
    """
    return math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon


@register_solver(losses=ONE_OUTPUT, reads_rows="minimises a function of all rows")
def objective_perturbation(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None = None,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    engine: EngineOf = ReferenceEngine,
    callback: Callback | None = None,
    calibration: Literal["exact", "paper"] = "exact",
    ridge: float | None = None,
) -> Solved:
    """Release the minimiser of a loss plus a ridge penalty and a random linear term.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver. The engine is not used and the callback is not called.
    calibration : {"exact", "paper"}
        "exact" uses the smallest noise that the budget allows. "paper" uses the noise
        of Kifer et al. for the (ε, δ) of the privacy record. The default ridge is then
        theirs, 2βR²/(nε), where β bounds the curvature of the loss, and R the norm of a
        row. With "paper", the ridge is raised if the true cost exceeds the budget, and
        some of the budget may remain.
    ridge : float, optional
        ½ ridge ‖w‖² is added to the mean loss, in addition to the penalty. It acts on
        every coordinate, including the intercept. With "exact",
        `choose_objective_ridge` chooses the default. Without noise the default is 0.

    Notes
    -----
    **Guarantee.** For all neighbouring tables the result is post-processing of two
    steps. The first is objective perturbation with an exact minimiser, charged by the
    theorem of `profiles`. The second is one Gaussian release, which covers the distance
    between the computed minimiser and the exact one.
    """
    refuse_outputs(problem)
    run = open_run(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
        calibration=calibration,
    )
    check(
        ridge is None or 0 <= ridge < math.inf,
        f"ridge must be finite and at least 0, got {ridge}.",
    )
    if run.budget == math.inf:
        std, cost, ridge = 0.0, math.inf, ridge or 0.0
    elif calibration == "exact":
        std, cost, ridge = _calibrate_exactly(problem, run, ridge)
    else:
        std, cost, ridge = _calibrate_as_in_paper(problem, run, ridge)
    quadratic = read_ridge(problem) + problem.n_rows * ridge
    if run.budget == math.inf:  # a tiny ridge hardly changes the minimiser
        quadratic = np.maximum(quadratic, 1e-9 * problem.n_rows)
    else:
        refuse_steep(problem, quadratic)
    d, floor = len(quadratic), math.sqrt(float(quadratic.min()))
    length = std * (1 + SHRINK) * (math.sqrt(d) + 8)  # ‖b‖ exceeds it with prob. e⁻³²
    rest = std * SHRINK ** (LEVELS - 1) * 2.0**-11 * math.sqrt(d) / floor
    bounds = Bounds.of(problem, quadratic, length / floor)
    bound = round_up(bounds.slack + 2 * rest + 2 * GRID * math.sqrt(d))
    z_out = accountant.noise_multiplier(run.share(OUTPUT_SHARE).mu, 1)
    _charge_tilt(problem, run, std, cost, d)
    shown = charge_run(run, Event(*QUERY, bound, z_out, d if std else 0))
    tilt = _draw_tilt(problem, run, std, d)
    objective = Objective(problem, quadratic, tilt)
    found = locate_minimiser(objective, bounds, proved=std > 0)
    scale = np.sqrt(quadratic)[:, None]
    total = queries.state_sensitivity(found[:, None] * scale, bound, *QUERY)
    released = release(total, z_out, run.noise, shown)
    return Solved(
        weights=released.values / scale,
        record=run.record,
        n_steps=1,
        settings={
            "calibration": calibration,
            "ridge": ridge,
            "noise_std": std,
            "tolerance": bounds.tolerance + rest,
            "output_noise_std": z_out * bound,
        },
    )


def _count_signs(problem: Problem) -> int:
    return 1 if problem.loss.one_sign else 2


def _bound_gradient(problem: Problem) -> float:
    return round_up(problem.slope_bound * problem.row_norm)


def _calibrate_exactly(
    problem: Problem, run: Run, ridge: float | None
) -> tuple[float, float, float]:
    """Return the tilt's standard deviation, the μ to charge, and the ridge.

    The standard deviation is the smallest that the budget allows.
    """
    cost = run.share(1 - OUTPUT_SHARE).mu
    target = cost / queries.count_changes(problem.neighbours)
    signs = _count_signs(problem)
    if ridge is None:
        ridge = choose_objective_ridge(problem, target / signs)
    quadratic = read_ridge(problem) + problem.n_rows * ridge
    check_ridge(quadratic)
    kappa = bound_steepness(problem, quadratic)
    mu = profiles.objective_mu(target, kappa, signs)
    check(
        mu > 0,
        f"ridge={ridge:.3g} is too small, because no amount of noise makes objective "
        "perturbation private with it. Omit ridge for the default.",
    )
    return _bound_gradient(problem) / mu, cost, ridge


def _calibrate_as_in_paper(
    problem: Problem, run: Run, ridge: float | None
) -> tuple[float, float, float]:
    """Return the tilt's standard deviation, the μ to charge, and the ridge.

    The standard deviation is that of Kifer et al. The ridge is raised until the cost is
    within the budget.
    """
    epsilon, delta = run.record.epsilon, run.record.delta
    group, most = (
        queries.count_changes(problem.neighbours),
        run.share(1 - OUTPUT_SHARE).mu,
    )
    std = _bound_gradient(problem) * group * compute_kifer_noise(epsilon, delta)
    if ridge is None:
        bend = problem.curvature * problem.row_norm**2
        ridge = 2 * bend / (problem.n_rows * epsilon)
    check(ridge > 0, "ridge must be > 0; omit it for the default.")
    mu = _bound_gradient(problem) / std
    signs, target = _count_signs(problem), most / group
    for _ in range(60):
        kappa = bound_steepness(problem, read_ridge(problem) + problem.n_rows * ridge)
        if profiles.is_dominated(mu, target, kappa, signs):
            cost = profiles.objective_cost(mu, kappa, signs, target)
            return std, group * cost, ridge
        ridge *= 1.25
    raise ValueError(
        f"The paper's noise costs more than the budget at epsilon={epsilon:.3g}, even "
        f"with ridge={ridge:.3g}. Use calibration='exact'."
    )


def _charge_tilt(problem: Problem, run: Run, std: float, cost: float, d: int) -> None:
    """Charge the cost of objective perturbation, before the tilt is drawn."""
    event = Event(
        Kind.TILT,
        f"objective perturbation, {count_in_words(d, 'coordinate')} together",
        _bound_gradient(problem) * queries.count_changes(problem.neighbours),
        accountant.noise_multiplier(cost, 1),
        LEVELS * d if std else 0,
    )
    charge_run(run, event)


def _draw_tilt(problem: Problem, run: Run, std: float, d: int) -> FloatArray | None:
    """Draw the tilt b (d,), which is secret. Only temporary privacy records hold it."""
    if not std:
        return None
    tilt = np.zeros(d)
    for level in range(LEVELS):
        temporary = PrivacyRecord(
            epsilon=math.inf, delta=0.5, neighbours=problem.neighbours
        )
        size = std * SHRINK**level
        zero = queries.state_sensitivity(np.zeros(d), size, Kind.TILT, "tilt")
        tilt = tilt + release(zero, 1.0, run.noise, temporary).values
    return tilt
