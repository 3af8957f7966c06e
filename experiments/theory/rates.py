"""Compute the bounds and rates that are printed and tested, but that no plan uses.

The names are those of `skdp.descent.bounds` and `skdp.descent.eso_bounds`, which have
what plans compute. Theorem 4.2 is that of the paper [1]_. The other theorems and all
proofs are in docs/guide/theory.md.

References
----------
.. [1] A. Maranjyan, A. Sadiev, P. Richtárik, "Differentially private random block
   coordinate descent", AISTATS 2025.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfinv, ndtri_exp

from skdp.descent.bounds import Budget, Rate, check_sizes, find_best_integer
from skdp.descent.samplings import check_positive
from skdp.privacy.accountant import check_range
from skdp.schema import check

# ---- Theorem 4.2 as printed, and its corrected restarts


def convex_printed(
    *, distance_squared: float, sigma_squared: float, budget: Budget
) -> Rate:
    """Return the rate of Theorem 4.2 for convex f, as printed.

    It assumes replace-one neighbours and the noise of Theorem 4.1. R² is
    `distance_squared`, and Σ² is `sigma_squared`. The number of steps is printed as
    K = nεR/(Σ√log(1/δ)), which omits a factor 12. With this K, the first term in the
    proof is ΣR√log(1/δ)/(nε), and the second is 12 times as large (erratum 5). Only ε,
    δ and n of the budget are used.
    """
    check_sizes(
        "convex_printed", distance_squared=distance_squared, sigma_squared=sigma_squared
    )
    unit = math.sqrt(math.log(1.0 / budget.delta)) / (budget.n_rows * budget.epsilon)
    distance, sigma = math.sqrt(distance_squared), math.sqrt(sigma_squared)
    return Rate(
        theorem="Theorem 4.2, convex, as printed",
        n_steps=max(1, math.ceil(distance / (sigma * unit))),
        initial=distance * sigma * unit,
        noise=12.0 * distance * sigma * unit,
    )


def strongly_convex_printed(
    *, condition: float, sigma_squared: float, excess: float, budget: Budget
) -> Rate:
    """Return the rate of Theorem 4.2 for strongly convex f, as the appendix prints it.

    Let κ = 1 + max_i(M_i/p_i)/μ and B = 24κΣ²log(1/δ)/(nε)². The bound is
    B(1 + log₂((f(w0) - f*)/B)), with T = log₂(24(f(w0) - f*)/B) inner loops of K = 2κ
    steps. Here K and T are rounded up to integers ≥ 1. The factor 24 does not follow
    from the proof (erratum 7). If f(w0) - f* < B, the bound is meaningless and may even
    be negative.

    Parameters
    ----------
    condition : float
        max_i(M_i/p_i)/μ, with μ the modulus in the Euclidean norm.
    sigma_squared, excess : float
        Σ² (see `sigma_squared`) and f(w0) - f*.
    budget : Budget
        Only n, ε and δ are used. Neighbours are replace-one, and the noise is the noise
        of Theorem 4.1.
    """
    check_sizes("strongly_convex_printed", condition=condition, excess=excess)
    check_sizes("strongly_convex_printed", sigma_squared=sigma_squared)
    unit = math.log(1.0 / budget.delta) / (budget.n_rows * budget.epsilon) ** 2
    level = 24.0 * (1.0 + condition) * sigma_squared * unit
    return Rate(
        theorem="Theorem 4.2, strongly convex, as printed",
        n_steps=math.ceil(2.0 * (1.0 + condition)),
        n_restarts=max(1, math.ceil(math.log2(24.0 * excess / level))),
        initial=level,
        noise=level * math.log2(excess / level),
    )


def strongly_convex_corrected(
    *, condition: float, sigma_squared: float, excess: float, budget: Budget
) -> Rate:
    """Return the corrected rate of Theorem 4.2 for strongly convex f (erratum 7).

    Let κ = 1 + max_i(M_i/p_i)/μ. If the excess f - f* is at most F before an inner loop
    of K = ⌈2κ⌉ steps, it is at most κF/K + N1 afterwards. So each loop halves F, up to
    noise. After T loops the excess is at most F/2^T + 2N1, with N1 = ν²Σ²KT and ν the
    noise scale of the budget. Let B = 2Kν²Σ², which is 4κν²Σ² up to the rounding of K.
    With the noise of the paper, B = 48κΣ²log(1/δ)/(nε)². Then T = ⌈log₂(F/B)⌉ gives an
    excess of at most B(2 + log₂(F/B)).

    Parameters
    ----------
    condition : float
        max_i(M_i/p_i)/μ, with μ the modulus in the Euclidean norm.
    sigma_squared, excess : float
        Σ² (see `sigma_squared`) and F = f(w0) - f*.
    budget : Budget
        The budget.
    """
    check_sizes("strongly_convex_corrected", condition=condition, excess=excess)
    check_sizes("strongly_convex_corrected", sigma_squared=sigma_squared)
    n_steps = math.ceil(2.0 * (1.0 + condition))
    level = 2.0 * n_steps * budget.noise_scale**2 * sigma_squared
    n_restarts = max(1, math.ceil(math.log2(excess / level)))
    return Rate(
        theorem="strongly convex, restarts",
        n_steps=n_steps,
        n_restarts=n_restarts,
        initial=excess / 2.0**n_restarts,
        noise=level * n_restarts,
    )


# ---- One run for strongly convex f, without restarts (Theorem C)


def strongly_convex_weighted(
    *,
    modulus: float,
    probabilities: ArrayLike,
    distance_squared: float,
    sigma_squared: float,
    budget: Budget,
) -> Rate:
    """Return the rate of one run for strongly convex f (Theorem C).

    The average has weights (1 - μ̃)^(-k), and the number of steps minimises
    `weighted_bound`. Diag(M) ⪰ H is required, where H bounds the Hessian of f. For a
    run with restarts (`strongly_convex_corrected`), the same lemma gives a noise term
    that is 4/log 2 = 5.8 times as large, to leading order (erratum 7).

    Parameters
    ----------
    modulus : float
        μ̃, the modulus of strong convexity in the norm M P⁻¹. It is at least
        μ/max_i(M_i/p_i), where μ is the modulus in the Euclidean norm. A smaller number
        is also valid. It gives a better bound if μ̃ is near the smallest probability.
    probabilities : array of shape (n_coordinates,)
        p_j = P(j ∈ S).
    distance_squared, sigma_squared : float
        D0 and Σ², as returned by the functions of the same names.
    budget : Budget
        The budget.
    """
    check_sizes("strongly_convex_weighted", distance_squared=distance_squared)
    check_sizes("strongly_convex_weighted", sigma_squared=sigma_squared)
    p = check_positive(probabilities, None, "strongly_convex_weighted", "probabilities")
    check(
        0 < modulus < p.min(),
        f"strongly_convex_weighted: modulus must be in (0, {p.min()}), where the upper "
        f"end is the smallest probability, got {modulus!r}.",
    )
    ratio = modulus / float(p.min())
    loss = ratio if np.ptp(p) <= 1e-12 * p.max() else math.sqrt(ratio)
    step = budget.noise_scale**2 * sigma_squared
    rate = -math.log1p(-modulus)

    def bound(n_steps: int) -> float:
        return weighted_bound(
            n_steps,
            distance_squared=distance_squared,
            noise=n_steps * step,
            decay=modulus,
            loss=loss,
        )

    # The bound's derivative in K vanishes where 4 sinh²(K·rate/2) = μ̃·D0·rate/step.
    angle = 2.0 * math.asinh(0.5 * math.sqrt(modulus * distance_squared * rate / step))
    n_steps = find_best_integer(angle / rate, bound)
    noise = 0.5 * n_steps * step / (1.0 - loss)
    return Rate(
        theorem="Theorem C: strongly convex, weighted average, Diag(M) ⪰ H",
        n_steps=n_steps,
        initial=bound(n_steps) - noise,
        noise=noise,
        decay=modulus,
    )


def weighted_bound(
    n_steps: int,
    *,
    distance_squared: float,
    noise: float,
    decay: float,
    loss: float,
    include_start: bool = True,
    start_excess: float = 0.0,
) -> float:
    """Bound E f(average) - f* for an average with weights (1 - μ̃)^(-k) (Theorem C).

    Let r = μ̃/((1 - μ̃)^(-K) - 1). For the average of θ_k over k = 0, …, K-1, the bound
    is U = (r·D0 + N1)/(2(1 - s)). For the average over k = 1, …, K, it is
    (1 - μ̃)U - r(f(w0) - f*). Both bounds tend to `convex_bound` as μ̃ → 0.

    Parameters
    ----------
    n_steps : int
        The number of steps K.
    distance_squared, noise : float
        D0 and N1, as in `convex_bound`.
    decay : float
        μ̃, the modulus of strong convexity in the norm M P⁻¹, or a smaller number.
    loss : float
        s, which is μ̃/p if all probabilities equal p, and √(μ̃/p_min) otherwise.
    include_start : bool
        Whether the average is over θ_0, …, θ_{K-1} rather than θ_1, …, θ_K.
    start_excess : float
        A lower bound on f(w0) - f*. It is used only if `include_start` is False.
    """
    share = decay / math.expm1(min(-n_steps * math.log1p(-decay), 700.0))
    bound = (share * distance_squared + noise) / (2.0 * (1.0 - loss))
    return bound if include_start else (1.0 - decay) * bound - share * start_excess


# ---- Bounds after any number of steps (Theorems B, D and F)


def eso_bound(
    n_steps: int,
    *,
    distance_squared: float,
    excess: float,
    noise: float,
    step_noise: float,
    smallest_probability: float,
    include_start: bool = True,
) -> float:
    """Bound E f(average) - f* after K steps, if E[I_S H I_S] ⪯ PM (Theorem B).

    Let v = 1/p_min. The bound is (D0/2 + v·(f(w0) - f*))/K + (N1 + v·N2)/2 for the
    average of θ_0, …, θ_{K-1}. For the average of θ_1, …, θ_K, v - 1 replaces the
    first v.

    Parameters
    ----------
    n_steps : int
        K.
    distance_squared, excess : float
        D0 = ‖w0 - w*‖² in the norm M P⁻¹, and a bound on f(w0) - f*.
    noise, step_noise : float
        N1 = Σ_j E[1{j∈S} σ_S²]/(p_j M_j) and N2 = Σ_j E[1{j∈S} σ_S²]/M_j, where σ_S is
        the standard deviation of the noise on S. If p is uniform, v·N2 = N1.
    smallest_probability : float
        p_min, the smallest p_j.
    include_start : bool
        Whether the average is over θ_0, …, θ_{K-1} rather than θ_1, …, θ_K.
    """
    check_sizes("eso_bound", n_steps=n_steps, smallest_probability=smallest_probability)
    visits = 1.0 / smallest_probability
    initial = 0.5 * distance_squared + (visits - (not include_start)) * excess
    return initial / n_steps + 0.5 * (noise + visits * step_noise)


def composite_bound(
    n_steps: int,
    *,
    distance_squared: float,
    excess: float,
    step_noise: float,
    smallest_probability: float,
    include_start: bool = True,
) -> float:
    """Bound E F(average) - F* after K proximal steps, with F = f + ψ (Theorem D).

    Let v = 1/p_min. The bound is (D0/2 + v·(F(w0) - F*))/K + v·N2 for the average of
    θ_0, …, θ_{K-1}. For the average of θ_1, …, θ_K, v - 1 replaces the first v. If all
    probabilities are equal, the bound equals `eso_bound`, so the penalty costs nothing.

    Parameters
    ----------
    n_steps : int
        K.
    distance_squared, excess : float
        D0 = ‖w0 - w*‖² in the norm M P⁻¹, and a bound on F(w0) - F*.
    step_noise : float
        N2 = Σ_j E[1{j∈S} σ_S²]/M_j, where σ_S is the standard deviation of the noise.
    smallest_probability : float
        p_min, the smallest p_j.
    include_start : bool
        Whether the average is over θ_0, …, θ_{K-1} rather than θ_1, …, θ_K.
    """
    check_sizes(
        "composite_bound", n_steps=n_steps, smallest_probability=smallest_probability
    )
    visits = 1.0 / smallest_probability
    initial = 0.5 * distance_squared + (visits - (not include_start)) * excess
    return initial / n_steps + visits * step_noise


def matrix_distance_squared(
    metrics: Sequence[ArrayLike],
    blocks: Sequence[ArrayLike],
    probabilities: ArrayLike,
    displacement: ArrayLike,
) -> float:
    """Return D0 = Σ_B ‖(w0 - w*)_B‖²/q_B in the norms of the matrices M_B (Theorem F).

    Parameters
    ----------
    metrics : sequence of square arrays
        M_B for each block.
    blocks : sequence of index arrays
        The blocks B.
    probabilities : array of shape (b,)
        The probability q_B that a step draws block B.
    displacement : array of shape (d,)
        w0 - w*, the start minus the optimum.
    """
    away = np.asarray(displacement, dtype=np.float64)
    parts = zip(metrics, blocks, np.asarray(probabilities), strict=True)
    return float(
        math.fsum(
            away[np.asarray(b)] @ np.asarray(m) @ away[np.asarray(b)] / q
            for m, b, q in parts
        )
    )


# ---- The μ of pure ε-DP, for comparisons


def pure_mu(epsilon: float) -> float:
    r"""Return the smallest μ such that every ε-DP mechanism is μ-GDP.

    This μ is 2Φ⁻¹(e^ε/(1 + e^ε)).

    Parameters
    ----------
    epsilon : float
        In (0, inf].

    Returns
    -------
    float
        μ, rounded up. It is infinite if `epsilon` is infinite.

    Notes
    -----
    **Guarantee.** For all ε > 0, every (ε, 0)-DP mechanism is pure_mu(ε)-GDP, so its μ²
    adds to the μ² of other mechanisms (Dong, Roth & Su 2022, Theorem 3.2).

    Proof. The trade-off curve of ε-DP consists of two segments, from (0, 1) and from
    (1, 0), that meet at c = 1/(1 + e^ε) on the diagonal (Proposition 2.5 of the same
    paper). The curve of μ-GDP is convex, has the same ends and crosses the diagonal at
    Φ(-μ/2). By convexity, the curve of μ-GDP lies below the curve of ε-DP everywhere if
    and only if it does so on the diagonal, that is, if Φ(-μ/2) ≤ c.
    """
    check_range(epsilon=epsilon)
    if epsilon < 1:  # Φ(μ/2) - 1/2 = tanh(ε/2)/2 loses no digits near 1/2
        mu = 2 * math.sqrt(2) * float(erfinv(math.tanh(max(epsilon, 1e-300) / 2)))
    else:
        mu = -2 * float(ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon))))
    return mu * (1 + 2e-12)
