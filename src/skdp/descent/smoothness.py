"""Compute the smoothness M of a convex f, for steps w_j −= g_j / M_j on random sets.

Let f'' ⪯ H everywhere. A step on a random set S is safe in expectation if v satisfies
the expected separable overapproximation (ESO) of Qu and Richtárik (2016)::

    Pmat ∘ H ⪯ Diag(p ∘ v),   Pmat_jk = P(j, k ∈ S),   p_j = P(j ∈ S),   M := v.

Here ∘ multiplies entry by entry, and F ⪯ G means that G - F is positive semidefinite.
The coordinate-wise v = diag H is *not* enough for blocks. With it, descent diverges on
½(1ᵀw)² for blocks of three or more coordinates (erratum 8). Every formula below follows
from one of three facts. P_S is the probability of a set, and E the expectation over S.

* **Coupled.** If P(j, k ∈ S) = √(p_j a_j p_k a_k) for all j ≠ k, then Pmat ∘ H is
  Diag(p∘(1−a)∘h) + Diag(√(p∘a)) H Diag(√(p∘a)), with h = diag H. So H ⪯ Diag(u) gives
  v = (1−a) h + a u. Here a is 0 for single coordinates, 1 for the full set,
  (τ−1)/(d−1) for τ-nice sets, and π for independent sets.
* **Listed.** Pmat ∘ H = Σ_S P_S I_S H I_S. So if H_SS ⪯ c_S Diag(u_S) for every S, then
  v_j = E[c_S | j ∈ S] u_j is valid. For a partition this is c_B u_j on block B.
* **Any.** For any sampling, v_j = Σ_k Pmat_jk abs(H_jk) / p_j is valid, by diagonal
  dominance.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from skdp.descent.samplings import Sampling, check_partition, check_positive
from skdp.schema import FloatArray, IntArray, check

__all__ = ["from_bounds", "from_hessian", "is_valid", "is_valid_for_bounds"]

RELATIVE_FLOOR = 1e-9
"""Smallest curvature given to a coordinate, relative to the largest entry of H."""

ROUND_UP = 1 + 1e-12
"""Factor by which a computed eigenvalue is raised, to cover its rounding error.

It may make v larger than necessary. A v that is too small would be invalid.
"""


def from_hessian(sampling: Sampling, hessian: npt.ArrayLike) -> FloatArray:
    """Return v with Pmat ∘ H ⪯ Diag(p ∘ v), from a bound H on the Hessian of f.

    Here p_j = P(j ∈ S) and Pmat_jk = P(j, k ∈ S), and a is the sampling's ``coupling``.
    Let h = diag H, D = Diag h, and let λ'(A) be the largest eigenvalue of
    D^{-1/2} A D^{-1/2}. Then v is

    * h for single coordinates;
    * λ'(H) h for the full set;
    * λ'(H_BB) h on each block B of a partition, which equals h if the features of the
      block exclude each other;
    * (1−a) h + a λ'(H) h for τ-nice and independent sets;
    * E[λ'(H_SS) | j ∈ S] h_j for a list of overlapping sets;
    * the row sums of abs(Pmat ∘ H), divided by p, for samplings without a list of sets.

    In the last two cases v is then scaled down as far as Pmat ∘ H ⪯ Diag(p ∘ v) allows.

    Parameters
    ----------
    sampling : Sampling
        The law of S.
    hessian : (d, d) array_like
        H, symmetric and finite, including the ridge. It need not be positive
        semidefinite, but abs(H_jk) ≤ √(h_j h_k) must hold, which keeps λ' ≤ d.

    Returns
    -------
    (d,) array
        v > 0. If h_j is below ``RELATIVE_FLOOR`` times the largest entry of H, for
        example for a column of zeros, it is raised to that product. This keeps the step
        1/v finite, and a larger v is always valid. For H = 0, v = 1.
    """
    hess = _check_hessian(hessian, sampling.n_coordinates, "from_hessian")
    scale = np.abs(hess).max()
    if scale == 0:
        return np.ones(sampling.n_coordinates)
    floor = max(RELATIVE_FLOOR * scale, np.finfo(np.float64).tiny)
    h: FloatArray = np.maximum(np.diag(hess), floor)
    root = np.sqrt(h)
    if np.any(np.abs(hess) > (1 + 1e-9) * root[:, None] * root[None, :]):
        raise ValueError(
            "from_hessian: hessian must be positive semidefinite, got an entry H_jk "
            "above sqrt(H_jj H_kk) or a negative H_jj."
        )
    if sampling.coupling is not None:
        a = sampling.coupling
        return np.asarray((1 - a) * h + a * (_stretch(hess, h) * h if a.any() else h))
    everything = np.arange(sampling.n_coordinates)
    if sampling.support is not None:
        stretches = [_stretch(hess[np.ix_(s, s)], h[s]) for s in sampling.support]
        v: FloatArray = _mean_given_member(sampling, np.array(stretches)) * h
        if sum(s.size for s in sampling.support) == everything.size:
            return v  # for disjoint sets, every block touches already
    else:
        joint = sampling.pair_probabilities(everything) * np.abs(hess)
        v = np.maximum(joint.sum(axis=1) / sampling.probabilities, h) * ROUND_UP
    ratio = _largest_ratio(sampling, hess, v) * ROUND_UP
    return np.asarray(v * min(1.0, ratio))


def from_bounds(
    sampling: Sampling,
    groups: Sequence[npt.ArrayLike],
    curvature: float,
    ridge: float | npt.ArrayLike = 0.0,
) -> FloatArray:
    """Return a smoothness v that is valid for every table within public bounds.

    Every record has norm at most one on each of G groups of features. A group is a
    scalar in [−1, 1], a one-hot block, or a vector under a joint norm. Let β be the
    curvature, λ the ridge, a the sampling's ``coupling``, and g(S) the number of groups
    that S has a coordinate in. Then v − λ is

    * β for single coordinates;
    * βG for the full set;
    * β g(B) on each block B of a partition;
    * (1−a)β + aβG for τ-nice and independent sets;
    * β·E[g(S) | j ∈ S] for any other list of sets;
    * βG for samplings without a list of sets.

    No data is read.

    Parameters
    ----------
    sampling : Sampling
        The law of S.
    groups : sequence of index arrays
        A partition of {0, ..., d-1} into groups of features.
    curvature : float
        β, the supremum of the second derivative of the loss in the margin.
    ridge : float or (d,) array_like
        λ ≥ 0.

    Returns
    -------
    (d,) array
        v > 0.

    Notes
    -----
    Let x be a record and t any step on S. By the Cauchy-Schwarz inequality, used twice,
    (Σ_{j∈S} x_j t_j)² ≤ (Σ_G ‖x_G‖ ‖t_{G∩S}‖)² ≤ g(S) Σ_G ‖t_{G∩S}‖² = g(S) ‖t_S‖².
    The mean over records gives tᵀ H_SS t ≤ β g(S) ‖t_S‖² for H = (β/n) XᵀX. So the
    Listed fact of this module applies with u = 1 and c_S = β g(S), and the Coupled fact
    applies with h ≤ β and u = βG. For a sampling that is neither listed nor coupled,
    H ⪯ βG I and Pmat ⪰ 0 give Pmat ∘ H ⪯ βG Diag(p) by the Schur product theorem.
    """
    owner = "from_bounds"
    parts = check_partition(groups, sampling.n_coordinates, owner, "groups")
    beta = _check_curvature(curvature, owner)
    extra = _check_ridge(ridge, sampling.n_coordinates, owner)
    if sampling.coupling is not None:
        touched = 1 - sampling.coupling + sampling.coupling * len(parts)
    elif sampling.support is not None:
        label = _labels(parts, sampling.n_coordinates)
        counts = [np.unique(label[s]).size for s in sampling.support]
        touched = _mean_given_member(sampling, np.array(counts, dtype=np.float64))
    else:
        touched = np.full(sampling.n_coordinates, float(len(parts)))
    return np.asarray(beta * touched + extra)


def is_valid(
    sampling: Sampling,
    hessian: npt.ArrayLike,
    smoothness: npt.ArrayLike,
    tolerance: float = 1e-9,
) -> bool:
    """Return whether Pmat ∘ H ⪯ (1 + tolerance) Diag(p ∘ v).

    Here p_j = P(j ∈ S) and Pmat_jk = P(j, k ∈ S).

    Parameters
    ----------
    sampling : Sampling
        The law of S.
    hessian : (d, d) array_like
        H, symmetric and finite.
    smoothness : (d,) array_like
        v, positive.
    tolerance : float
        Relative tolerance for rounding errors.
    """
    hess = _check_hessian(hessian, sampling.n_coordinates, "is_valid")
    v = check_positive(smoothness, sampling.n_coordinates, "is_valid", "smoothness")
    return bool(_largest_ratio(sampling, hess, v) <= 1 + tolerance)


def is_valid_for_bounds(
    sampling: Sampling,
    groups: Sequence[npt.ArrayLike],
    curvature: float,
    smoothness: npt.ArrayLike,
    ridge: float | npt.ArrayLike = 0.0,
    tolerance: float = 1e-9,
) -> bool:
    """Return whether v is proved valid for all tables within the public bounds.

    The public bounds are those that `from_bounds` assumes. Let β be the curvature, λ
    the ridge, u = v − λ and
    c_S = β sup_x Σ_{j∈S} x_j²/u_j = β Σ_G max_{j∈G∩S} 1/u_j. Then v is proved valid if
    E[c_S | j ∈ S] ≤ 1 for every j, or if every entry of v is at least the entry that
    ``from_bounds`` returns. For the full set, single coordinates and partitions this
    test is exact, so False means that v fails for some table. For other samplings, the
    result may be False even if v is valid.

    Parameters
    ----------
    sampling : Sampling
        The law of S.
    groups : sequence of index arrays
        A partition of {0, ..., d-1} into groups of features.
    curvature : float
        β, the supremum of the second derivative of the loss in the margin.
    smoothness : (d,) array_like
        v, positive.
    ridge : float or (d,) array_like
        λ ≥ 0.
    tolerance : float
        Relative tolerance for rounding errors.

    Notes
    -----
    (Σ_{j∈S} x_j t_j)² ≤ (Σ_{j∈S} x_j²/u_j) (Σ_{j∈S} u_j t_j²), so H_SS ⪯ c_S Diag(u_S),
    and the Listed fact of this module applies. Equality holds for one t, so c_B ≤ 1 is
    also necessary if the sets are disjoint. Without a list of sets,
    S = {0, ..., d-1} is used, because a v that is valid for the full set is valid for
    every sampling, by the Schur product theorem.
    """
    owner = "is_valid_for_bounds"
    d = sampling.n_coordinates
    parts = check_partition(groups, d, owner, "groups")
    v = check_positive(smoothness, d, owner, "smoothness")
    u = v - _check_ridge(ridge, d, owner)
    if np.any(u <= 0):
        return False
    if np.all(v >= from_bounds(sampling, parts, curvature, ridge) * (1 - tolerance)):
        return True
    label = _labels(parts, d)
    sets = (np.arange(d),) if sampling.support is None else sampling.support
    steepest = np.zeros((len(sets), len(parts)))
    for row, s in zip(steepest, sets, strict=True):
        np.maximum.at(row, label[s], 1 / u[s])
    c = _check_curvature(curvature, owner) * steepest.sum(axis=1)
    mean = c if sampling.support is None else _mean_given_member(sampling, c)
    return bool(np.all(mean <= 1 + tolerance))


def _stretch(hess: FloatArray, h: FloatArray) -> float:
    """Return the least λ' ≥ 1 with H ⪯ λ' Diag(h), rounded up."""
    root = np.sqrt(h)
    scaled = hess / root[:, None] / root[None, :]
    return max(1.0, float(np.linalg.eigvalsh(scaled)[-1])) * ROUND_UP


def _largest_ratio(sampling: Sampling, hess: FloatArray, v: FloatArray) -> float:
    """Return the least c with Pmat ∘ H ⪯ c Diag(p ∘ v), as in `is_valid`."""
    joint = sampling.pair_probabilities(np.arange(sampling.n_coordinates)) * hess
    root = np.sqrt(sampling.probabilities * v)
    return float(np.linalg.eigvalsh(joint / root[:, None] / root[None, :])[-1])


def _mean_given_member(sampling: Sampling, values: FloatArray) -> FloatArray:
    """Return E[values(S) | j ∈ S] for each j, over the listed sets."""
    assert sampling.support is not None
    assert sampling.set_probabilities is not None
    total = np.zeros(sampling.n_coordinates)
    weight = np.zeros(sampling.n_coordinates)
    for s, probability, value in zip(
        sampling.support, sampling.set_probabilities, values, strict=True
    ):
        total[s] += probability * value
        weight[s] += probability
    return np.asarray(total / weight)


def _labels(parts: Sequence[IntArray], d: int) -> IntArray:
    label = np.empty(d, dtype=np.intp)
    for number, part in enumerate(parts):
        label[part] = number
    return label


def _check_hessian(hessian: npt.ArrayLike, d: int, owner: str) -> FloatArray:
    hess = np.asarray(hessian, dtype=np.float64)
    got = f"shape {hess.shape}" if hess.shape != (d, d) else "a NaN or infinity"
    check(
        hess.shape == (d, d) and bool(np.all(np.isfinite(hess))),
        f"{owner}: hessian must be a finite matrix of shape ({d}, {d}), got {got}.",
    )
    gap = np.abs(hess - hess.T).max()
    check(
        gap <= 1e-9 * np.abs(hess).max(),
        f"{owner}: hessian must be symmetric, got entries that differ from their "
        f"mirror image by {gap}.",
    )
    return np.asarray((hess + hess.T) / 2)


def _check_curvature(value: float, owner: str) -> float:
    check(
        0 < value < np.inf,
        f"{owner}: curvature must be finite and positive, got {value!r}.",
    )
    return float(value)


def _check_ridge(value: float | npt.ArrayLike, d: int, owner: str) -> FloatArray:
    ridge = np.asarray(value, dtype=np.float64)
    if ridge.shape not in ((), (d,)) or not np.all(np.isfinite(ridge) & (ridge >= 0)):
        raise ValueError(
            f"{owner}: ridge must be one nonnegative number, or a vector of {d}, got "
            f"{value!r}."
        )
    return ridge
