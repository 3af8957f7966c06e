"""Compute bounds that require only an expected separable overapproximation (ESO).

The bounds are Theorems D, E and F of docs/guide/theory.md, which has the proofs. They
hold for block-wise smoothness M with ``E[I_S H I_S] ⪯ PM``. Here H bounds the Hessian
of f, S is the random set of coordinates that a step moves, and P is the diagonal matrix
of the probabilities p_j = P(j ∈ S). This condition is weaker than ``Diag(M) ⪰ H``.

* **D** is for proximal steps that minimise F = f + ψ with a separable convex ψ.
* **E** is for strongly convex F. It tends to Theorem B or D as the modulus vanishes.
* **F** replaces M by one matrix per block of a partition. D and E then hold with the
  sums that `matrix_sigmas` returns.

The names are those of `skdp.descent.bounds`: D0 = ‖w0 - w*‖² in the norm M P⁻¹,
N1 = Σ_j E[1{j∈S} σ_S²]/(p_j M_j), N2 = Σ_j E[1{j∈S} σ_S²]/M_j and v = 1/p_min.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from skdp.descent.bounds import (
    Budget,
    Rate,
    balance_steps,
    check_sizes,
    find_best_integer,
)
from skdp.descent.samplings import check_positive
from skdp.schema import check

__all__ = [
    "convex_composite",
    "eso_weighted_bound",
    "matrix_sigmas",
    "strongly_convex_eso",
]


def convex_composite(
    *,
    distance_squared: float,
    step_sigma_squared: float,
    smallest_probability: float,
    excess: float,
    budget: Budget,
) -> Rate:
    """Return the convex rate for F = f + ψ with a separable ψ (Theorem D).

    Let v = 1/p_min and A = D0/2 + v(F(w0) - F*), and let ν be the noise scale of the
    budget. Then the best number of steps is K* = √A/(ν√v Σ_step), and the bound is
    2ν√(Av)·Σ_step.

    Parameters
    ----------
    distance_squared, step_sigma_squared : float
        D0 and Σ_step², as returned by the functions of the same names in
        `skdp.descent.bounds`.
    smallest_probability : float
        p_min, the smallest p_j.
    excess : float
        Bound on F(w0) - F*.
    budget : Budget
        The budget.
    """
    check_sizes(
        "convex_composite",
        distance_squared=distance_squared,
        step_sigma_squared=step_sigma_squared,
        smallest_probability=smallest_probability,
    )
    check_sizes("convex_composite", zero=True, excess=excess)
    initial = 0.5 * distance_squared + excess / smallest_probability
    step = budget.noise_scale**2 * step_sigma_squared / smallest_probability
    return balance_steps("Theorem D: convex, with a penalty", initial, step)


def eso_weighted_bound(
    n_steps: int,
    *,
    distance_squared: float,
    excess: float,
    noise: float,
    step_noise: float,
    smallest_probability: float,
    decay: float,
    composite: bool = False,
    include_start: bool = True,
) -> float:
    """Bound E F(average) - F* for strongly convex F, weights (1 - ρ)^(-k) (Theorem E).

    Let v = 1/p_min, V0 = D0 + 2v(F(w0) - F*) and r = ρ/((1 - ρ)^(-K) - 1). Let
    N = N1 + v·N2, or N = 2v·N2 with a penalty. For the average of θ_k over
    k = 0, …, K-1, the bound is U = (rV0 + N)/(2(1 - ρv)). For the average over
    k = 1, …, K, it is (1 - ρ)U - r(F(w0) - F*). As ρ → 0, the bounds tend to
    that of Theorem B, or of Theorem D with a penalty.

    Parameters
    ----------
    n_steps : int
        The number of steps K.
    distance_squared, excess : float
        D0, see above, and a bound on F(w0) - F*.
    noise, step_noise : float
        N1 and N2, see above.
    smallest_probability : float
        p_min, the smallest p_j.
    decay : float
        ρ, at most the modulus μ̃ of strong convexity in the norm M P⁻¹, and less than
        p_min.
    composite : bool
        Whether there is a penalty.
    include_start : bool
        Whether the average is over θ_0, …, θ_{K-1} rather than θ_1, …, θ_K.
    """
    _check_decay("eso_weighted_bound", decay, smallest_probability)
    visits = 1.0 / smallest_probability
    total = 2.0 * visits * step_noise if composite else noise + visits * step_noise
    potential = distance_squared + 2.0 * visits * excess
    share = decay / math.expm1(min(-n_steps * math.log1p(-decay), 700.0))
    bound = (share * potential + total) / (2.0 * (1.0 - decay * visits))
    return bound if include_start else (1.0 - decay) * bound - share * excess


def strongly_convex_eso(
    *,
    modulus: float,
    distance_squared: float,
    sigma_squared: float,
    step_sigma_squared: float,
    smallest_probability: float,
    excess: float,
    budget: Budget,
    composite: bool = False,
    n_steps: int | None = None,
) -> Rate:
    """Return the rate of one run for strongly convex F (Theorem E).

    Iterate k has weight (1 - ρ)^(-k) in the average, with ρ = min(μ̃, p_min/2). The
    number of steps K minimises `eso_weighted_bound`.

    Parameters
    ----------
    modulus : float
        μ̃, the modulus of strong convexity in the norm M P⁻¹, or a smaller number. If M
        includes a ridge λ, the modulus is at least λ min_j p_j/M_j.
    distance_squared, sigma_squared, step_sigma_squared : float
        D0, Σ² and Σ_step², as returned by the functions of the same names in
        `skdp.descent.bounds`.
    smallest_probability, excess : float
        p_min, the smallest p_j, and a bound on F(w0) - F*.
    budget : Budget
        The budget.
    composite : bool
        Whether there is a penalty other than a ridge.
    n_steps : int, optional
        K. By default, the K that minimises the bound.
    """
    check_sizes(
        "strongly_convex_eso",
        modulus=modulus,
        distance_squared=distance_squared,
        sigma_squared=sigma_squared,
        step_sigma_squared=step_sigma_squared,
        smallest_probability=smallest_probability,
    )
    check_sizes("strongly_convex_eso", zero=True, excess=excess)
    decay = min(modulus, 0.5 * smallest_probability)
    scale, visits = budget.noise_scale**2, 1.0 / smallest_probability
    rate = -math.log1p(-decay)

    def bound(n_steps: int) -> float:
        return eso_weighted_bound(
            n_steps,
            distance_squared=distance_squared,
            excess=excess,
            noise=n_steps * scale * sigma_squared,
            step_noise=n_steps * scale * step_sigma_squared,
            smallest_probability=smallest_probability,
            decay=decay,
            composite=composite,
        )

    first = step_sigma_squared * visits if composite else sigma_squared
    step = scale * (first + visits * step_sigma_squared)
    potential = distance_squared + 2.0 * visits * excess
    # The bound's derivative in K vanishes where 4 sinh²(K·rate/2) = ρ·V0·rate/step.
    angle = 2.0 * math.asinh(0.5 * math.sqrt(decay * potential * rate / step))
    n_steps = n_steps or find_best_integer(angle / rate, bound)
    noise = n_steps * step / (2.0 * (1.0 - decay * visits))
    return Rate(
        theorem="Theorem E: strongly convex"
        + (", with a penalty" if composite else ""),
        n_steps=n_steps,
        initial=bound(n_steps) - noise,
        noise=noise,
        decay=decay,
    )


def matrix_sigmas(
    block_sizes: ArrayLike, probabilities: ArrayLike, caps: ArrayLike, curvature: float
) -> tuple[float, float]:
    """Return Σ² and Σ_step² of steps that use a matrix M_B for each block (Theorem F).

    A step on block B is w_B ← w_B - M_B⁻¹(g_B + ζ_B). Here g is the gradient, and
    M_B = βA_BB is a block of a metric A, times β. It must be at least the block H_BB of
    the Hessian. The noise ζ_B is isotropic after multiplication by A_BB^(-½), with
    standard deviation νC_B√K. So Σ² = Σ_B d_B C_B²/β, and Σ_step² = Σ_B q_B d_B C_B²/β.

    Parameters
    ----------
    block_sizes, probabilities, caps : arrays of shape (b,)
        For each block B, the number d_B of its coordinates, the probability q_B that it
        is drawn, and the bound C_B on A_BB^(-½) times a record's gradient on B.
    curvature : float
        β, the bound on the second derivative of the loss, plus the factor λ of a ridge
        ½λ‖w - w⁰‖²_A.
    """
    name = "matrix_sigmas"
    sizes = check_positive(block_sizes, None, name, "block_sizes")
    q = check_positive(probabilities, len(sizes), name, "probabilities")
    reach = sizes * np.square(check_positive(caps, len(sizes), name, "caps"))
    check_sizes(name, curvature=curvature)
    return float(reach.sum() / curvature), float(q @ reach / curvature)


def _check_decay(function: str, decay: float, smallest: float) -> None:
    check(
        0 < decay < smallest,
        f"{function}: decay must be in (0, {smallest}), where the upper end is the "
        f"smallest probability, got {decay!r}.",
    )
