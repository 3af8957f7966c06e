r"""Objective perturbation: add a random linear term to the objective, then solve it.

    w = argmin Σᵢ φᵢ(xᵢ·w) + ½ Σⱼ qⱼ wⱼ² + b·w,   b ~ N(0, σ²I)

**Printed** (Kifer, Smith, Thakurta 2012, Theorem 2 with Gaussian noise): the exact
minimiser is (ε, δ)-private, one record added or removed, if ∇²φᵢ has rank one,
‖∇φᵢ‖ ≤ L, ∇²φᵢ ⪯ βR², min q ≥ 2βR²/ε and σ² = L²(8 log(2/δ) + 4ε)/ε².

**Tight**: the curve of `profiles.objective_delta`, after Redberg, Koskela, Wang (2023)
but for the determinant (log(1+κ), not |log(1-κ)|), for the sign of slopes (no factor 2
for logistic and hinge) and for small ε. The run is charged the smallest μ whose curve
it never crosses, whatever noise was chosen: then it may be composed, as a guarantee at
one (ε, δ) may not.

**Not assumed exact** (approximate minima: Iyengar et al. 2019, Theorem 1). What is
found is some w̃ that is near w, proved for every table and every b (`certified`). Were w
public, w̃, shortened to a public radius, would be a value of sensitivity 2τ whatever the
tables: √q∘w̃ is released with Gaussian noise for a hundredth of the budget. τ includes
the last digits of b. The radius is one that w exceeds with chance e⁻³²; privacy does
not depend on it, since the bound holds for longer w too, and no δ is spent.

**The noise** b is no release: whoever knows b and w knows the sum of all gradients at
w. It is drawn through `release` on a sum that is zero, with a record that is thrown
away *after* the run was charged, and never leaves this file. `release` rounds to cells
of 2⁻¹⁰σ, and b must have a density: it is the sum of four draws, each of 2⁻⁸ times the
standard deviation before. Given what the first draw's rounding cut off, a shift that no
record enters, the draw is on a lattice of spacing G ≤ 2⁻¹⁰σ₁, with normal weights; plus
a normal of σ₂ = 4G or more its density is that of N(0, σ₁²+σ₂²) times 1 ±
2exp(-2π²·15), by Poisson's summation formula, and so on. Only the last rounding is
left, 2⁻³⁵σ.

Relations: the theorem is for zero-out and add-remove, where `certified` bounds the
number of rows; replace-one is both at once, a group of two: double μ (Dong, Roth, Su
2022, Theorem 2.14).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from skdp.privacy import accountant, profiles, queries
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.grid import round_up
from skdp.privacy.mechanism import release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, check
from skdp.solvers.certified import Bounds, least_ridge, located, refuse_steep, ridge_of
from skdp.solvers.output_perturbation import GRID
from skdp.solvers.penalised import STEEPER, Objective, refuse_outputs, steepness
from skdp.solvers.problem import (
    Callback,
    EngineOf,
    Problem,
    ReferenceEngine,
    Run,
    Solved,
    charged,
    opened,
)

#: Losses whose slope has the sign of the record's class.
ONE_SIGN = ("logistic", "hinge")
#: Part of the budget that pays for the tolerance.
OUTPUT_SHARE = 0.01
#: Draws that make up a value of b, and how much smaller each is.
LEVELS, SHRINK = 4, 2.0**-8
QUERY = "distance to minimiser, charged beforehand"


def default_ridge(problem: Problem, mu: float) -> float:
    """Ridge λ (of the mean loss) that balances bias and noise, κ at most .8 μ.

    Bias ½ nλ‖w*‖² and noise ½ E bᵀ(H+nλ)⁻¹H(H+nλ)⁻¹b ≤ dσ²/(8nλ) are equal at
    nλ = σ√d/(2‖w*‖), with the public guess that each column's weights have norm 1 and
    σ = L/μ for one record.
    """
    std = problem.slope_bound * problem.row_norm / mu
    guess = math.sqrt(len(problem.layout.groups))
    balanced = std * math.sqrt(problem.layout.n_features) / (2 * guess)
    least = STEEPER * problem.curvature * problem.row_norm**2 / (0.8 * mu)
    return max(max(balanced, least) / problem.n_rows, least_ridge(problem))


def printed_noise(epsilon: float, delta: float) -> float:
    """σ/L of Kifer, Smith and Thakurta (2012)."""
    return math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon


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
    calibration: Literal["tight", "printed"] = "tight",
    ridge: float | None = None,
) -> Solved:
    """Release the minimiser of a randomly tilted, ridge-penalised loss.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver; the engine is not asked and no step is called back.
    calibration : {"tight", "printed"}
        The noise that the budget's curve allows, or that of Kifer et al. for the
        record's (ε, δ); then `ridge` is theirs too, 2βR²/(nε), larger if what it truly
        costs is above the budget, and not all of the budget may be spent.
    ridge : float, optional
        Added to the penalty on every coordinate, the intercept included: ½ ridge ‖w‖²
        beside the mean loss. By default `default_ridge`; 0 without noise.

    Notes
    -----
    **Guarantee.** For all neighbouring tables the result is post-processing of
    objective perturbation, charged by the theorem of `profiles`, and of one Gaussian
    release of the distance to its exact minimiser.
    """
    check(
        calibration in ("tight", "printed"),
        f"calibration must be 'tight' or 'printed'. Got {calibration!r}.",
    )
    refuse_outputs(problem)
    run = opened(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
    )
    check(
        ridge is None or 0 <= ridge < math.inf,
        f"ridge must be finite, at least 0. Got {ridge}.",
    )
    if run.budget == math.inf:
        std, cost, ridge = 0.0, math.inf, ridge or 0.0
    elif calibration == "tight":
        std, cost, ridge = _tight(problem, run, ridge)
    else:
        std, cost, ridge = _printed(problem, run, ridge)
    quadratic = ridge_of(problem) + problem.n_rows * ridge
    if run.budget == math.inf:  # any strongly convex problem near it has its minimiser
        quadratic = np.maximum(quadratic, 1e-9 * problem.n_rows)
    else:
        refuse_steep(problem, quadratic)
    d, floor = len(quadratic), math.sqrt(float(quadratic.min()))
    length = std * (1 + SHRINK) * (math.sqrt(d) + 8)  # of b: above it with chance e⁻³²
    rest = std * SHRINK ** (LEVELS - 1) * 2.0**-11 * math.sqrt(d) / floor
    bounds = Bounds.of(problem, quadratic, length / floor)
    bound = round_up(bounds.slack + 2 * rest + 2 * GRID * math.sqrt(d))
    z_out = accountant.noise_multiplier(run.share(OUTPUT_SHARE).mu, 1)
    _charge_tilt(problem, run, std, cost, d)
    shown = charged(run, Event(QUERY, bound, z_out, d if std else 0))
    tilt = _tilt(problem, run, std, d)
    objective = Objective(problem, quadratic, tilt)
    found = located(objective, bounds, proved=std > 0)
    scale = np.sqrt(quadratic)[:, None]
    total = queries.stated(found[:, None] * scale, bound, QUERY)
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


def _group(problem: Problem) -> float:
    """How many records apart neighbours are."""
    return 2.0 if problem.neighbours == "replace-one" else 1.0


def _signs(problem: Problem) -> int:
    return 1 if problem.loss.name in ONE_SIGN else 2


def _gradient_bound(problem: Problem) -> float:
    return round_up(problem.slope_bound * problem.row_norm)


def _tight(
    problem: Problem, run: Run, ridge: float | None
) -> tuple[float, float, float]:
    """σ, the μ that is charged, and the ridge."""
    cost = run.share(1 - OUTPUT_SHARE).mu
    target = cost / _group(problem)
    signs = _signs(problem)
    if ridge is None:
        ridge = default_ridge(problem, target / signs)
    quadratic = ridge_of(problem) + problem.n_rows * ridge
    check(
        float(quadratic.min()) > 0,
        "Objective perturbation needs a penalty on every coordinate: leave ridge out.",
    )
    kappa = steepness(problem, quadratic)
    mu = profiles.objective_mu(target, kappa, signs)
    check(
        mu > 0,
        f"No noise makes objective perturbation private with ridge {ridge:.3g}: raise "
        "it, or leave it out.",
    )
    return _gradient_bound(problem) / mu, cost, ridge


def _printed(
    problem: Problem, run: Run, ridge: float | None
) -> tuple[float, float, float]:
    """σ, the μ that is charged, and the ridge, after Kifer et al. (2012)."""
    epsilon, delta = run.record.epsilon, run.record.delta
    group, most = _group(problem), run.share(1 - OUTPUT_SHARE).mu
    std = _gradient_bound(problem) * group * printed_noise(epsilon, delta)
    if ridge is None:
        bend = problem.curvature * problem.row_norm**2
        ridge = 2 * bend / (problem.n_rows * epsilon)
    check(ridge > 0, "Objective perturbation needs a ridge: leave it out.")
    mu = _gradient_bound(problem) / std
    signs, target = _signs(problem), most / group
    for _ in range(60):
        kappa = steepness(problem, ridge_of(problem) + problem.n_rows * ridge)
        if profiles.is_dominated(mu, target, kappa, signs):
            cost = profiles.objective_cost(mu, kappa, signs, target)
            return std, group * cost, ridge
        ridge *= 1.25
    raise ValueError(
        f"The printed noise costs more than the budget at epsilon {epsilon:.3g}, up to "
        f"a ridge of {ridge:.3g}: take calibration='tight'."
    )


def _charge_tilt(problem: Problem, run: Run, std: float, cost: float, d: int) -> None:
    """Charge what the tilt does not hide."""
    event = Event(
        f"objective perturbation, {d} coordinates together",
        _gradient_bound(problem) * _group(problem),
        accountant.noise_multiplier(cost, 1),
        LEVELS * d if std else 0,
    )
    charged(run, event)


def _tilt(problem: Problem, run: Run, std: float, d: int) -> FloatArray | None:
    """The tilt b (d,): secret, so its draws are kept by nobody."""
    if not std:
        return None
    tilt = np.zeros(d)
    for level in range(LEVELS):
        thrown = PrivacyRecord(
            epsilon=math.inf, delta=0.5, neighbours=problem.neighbours
        )
        zero = queries.stated(np.zeros(d), std * SHRINK**level, "tilt")
        tilt = tilt + release(zero, 1.0, run.noise, thrown).values
    return tilt
