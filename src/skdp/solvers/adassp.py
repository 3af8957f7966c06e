r"""AdaSSP: linear regression from noisy sufficient statistics, its ridge adapted.

XᵀX and Xᵀy are released once, with Gaussian noise E and e, and

    w = (XᵀX + E + n·alpha + λI)⁻¹ (Xᵀy + e),   λ = max(0, b - λ_min),

b a bound on the noise's operator norm: where the data is well conditioned nothing is
added. Privacy is that of the releases; all else is post-processing.

**Printed** (Wang 2018, Algorithm 2 and Theorem 3, one record added or removed). A third
of (ε, δ) each for λ_min(XᵀX), XᵀX and Xᵀy, noise multiplier √log(6/δ)/(ε/3), and

    λ_min := max(0, λ_min + σZ - σ√log(6/δ)),   b = σ √(d log(2d²/ϱ)),

σ the noise of XᵀX.

The multiplier is not what a third needs: at ε = 1, δ = 1e-6 it is 11.85, and (1/3, δ/3)
takes 12.47; from ε ≈ .4 on no proof by thirds works. The theorem is true all the same,
with room: three such releases are .146-GDP, and (1, 1e-6) allows .237.

**Exact** (the default). Gaussian accounting, so that all of μ² is spent; λ_min is read
from the released matrix for free; b = σ(√(2d) + √(2 log(1/ϱ))), the mean and the tail
of λ_max of a symmetric Gaussian matrix (Gordon; λ_max is 1-Lipschitz), 2.1 times below
the printed one at d = 100, ϱ = .05. XᵀX gets R/(1+R) of μ², because its noise, of size
R², acts on w through Ew and that of Xᵀy, of size R, as it is; ‖w‖ = 1 is a public
guess.

In both, entries that are the same for all tables carry no noise, and those off the
diagonal 1/√2 of it (`sums.GramPattern`). Relations: sums have their own sensitivities,
√2 and 2 times larger for replace-one; λ_min moves by at most R² under all three.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from scipy.linalg import eigvalsh

from skdp.descent.geometry import clip_to_box
from skdp.models.losses import Squared
from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.grid import FEATURE_BITS, round_up
from skdp.privacy.mechanism import release
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, Layout, check
from skdp.solvers.certified import covered_rows, fade, ridge_of
from skdp.solvers.problem import (
    Callback,
    EngineOf,
    Problem,
    ReferenceEngine,
    Run,
    Solved,
    opened,
)

#: Chance that the noise's norm exceeds its bound.
RHO = 0.05


def printed_noise_multiplier(epsilon: float, delta: float) -> float:
    """Noise multiplier that Wang (2018) prints for each of three releases."""
    return 3 * math.sqrt(math.log(6 / delta)) / epsilon


def adassp(
    problem: Problem,
    *,
    epsilon: float,
    delta: float | None = None,
    random_state: int | None = None,
    noise: Randomness | None = None,
    record: PrivacyRecord | None = None,
    engine: EngineOf = ReferenceEngine,
    callback: Callback | None = None,
    calibration: Literal["exact", "printed"] = "exact",
    gram_share: float | None = None,
) -> Solved:
    """Fit a linear regression from its noisy normal equations.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver; the loss is the squared one, its slope bound is not used,
        and no step is called back.
    calibration : {"exact", "printed"}
        Exact accounting, or the noise and the ridge that Wang prints for the record's
        (ε, δ), charged at what they truly cost.
    gram_share : float, optional
        Part of μ² for XᵀX (exact only), by default R/(1+R).

    Notes
    -----
    **Guarantee.** For all neighbouring tables the result is post-processing of two
    Gaussian releases of exact sums (printed: and of one eigenvalue).
    """
    check(
        isinstance(problem.loss, Squared) and problem.loss.name == "squared",
        f"AdaSSP fits the squared loss. Got {problem.loss.name}: take another solver.",
    )
    check(
        calibration in ("exact", "printed"),
        f"calibration must be 'exact' or 'printed'. Got {calibration!r}.",
    )
    norm = problem.row_norm
    share = norm / (1 + norm) if gram_share is None else gram_share
    check(0 < share < 1, f"gram_share must be in (0, 1). Got {share}.")
    run = opened(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
    )
    adder = engine(problem.records)
    private, printed = run.budget < math.inf, calibration == "printed"
    z_gram = accountant.noise_multiplier(run.share(share).mu, 1)
    z_slope = accountant.noise_multiplier(run.share(1 - share).mu, 1)
    if printed and private:
        z_gram = printed_noise_multiplier(run.record.epsilon, run.record.delta)
        z_slope = z_gram
        check(
            3 / z_gram**2 <= run.budget,
            "The printed noise costs more than the budget: take calibration='exact'.",
        )
    d, layout = _coordinates(problem), problem.layout
    pattern = queries.GramPattern.of(layout, problem.neighbours)
    eigenvalue = None
    if printed and private:
        eigenvalue = _least_eigenvalue(problem, run, adder, z_gram)
    released = release(queries.gram(adder, pattern), z_gram, run.noise, run.record)
    gram = _filled(layout, pattern, released.values, problem.n_rows)
    # At w = 0 the squared loss has slope -y, in [-1, 1].
    slopes = queries.Slopes(loss=Squared(1.0), max_weight=problem.records.max_weight)
    total = queries.gradient(
        adder, slopes, problem.start, problem.all, problem.neighbours, np.ones(d)
    )
    moment = -release(total, z_slope, run.noise, run.record).values
    std = z_gram * pattern.sensitivity
    if eigenvalue is None:
        bound = std * (math.sqrt(2 * d) + math.sqrt(2 * math.log(1 / RHO)))
        eigenvalue = max(0.0, float(np.linalg.eigvalsh(gram)[0]) - bound)
    else:
        bound = std * math.sqrt(d * math.log(2 * d * d / RHO))
    ridge = max(0.0, bound - eigenvalue)
    system = gram + np.diag(ridge_of(problem) + ridge)
    return Solved(
        weights=clip_to_box(
            _solved(system, moment, 1e-9 * problem.n_rows + 0.01 * bound)
        ),
        record=run.record,
        n_steps=1,
        settings={
            "calibration": calibration,
            "gram_noise_multiplier": z_gram,
            "moment_noise_multiplier": z_slope,
            "ridge": ridge,
            "noise_norm": bound,
        },
    )


def _coordinates(problem: Problem) -> int:
    """Number of coordinates, refused where a matrix of them would be too large."""
    d = problem.layout.n_features
    check(d <= 4000, f"AdaSSP needs at most 4000 coordinates. Got {d}: use fewer.")
    return d


def _filled(
    layout: Layout, pattern: queries.GramPattern, values: FloatArray, n_rows: float
) -> FloatArray:
    """XᵀX of the released entries and of those that are known: see `GramPattern`."""
    full = np.zeros((layout.n_features, layout.n_features))
    full[pattern.rows, pattern.columns] = full[pattern.columns, pattern.rows] = values
    ones = [group.start for group in layout.groups if group.kind == "ones"]
    codes = [group.coordinates for group in layout.groups if group.kind == "code"]
    for one in ones:
        if one not in pattern.rows:
            full[one, one] = n_rows
        for at in codes:
            full[one, at] = full[at, one] = full[at, at]
    return full


def _least_eigenvalue(
    problem: Problem, run: Run, adder: queries.Engine, z: float
) -> float:
    """λ_min(XᵀX), released and lowered so that it is likely below the true one.

    One record moves it by at most R² (Weyl), also if it is replaced, and rounding by a
    multiple of d·2⁻⁵²·NR². It is found by bisection, which ends for every matrix. Where
    N is private, the value is clipped to nR² and tables of more rows than are covered
    fade out, as in `certified`.
    """
    exact = adder.gram().astype(np.float64) * math.ldexp(1.0, -2 * FEATURE_BITS)
    first = eigvalsh(exact, subset_by_index=[0, 0], driver="evx", check_finite=False)
    squared, (full, most) = problem.row_norm**2, covered_rows(problem)
    largest = problem.n_rows * squared
    rows = sum(len(chunk.target) for chunk in adder.records.chunks)
    value = min(max(0.0, float(first[0])), largest) * fade(problem, rows)
    lost = 64 * problem.layout.n_features * 2.0**-52 * most * squared
    lost += largest / full if most > full else 0.0
    bound = round_up(squared + lost + 2.0**-30)
    total = queries.stated(
        np.array([value]), bound, "least eigenvalue of the Gram matrix"
    )
    released = release(total, z, run.noise, run.record)
    likely = z * bound * math.sqrt(math.log(6 / run.record.delta))
    return max(0.0, float(released.values[0]) - likely)


def _solved(system: FloatArray, moment: FloatArray, floor: float) -> FloatArray:
    """Solve a symmetric system whose eigenvalues are raised to `floor`."""
    values, vectors = np.linalg.eigh(system)
    inside = vectors.T @ moment / np.maximum(values, floor)[:, None]
    return np.asarray(vectors @ inside)
