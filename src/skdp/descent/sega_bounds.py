r"""Compute the utility bound of DP-SEGA, for any convex penalty.

A step of DP-SEGA releases the gradient on a set S with noise η of variance σ_S², forms
the unbiased estimate :math:`g = h + P^{-1} I_S (∇f(θ) + η - h)` of the gradient,
corrects the memory, :math:`h ← h + α I_S (∇f(θ) + η - h)`, and moves all coordinates,

.. math::

    θ ← \operatorname{argmin}_u \tfrac12 \|u - (θ - Q^{-1} g)\|_Q^2 + ψ(u).

Here :math:`p_j = P(j ∈ S)`, α in (0, 1] is the damping, and Q is a diagonal metric.
The theorem, its assumptions and its proof are in docs/guide/sega.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skdp.descent.bounds import Budget, Rate
from skdp.descent.samplings import Sampling
from skdp.schema import FloatArray, IntArray, check
from skdp.schema.validation import fact

#: Values of the damping that `choose_sega_rate` tries.
DAMPINGS = tuple(k / 20 for k in range(1, 21))


@dataclass(frozen=True, kw_only=True, eq=False)
class Sega:
    """The constants of DP-SEGA: probabilities, smoothness, metric and damping.

    Parameters
    ----------
    probabilities : float64 (d,)
        p_j = P(j in S).
    smoothness : float64 (d,)
        M, with Diag(M) ⪰ H, where H bounds the Hessian of the mean loss f. Constants
        for each block are not enough, because every step moves all coordinates.
    metric : float64 (d,)
        Q, at least `least_metric` and greater than M.
    damping : float
        α in (0, 1].
    modulus : float
        μ, the modulus of strong convexity of the mean loss f in the norm of Q.
    ridge : float
        λ, the modulus of strong convexity of the penalty ψ in the norm of Q.
    share : float
        The share s in [0, 1) of the convexity of f that is used as strong convexity.
        It is only needed if `modulus` is positive.
    """

    probabilities: FloatArray
    smoothness: FloatArray
    metric: FloatArray
    damping: float
    modulus: float = 0.0
    ridge: float = 0.0
    share: float = 0.0
    #: The decay ρ, with 1 - ρ = (1 - sμ)/(1 + λ), where s is `share`, μ is `modulus`
    #: and λ is `ridge`. Iterate k has weight (1 - ρ)^(-k) in the average.
    decay: float = fact()

    def __post_init__(self) -> None:
        for name in ("probabilities", "smoothness", "metric"):
            given = np.asarray(getattr(self, name), dtype=np.float64)
            object.__setattr__(self, name, given)
        p, alpha = self.probabilities, self.damping
        check(
            bool(np.all((p > 0) & (p <= 1))) and 0 < alpha <= 1,
            "probabilities and damping must be in (0, 1].",
        )
        check(
            min(self.modulus, self.ridge) >= 0 and 0 <= self.share < 1,
            "modulus and ridge must be at least 0, and share must be in [0, 1).",
        )
        decay = 1.0 - (1.0 - self.share * self.modulus) / (1.0 + self.ridge)
        vars(self).update(decay=decay)
        check(
            bool(decay < alpha * p.min()),
            f"The decay ({self.decay:g}) must be below `damping` times the smallest "
            f"probability ({alpha * p.min():g}). Reduce `share`, `modulus` or `ridge`.",
        )
        least = least_metric(self.smoothness, p, alpha, self.decay, self.share)
        check(
            bool(np.all(self.metric >= least * (1 - 1e-12)))
            and bool(np.all(self.metric > self.smoothness)),
            "metric must be at least `least_metric` and greater than smoothness.",
        )

    def compute_start(self, displacement: FloatArray, memory: FloatArray) -> float:
        """Return V0, the distance of the start from the solution.

        V0 = (1 + λ) Σ_j Q_j δ_j² + Σ_j c_j (h_j - ∇_j f(w*))² / (Q_j - M_j). Here h is
        the memory, c is from `find_constants`, and the other letters are those of
        `Sega`.

        Parameters
        ----------
        displacement, memory : float64 (d,) or (d, k)
            δ = w0 - w*, and h - ∇f(w*) at the start.
        """
        p, alpha = self.probabilities, self.damping
        _, c = find_constants(p, alpha, self.decay)
        gap = self.metric - self.smoothness
        moved = (_sum_squares(displacement) * self.metric).sum()
        return float(
            (1.0 + self.ridge) * moved + (_sum_squares(memory) * c / gap).sum()
        )

    def compute_noise(self, variances: FloatArray) -> float:
        """Return N, the expected increase of the distance by the noise of one step.

        The distance at the start is V0 (see `compute_start`).
        N = Σ_j s_j (1/p_j² + α² c_j)/(Q_j - M_j), where s_j is defined below, c is from
        `find_constants`, and the other letters are those of `Sega`.

        Parameters
        ----------
        variances : float64 (d,)
            s_j = E[1{j in S} σ_S²], times the number of outputs. σ_S² is the variance
            of the noise on S.
        """
        p, alpha = self.probabilities, self.damping
        _, c = find_constants(p, alpha, self.decay)
        gap = self.metric - self.smoothness
        return float((variances * (1.0 / p**2 + alpha**2 * c) / gap).sum())


def _sum_squares(values: FloatArray) -> FloatArray:
    """Return the sum of squares of each row of an array (d,) or (d, k)."""
    return np.asarray(np.square(values).reshape(len(values), -1).sum(axis=1))


def find_constants(
    probabilities: FloatArray, damping: float, decay: float = 0.0
) -> tuple[FloatArray, FloatArray]:
    """Return the constants m and c, each (d,), that bound the error of the memory h.

    Let p be the probabilities, α the damping and ρ the decay. Let t = ρ/p,
    A = α(2 - α) - t and y = (α - t)/(α √(1 - t)). Then c = (1 - p)(1 + y)/(p² A), and m
    is the least number with

        ((1 - p)/p) (a - b)² + c (1 - p) b² + c p ((1 - α) b + α a)²
            ≤ (1 - ρ) c b² + m ((1 - p)/p) a²   for all a and b.

    For ρ = 0, m = 4/(2 - α)² and c = 2 (1 - p)/(α (2 - α) p²).
    """
    p, alpha = probabilities, damping
    t = decay / p
    room = alpha * (2.0 - alpha) - t
    y = (alpha - t) / (alpha * np.sqrt(1.0 - t))
    kappa = (1.0 + y) / room
    m = 1.0 + kappa * alpha**2 + (1.0 - kappa * alpha * (1.0 - alpha)) ** 2 / y
    return np.asarray(m), np.asarray(kappa * (1.0 - p) / p**2)


def least_metric(
    smoothness: FloatArray,
    probabilities: FloatArray,
    damping: float,
    decay: float = 0.0,
    share: float = 0.0,
) -> FloatArray:
    """Return the least metric of the theorem, M_j (1 + m_j (1 - p_j)/(p_j (1 - s))).

    Here M is the smoothness, p the probabilities, s the share, and m is from
    `find_constants`.
    """
    m, _ = find_constants(probabilities, damping, decay)
    p = probabilities
    return np.asarray(smoothness * (1.0 + m * (1.0 - p) / (p * (1.0 - share))))


def choose_metric(
    smoothness: FloatArray, probabilities: FloatArray, damping: float
) -> FloatArray:
    """Return the metric Q of convex runs, the larger of `least_metric` and 2M.

    For full steps the least metric is M, because only noise makes them random. The
    effect of the noise is divided by Q - M, so Q must be well above M.
    """
    least = least_metric(smoothness, probabilities, damping)
    return np.asarray(np.maximum(least, 2.0 * smoothness))


def sega_bound(
    n_steps: int, *, start: float, noise: float, decay: float = 0.0
) -> float:
    """Bound E F(average) - F* after K steps of DP-SEGA, with F = f + ψ.

    The bound is V0/(2 Σ_k (1 - ρ)^(-k)) + N/2 for the average of θ_1, …, θ_K with
    weights (1 - ρ)^(-k), and for the same average of the values F(θ_k). For ρ = 0 it is
    V0/(2K) + N/2.

    Parameters
    ----------
    n_steps : int
        K.
    start, noise, decay : float
        V0 (`Sega.compute_start`), N (`Sega.compute_noise`) and ρ (``Sega.decay``).
    """
    total = float(n_steps)
    if decay > 0:
        rate = -math.log1p(-decay)
        total = math.expm1(min(n_steps * rate, 700.0)) / decay
    return start / (2.0 * total) + noise / 2.0


def find_variances(
    sampling: Sampling, lipschitz: Callable[[IntArray], float]
) -> FloatArray:
    """Return E[1{j in S} L_S²] for each coordinate j.

    Parameters
    ----------
    sampling : Sampling
        The law of S.
    lipschitz : callable S -> L_S
        A bound on a record's gradient on S. If the sampling does not list its sets, the
        bound for all coordinates is used for every S.
    """
    if sampling.support is None or sampling.set_probabilities is None:
        largest = lipschitz(np.arange(sampling.n_coordinates))
        return np.asarray(sampling.probabilities * largest**2)
    found = np.zeros(sampling.n_coordinates)
    for at, share in zip(sampling.support, sampling.set_probabilities, strict=True):
        found[at] += share * lipschitz(at) ** 2
    return found


def choose_sega_rate(
    sampling: Sampling,
    smoothness: FloatArray,
    lipschitz: Callable[[IntArray], float],
    budget: Budget,
    *,
    distance: FloatArray,
    gradient: FloatArray,
    n_outputs: int = 1,
    damping: float | None = None,
) -> tuple[Rate, float]:
    """Return the rate with the best number K of steps, and the damping α.

    For every damping, the first term of the bound is proportional to 1/K and the second
    to K. So the best damping does not depend on K. It is searched among `DAMPINGS`.

    Parameters
    ----------
    sampling, smoothness, lipschitz
        The distribution of S, the smoothness M (as in `Sega`), and the function L_S
        that bounds a record's gradient on S.
    budget : Budget
        The budget.
    distance, gradient : float64 (d,)
        Assumed sizes of w0 - w*, the start minus the optimum, and of h - ∇f(w*), where
        h is the memory at the start.
    n_outputs : int
        Number of outputs.
    damping : float, optional
        α. By default it is searched.
    """
    p = sampling.probabilities
    each = n_outputs * budget.noise_scale**2 * find_variances(sampling, lipschitz)
    best: tuple[float, float, float, float] | None = None
    for alpha in DAMPINGS if damping is None else (damping,):
        metric = choose_metric(smoothness, p, alpha)
        sega = Sega(
            probabilities=p, smoothness=smoothness, metric=metric, damping=alpha
        )
        start, noise = sega.compute_start(distance, gradient), sega.compute_noise(each)
        if best is None or start * noise < best[0]:
            best = (start * noise, start, noise, alpha)
    assert best is not None
    _, start, noise, alpha = best
    low = max(1, math.floor(math.sqrt(start / noise)))

    def bound(n: int) -> float:
        return sega_bound(n, start=start, noise=n * noise)

    n_steps = min((low, low + 1), key=bound)
    rate = Rate(
        theorem="DP-SEGA, convex, any penalty, Diag(M) ⪰ H",
        n_steps=n_steps,
        initial=start / (2.0 * n_steps),
        noise=n_steps * noise / 2.0,
    )
    return rate, alpha
