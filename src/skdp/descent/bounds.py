r"""Compute the utility bounds of Theorem 4.2 of the paper [1]_, corrected.

One step of Algorithm 1 draws a set S and moves the coordinates j in S by
:math:`-(\nabla_j f(θ) + η_j)/M_j`, where :math:`η ∼ N(0, σ_S^2 I)`. With
:math:`p_j = P(j ∈ S)`, all bounds follow from three numbers,

.. math::

    D_0 = \|w_0 - w_*\|^2_{MP^{-1}}, \qquad
    Σ^2 = E\Big[L_S^2 \sum_{j∈S} \frac{1}{p_j M_j}\Big], \qquad
    ν = \frac{c}{n μ},

where L_S bounds a record's gradient on S, c is 2 for replace-one neighbours and 1
otherwise, and μ is the Gaussian-DP parameter of the whole run. A run of K·T steps has
:math:`σ_S = ν L_S \sqrt{KT}`. So each step adds :math:`N_1 = ν^2 Σ^2 KT` to E D,
where D is the squared distance to w_* in the norm of D_0.

There are two possible assumptions on the smoothness M. Let H be a bound on the
Hessian of f, and P the diagonal matrix of p. If ``Diag(M) ⪰ H``, as the paper
assumes, use `convex_tight` (Theorem A). Coordinate- or block-wise constants M only
give an expected separable overapproximation, ``E[I_S H I_S] ⪯ PM``. In that case use
`convex_eso` (Theorem B), or multiply M by a factor s with ``s·Diag(M) ⪰ H`` (the number
of blocks of a partition always works). Such a factor does not change the bound of
`convex_tight`, but multiplies its number of steps by s. Penalties, strong convexity and
matrices per block under this weaker assumption are in `skdp.descent.eso_bounds`. Proofs
are in docs/guide/theory.md.

References
----------
.. [1] A. Maranjyan, A. Sadiev, P. Richtárik, "Differentially private random block
   coordinate descent", AISTATS 2025.
.. [2] I. Mironov, "Rényi differential privacy", CSF 2017.
.. [3] Z. Qu, P. Richtárik, "Coordinate descent with arbitrary sampling II: expected
   separable overapproximation", Optimization Methods and Software 31 (2016).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skdp.descent.samplings import Sampling, check_positive
from skdp.privacy.accountant import check_range, gdp_mu
from skdp.schema import check
from skdp.schema.validation import fact

__all__ = [
    "Budget",
    "Prior",
    "Rate",
    "convex_bound",
    "convex_eso",
    "convex_tight",
    "distance_squared",
    "sigma_squared",
    "step_sigma_squared",
]

Lipschitz = float | Sequence[float] | NDArray[np.float64] | Callable[..., float]
"""Bounds L_S on a record's gradient on S: one for all S, one per S, or a function."""

_SENSITIVITY = {"replace-one": 2.0, "zero-out": 1.0, "add-remove": 1.0}
_CALIBRATIONS = ("exact", "paper")
#: Largest number of coordinates for which all pair probabilities are computed.
MOST_PAIRS = 4096


def check_sizes(function: str, *, zero: bool = False, **values: float) -> None:
    """Raise if a number is not finite and positive (or zero, if `zero` is true)."""
    least = "of at least 0" if zero else "greater than 0"
    for name, value in values.items():
        check(
            0 < value < math.inf or (zero and value == 0),
            f"{function}: {name} must be a finite number {least}, got {value!r}.",
        )


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


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The privacy budget and how it is counted.

    Parameters
    ----------
    n_rows : int
        Number of records (public).
    epsilon, delta : float
        The budget.
    neighbours : {"replace-one", "zero-out", "add-remove"}
        Which tables are neighbours. The default is the paper's. If no record's gradient
        has a norm above L, sums of gradients on neighbouring tables differ by at most
        2L for "replace-one", and by at most L for the others.
    calibration : {"exact", "paper"}
        How μ is computed from (ε, δ): exactly, or by Theorem 4.1. The noise variance of
        Theorem 4.1, 3·(2L)²·K·T·log(1/δ)/(nε)², corresponds to μ = ε/√(3 log(1/δ)). The
        paper states the theorem for ε ≤ 1. Its proof holds for ε ≤ 1.101·log(1/δ),
        which is checked (erratum 2).
    presence : float
        The part of the steps that one record can take part in, in (0, 1]. It is 1 if
        every step moves whole columns (`skdp.privacy.visits`).
    """

    n_rows: int
    epsilon: float
    delta: float
    neighbours: str = "replace-one"
    calibration: str = "exact"
    presence: float = 1.0
    #: The Gaussian-DP parameter of the whole run.
    mu: float = fact()

    def __post_init__(self) -> None:
        check_sizes("Budget", n_rows=self.n_rows, epsilon=self.epsilon)
        check(
            0 < self.delta < 1, f"Budget: delta must be in (0, 1), got {self.delta!r}."
        )
        check(
            self.neighbours in _SENSITIVITY,
            f"Budget: neighbours must be one of {tuple(_SENSITIVITY)}, got "
            f"{self.neighbours!r}.",
        )
        check(
            self.calibration in _CALIBRATIONS,
            f"Budget: calibration must be one of {_CALIBRATIONS}, got "
            f"{self.calibration!r}.",
        )
        check(
            0 < self.presence <= 1,
            f"Budget: presence must be in (0, 1], got {self.presence!r}.",
        )
        # The accountant checks the range of ε.
        if self.calibration == "exact":
            mu = float(gdp_mu(self.epsilon, self.delta))
        else:
            mu = 1.0 / paper_noise_multiplier(self.epsilon, self.delta, 1)
        vars(self).update(mu=mu)

    @property
    def noise_scale(self) -> float:
        """The noise scale ν = c√a/(nμ), with c = 2 for replace-one and 1 otherwise.

        a is the `presence`. In a run of K·T steps, the noise on a set S has standard
        deviation ν·L_S·√(KT), where L_S bounds a record's gradient on S.
        """
        reach = _SENSITIVITY[self.neighbours] * math.sqrt(self.presence)
        return reach / (self.n_rows * self.mu)


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Assumptions about the start w0 and the optimum w*, made without the data.

    Parameters
    ----------
    block_norm : float
        Bound on the Euclidean norm of w0 - w* on each block.
    displacement : tuple of float, optional
        w0 - w* itself, if it is known. If given, `block_norm` is not used.
    excess : float
        Bound on f(w0) - f(w*). The default log 2 is valid for logistic regression that
        starts at 0.
    """

    block_norm: float = 1.0
    displacement: tuple[float, ...] | None = None
    excess: float = math.log(2.0)

    def __post_init__(self) -> None:
        check_sizes("Prior", block_norm=self.block_norm, excess=self.excess)

    def __str__(self) -> str:
        known = self.displacement is not None
        near = "w⁰ - w* is as given" if known else "every block of w⁰ - w* has norm at "
        return near + ("" if known else f"most {self.block_norm:.3g}")

    def distance_squared(
        self, weights: ArrayLike, blocks: Sequence[ArrayLike]
    ) -> float:
        """Return the largest Σ_j weights_j (w0 - w*)_j² that the prior allows."""
        weights = check_positive(weights, None, "distance_squared", "weights")
        if self.displacement is not None:
            return float(weights @ np.square(self.displacement))
        largest = [weights[np.asarray(block)].max() for block in blocks]
        return float(self.block_norm**2 * math.fsum(largest))


@dataclass(frozen=True, kw_only=True)
class Rate:
    """A number of steps, and a bound on the excess risk after that many steps.

    Parameters
    ----------
    theorem : str
        The theorem that gives the bound.
    n_steps, n_restarts : int
        The number of steps in each inner loop, and the number of inner loops.
    initial, noise : float
        The two terms of the bound on E f - f*, due to the start and to the noise.
    decay : float
        The average weighs iterate k in proportion to (1 - decay)^(-k).
    """

    theorem: str
    n_steps: int
    n_restarts: int = 1
    initial: float
    noise: float
    decay: float = 0.0

    @property
    def bound(self) -> float:
        """Bound on the expected excess risk E f - f*, if the theorem applies."""
        return self.initial + self.noise

    def take_steps(self, n_steps: int) -> "Rate":
        """Return the rate for another number of steps K.

        This is valid only for convex rates, where `initial` is proportional to 1/K and
        `noise` to K.
        """
        longer = n_steps / self.n_steps
        return replace(
            self,
            n_steps=n_steps,
            initial=self.initial / longer,
            noise=self.noise * longer,
        )


def distance_squared(
    smoothness: ArrayLike, probabilities: ArrayLike, displacement: ArrayLike
) -> float:
    """Return D0 = ‖w0 - w*‖² in the norm M P⁻¹, which is Σ_j M_j (w0 - w*)_j²/p_j.

    This is the paper's R², not R (erratum 9).
    """
    smoothness = check_positive(smoothness, None, "distance_squared", "smoothness")
    probabilities = check_positive(
        probabilities, None, "distance_squared", "probabilities"
    )
    return float((smoothness / probabilities) @ np.square(displacement))


def _expected_set_sum(
    sampling: Sampling,
    weights: NDArray[np.float64],
    lipschitz: Lipschitz,
    parts: Sequence[ArrayLike] | None,
) -> float:
    """Return E[L_S² Σ_{j∈S} weights_j], or a bound if the sets are not listed."""
    if isinstance(lipschitz, int | float):
        return float(lipschitz**2 * (sampling.probabilities @ weights))
    if sampling.support is None or sampling.set_probabilities is None:
        if parts is not None and callable(lipschitz):
            return _bound_set_sum(sampling, weights, lipschitz, parts)
        raise ValueError(
            "sigma_squared: lipschitz must be one number, because this sampling does "
            f"not list its sets, got {lipschitz!r}."
        )
    if callable(lipschitz):
        bounds = np.array([lipschitz(block) for block in sampling.support])
    else:
        bounds = np.asarray(lipschitz, dtype=np.float64)
    if bounds.shape != (len(sampling.support),):
        raise ValueError(
            "sigma_squared: lipschitz must be one number per set "
            f"({len(sampling.support)}), got {lipschitz!r}."
        )
    sums = np.array([weights[block].sum() for block in sampling.support])
    return float(sampling.set_probabilities @ (np.square(bounds) * sums))


def _bound_set_sum(
    sampling: Sampling,
    weights: NDArray[np.float64],
    lipschitz: Callable[..., float],
    parts: Sequence[ArrayLike],
) -> float:
    """Bound E[L_S² Σ_{j∈S} weights_j] by pair probabilities.

    L_S² is at most the sum of L_G² over the parts G that S meets. So the expectation is
    at most Σ_j weights_j Σ_G L_G² P(j ∈ S, S meets G). The last probability is at most
    p_j, and at most the sum over i in G of the pair probabilities P(i, j ∈ S).
    """
    p, everything = sampling.probabilities, np.arange(sampling.n_coordinates)
    total = lipschitz(everything) ** 2 * p
    if sampling.coupling is None and len(p) > MOST_PAIRS:
        return float(weights @ total)
    if sampling.coupling is None:
        pairs = sampling.pair_probabilities(everything)
    else:
        root = np.sqrt(p * sampling.coupling)
    found = np.zeros(len(p))
    for part in map(np.asarray, parts):
        if sampling.coupling is None:
            met = pairs[:, part].sum(axis=1)
        else:
            met = root * root[part].sum()
        met[part] = p[part]  # S meets the part that j is in
        found += lipschitz(part) ** 2 * np.minimum(met, p)
    return float(weights @ np.minimum(found, total))


def sigma_squared(
    sampling: Sampling,
    smoothness: ArrayLike,
    lipschitz: Lipschitz,
    parts: Sequence[ArrayLike] | None = None,
) -> float:
    """Return Σ² = E[L_S² Σ_{j∈S} 1/(p_j M_j)] of Theorem 4.2.

    Here p_j = P(j ∈ S). If the sets are the blocks of a partition and B(j) is the block
    of j, then Σ² is Σ_j L²_{B(j)}/M_j for all probabilities.

    Parameters
    ----------
    sampling : Sampling
        The distribution of S. The theorems assume independent draws. `ShuffledBlocks`
        draws dependent sets, and gets the value of `Blocks` with the same marginals.
    smoothness : array of shape (n_coordinates,)
        The smoothness constants M_j.
    lipschitz : float, array of shape (n_sets,) or callable S -> L_S
        L_S, a bound on the norm of a record's gradient on S.
    parts : sequence of index arrays, optional
        A partition of the coordinates such that L_S² is at most the sum of L_G² over
        the parts G that S meets, for example the columns of a table. If the sampling
        does not list its sets and L_S is a function, this gives a bound on Σ² instead.
        The bound equals Σ² if the parts are single coordinates and L_S² is a sum.
    """
    smoothness = check_positive(smoothness, None, "sigma_squared", "smoothness")
    weights = 1.0 / (sampling.probabilities * smoothness)
    return _expected_set_sum(sampling, weights, lipschitz, parts)


def step_sigma_squared(
    sampling: Sampling,
    smoothness: ArrayLike,
    lipschitz: Lipschitz,
    parts: Sequence[ArrayLike] | None = None,
) -> float:
    """Return E[L_S² Σ_{j∈S} 1/M_j], which `convex_eso` uses.

    In a run of K·T steps with noise scale ν (`Budget.noise_scale`), the noise of one
    step increases f, in expectation, by at most ½ν²KT times this value. The parameters
    are those of `sigma_squared`.
    """
    smoothness = check_positive(smoothness, None, "step_sigma_squared", "smoothness")
    return _expected_set_sum(sampling, 1.0 / smoothness, lipschitz, parts)


def convex_bound(
    n_steps: int,
    *,
    distance_squared: float,
    noise: float,
    include_start: bool = True,
    start_excess: float = 0.0,
) -> float:
    """Bound E f(average) - f* after K steps, if Diag(M) ⪰ H (Theorem A).

    The bound is D0/(2K) + N1/2 for the average of θ_0, …, θ_{K-1}. For the average of
    θ_1, …, θ_K it is smaller by (f(w0) - f*)/K. The same bounds hold for the average
    of the values f(θ_k).

    Parameters
    ----------
    n_steps : int
        K.
    distance_squared, noise : float
        D0 = ‖w0 - w*‖² in the norm M P⁻¹, and N1 = Σ_j E[1{j∈S} σ_S²]/(p_j M_j), where
        σ_S is the standard deviation of the noise on S.
    include_start : bool
        Whether the average is over θ_0, …, θ_{K-1} rather than θ_1, …, θ_K.
    start_excess : float
        A lower bound on f(w0) - f*. It is used only if `include_start` is False.
    """
    check_sizes("convex_bound", n_steps=n_steps)
    check_sizes(
        "convex_bound",
        zero=True,
        distance_squared=distance_squared,
        noise=noise,
        start_excess=start_excess,
    )
    gain = 0.0 if include_start else start_excess
    return (0.5 * distance_squared - gain) / n_steps + 0.5 * noise


def find_best_integer(real: float, value: Callable[[int], float]) -> int:
    """Return the integer ≥ 1 at which a convex function is smallest.

    `real` is the real number that minimises the function.
    """
    low = max(1, math.floor(real))
    return min((low, low + 1), key=value)


def balance_steps(theorem: str, initial: float, step: float) -> Rate:
    """Return the rate with the K that minimises initial/K + step·K.

    Here K is the number of steps. The first term is the influence of the start, and the
    second is the noise.
    """
    n_steps = find_best_integer(
        math.sqrt(initial / step), lambda k: initial / k + step * k
    )
    return Rate(
        theorem=theorem,
        n_steps=n_steps,
        initial=initial / n_steps,
        noise=step * n_steps,
    )


def convex_tight(
    *, distance_squared: float, sigma_squared: float, budget: Budget
) -> Rate:
    """Return the corrected rate of Theorem 4.2 for convex f (Theorem A, errata 4, 5).

    It requires Diag(M) ⪰ H, where H bounds the Hessian of f. Let R² be
    `distance_squared`, Σ² be `sigma_squared`, and ν be the noise scale of the budget.
    The best number of steps is K* = R/(νΣ), rounded to an integer. Up to this rounding,
    the bound is νRΣ, which is 2RΣ/(nμ) for replace-one neighbours and RΣ/(nμ)
    otherwise. Multiplying M by any s ≥ 1 leaves the bound unchanged and multiplies K*
    by s.
    """
    check_sizes(
        "convex_tight", distance_squared=distance_squared, sigma_squared=sigma_squared
    )
    step = budget.noise_scale**2 * sigma_squared

    def bound(n_steps: int) -> float:
        return convex_bound(
            n_steps, distance_squared=distance_squared, noise=n_steps * step
        )

    n_steps = find_best_integer(math.sqrt(distance_squared / step), bound)
    return Rate(
        theorem="Theorem A: convex, Diag(M) ⪰ H",
        n_steps=n_steps,
        initial=distance_squared / (2.0 * n_steps),
        noise=0.5 * n_steps * step,
    )


def convex_eso(
    *,
    distance_squared: float,
    sigma_squared: float,
    step_sigma_squared: float,
    smallest_probability: float,
    excess: float,
    budget: Budget,
) -> Rate:
    """Return the convex rate for expected separable overapproximations (Theorem B).

    Let A = D0/2 + (f(w0) - f*)/p_min and B² = (Σ² + Σ_step²/p_min)/2, and let ν be the
    noise scale of the budget. Then the best number of steps is K* = √A/(νB), and the
    bound is 2ν√A·B. For b equally likely blocks, B = Σ and p_min = 1/b.

    Parameters
    ----------
    distance_squared, sigma_squared, step_sigma_squared : float
        D0, Σ² and Σ_step², as returned by the functions of the same names.
    smallest_probability : float
        p_min, the smallest p_j.
    excess : float
        Bound on f(w0) - f*.
    budget : Budget
        The budget.
    """
    check_sizes(
        "convex_eso", distance_squared=distance_squared, sigma_squared=sigma_squared
    )
    check_sizes(
        "convex_eso",
        step_sigma_squared=step_sigma_squared,
        smallest_probability=smallest_probability,
    )
    check_sizes("convex_eso", zero=True, excess=excess)
    scale = budget.noise_scale**2
    initial = 0.5 * distance_squared + excess / smallest_probability
    step = 0.5 * scale * (sigma_squared + step_sigma_squared / smallest_probability)

    return balance_steps(
        "Theorem B: convex, expected separable overapproximation", initial, step
    )
