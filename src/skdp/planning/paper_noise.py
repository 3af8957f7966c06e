"""Compute the noise of Theorem 4.1 and the μ of pure ε-DP, for comparisons.

References
----------
.. [1] A. Maranjyan, A. Sadiev, P. Richtárik, "Differentially private random block
   coordinate descent", AISTATS 2025.
.. [2] I. Mironov, "Rényi differential privacy", CSF 2017.
"""

import math

from scipy.special import erfinv, ndtri_exp

from skdp.privacy.accountant import check_range
from skdp.schema import check


def paper_noise_multiplier(epsilon: float, delta: float, n_releases: int) -> float:
    """Return the noise multiplier of the DP-SkGD paper, z = √(3 n log(1/δ))/ε.

    Theorem 4.1 of [1]_ is about n = KT releases of a mean of N gradients, each of norm
    at most L. It uses noise of variance σ² = 12 L² n log(1/δ)/(N ε)². This is (zΔ)²
    with the replace-one sensitivity Δ = 2L/N. For usual budgets, exact accounting
    (`noise_multiplier` of `gdp_mu`) gives a multiplier that is 1.2 to 1.9 times
    smaller.

    Parameters
    ----------
    epsilon : float
        In (0, 1.101 log(1/δ)].
    delta : float
        In (0, 1).
    n_releases : int
        Number of releases that share the budget equally, KT in the paper.

    Returns
    -------
    float
        z, rounded up.

    Notes
    -----
    **Guarantee.** For all δ in (0, 1), 0 < ε ≤ 1.101 log(1/δ) and n ≥ 1, any n
    Gaussian releases, each chosen knowing the earlier ones and each with noise of
    standard deviation at least z times its sensitivity, are together (ε, δ)-DP.

    Proof. Let l = log(1/δ) and μ = ε/√(3l). The releases are (α, αμ²/2)-Rényi-DP for
    all α > 1, hence (αμ²/2 + l/(α - 1), δ)-DP (Mironov 2017, Proposition 3). The best α
    gives (μ²/2 + μ√(2l), δ)-DP. Finally, ε²/(6l) + ε√(2/3) ≤ ε if and only if
    ε ≤ (6 - 2√6) l = 1.10102 l.

    The theorem as printed requires ε ≤ 1 and δ < 1/3, which is inside this range. No
    larger multiple of l is valid for every δ. The largest valid multiple decreases to
    6 - 2√6 as δ decreases to 0. It is 1.83 at δ = 1e-5 and 1.39 at δ = 1e-15.
    """
    check_range(epsilon=epsilon, delta=delta, n_releases=n_releases)
    log_term = -math.log(delta)
    check(
        epsilon <= 1.101 * log_term,
        "epsilon must be at most 1.101 log(1/delta) = "
        f"{1.101 * log_term:.6g} for calibration='paper', got {epsilon!r}.",
    )
    return math.sqrt(3 * n_releases * log_term) / epsilon * (1 + 2.0**-49)


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
