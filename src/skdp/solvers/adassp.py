r"""AdaSSP: linear regression from noisy sufficient statistics, with an adaptive ridge.

XᵀX and Xᵀy are released once, with Gaussian noise E and e. The weights are

    w = (XᵀX + E + n·alpha + λI)⁻¹ (Xᵀy + e),   λ = max(0, b - λ_min),

where n·alpha is the ridge penalty of the model, b bounds the operator norm of the noise
E, and λ_min is a cautious estimate of the smallest eigenvalue of XᵀX. If the data is
well conditioned, λ is 0. Only the releases cost privacy; the rest is post-processing.
Below, d is the number of coordinates, R bounds the norm of a row of X, and ϱ is the
probability with which the bound b may fail.

**Paper** (Wang 2018, Algorithm 2 and Theorem 3, one record added or removed).
λ_min(XᵀX), XᵀX and Xᵀy each get a third of (ε, δ), with noise multiplier
√log(6/δ)/(ε/3), and

    λ_min := max(0, λ_min(XᵀX) + σZ - σ√log(6/δ)),   b = σ √(d log(2d²/ϱ)),

where σ is the standard deviation of the noise in XᵀX, and Z is standard normal.

This multiplier is too small for a third of the budget. At ε = 1, δ = 1e-6 it is 11.85,
but (1/3, δ/3) requires 12.47. Above ε ≈ .4, no proof that splits the budget into thirds
works. The theorem is nevertheless true, by a wide margin. At ε = 1, δ = 1e-6 the three
releases together are .146-GDP, and the budget allows .237.

**Exact** (the default). Gaussian accounting spends all of μ². λ_min is computed from
the released matrix at no cost. The bound is b = σ(√(2d) + √(2 log(1/ϱ))). The first
term bounds the mean of λ_max of a symmetric Gaussian matrix (Gordon). The second bounds
the deviation from this mean, because λ_max is 1-Lipschitz. At d = 100, ϱ = .05 this b
is 2.1 times smaller than the paper's. XᵀX gets the share R/(1+R) of μ², because its
noise E is R times as large as the noise of Xᵀy, and affects w through Ew. This assumes
‖w‖ = 1, which is a public guess.

In both variants, entries that are equal for all tables get no noise. Entries off the
diagonal get 1/√2 times the noise of the diagonal (`queries.GramPattern`).

Neighbours: each sum has its own sensitivity. For replace-one, the sensitivities of XᵀX
and Xᵀy are √2 and 2 times larger. λ_min changes by at most R² for all three kinds of
neighbours.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
from scipy.linalg import eigvalsh

from skdp.descent.geometry import clip_to_box
from skdp.models.losses import Squared
from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.encoding import Records
from skdp.privacy.grid import FEATURE_BITS, round_up
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, Layout, check, count_in_words
from skdp.solvers.certified import count_covered_rows, fade, read_ridge
from skdp.solvers.problem import (
    Callback,
    EngineOf,
    Problem,
    ReferenceEngine,
    Run,
    Solved,
    open_run,
    register_solver,
)

#: ϱ, the probability that the norm of the noise exceeds the bound b.
RHO = 0.05


def compute_wang_noise(epsilon: float, delta: float) -> float:
    """Return the noise multiplier of Wang (2018) for each of the three releases."""
    return 3 * math.sqrt(math.log(6 / delta)) / epsilon


@register_solver(losses=("squared",), persons=True)
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
    calibration: Literal["exact", "paper"] = "exact",
    gram_share: float | None = None,
) -> Solved:
    """Fit a linear regression by AdaSSP, from noisy normal equations.

    Parameters
    ----------
    problem, epsilon, delta, random_state, noise, record, engine, callback
        As for every solver. The loss must be the squared loss. Its slope bound is not
        used. The callback is not called.
    calibration : {"exact", "paper"}
        "exact" uses exact accounting. "paper" uses Wang's noise and ridge for the (ε,
        δ) of the privacy record, and charges their true cost.
    gram_share : float, optional
        Share of μ² for XᵀX. The default is R/(1+R), where R bounds the norm of a row of
        X. Used only with "exact".

    Notes
    -----
    **Guarantee.** For all neighbouring tables, the result is post-processing of two
    Gaussian releases of exact sums. With "paper", it also uses a Gaussian release of
    one eigenvalue.
    """
    check(
        type(problem.loss) is Squared,
        f"AdaSSP requires the squared loss, got {problem.loss.kind}.",
    )
    norm = problem.row_norm
    share = norm / (1 + norm) if gram_share is None else gram_share
    check(0 < share < 1, f"gram_share must be in (0, 1), got {share}.")
    run = open_run(
        problem,
        epsilon=epsilon,
        delta=delta,
        random_state=random_state,
        noise=noise,
        record=record,
        calibration=calibration,
        persons=calibration == "exact",  # the paper's eigenvalue is not a query
    )
    adder = engine(problem.records)
    as_in_paper = run.budget < math.inf and calibration == "paper"
    z_gram = accountant.noise_multiplier(run.share(share).mu, 1)
    z_slope = accountant.noise_multiplier(run.share(1 - share).mu, 1)
    if as_in_paper:
        z_gram = compute_wang_noise(run.record.epsilon, run.record.delta)
        z_slope = z_gram
        check(
            3 / z_gram**2 <= run.budget,
            f"The paper's noise costs μ² = {3 / z_gram**2:.4g}, but only "
            f"{run.budget:.4g} is left. Use calibration='exact'.",
        )
    d, layout = _count_coordinates(problem), problem.layout
    pattern = queries.GramPattern.of(layout, problem.neighbours)
    eigenvalue = None
    if as_in_paper:
        eigenvalue = _release_eigenvalue(problem, run, adder, z_gram)
    released = release(queries.gram(adder, pattern), z_gram, run.noise, run.record)
    gram = _fill_gram(layout, pattern, released.values, problem.n_rows)
    # At w = 0 the squared loss has slope -y, in [-1, 1].
    slopes = queries.Slopes(loss=Squared(1.0), max_weight=problem.records.max_weight)
    total = queries.gradient(
        adder, slopes, problem.start, problem.all, problem.neighbours, np.ones(d)
    )
    query = f"moments of {count_in_words(d, 'coordinate')} with the target"
    total = replace(total, kind=Kind.MOMENTS, query=query)
    moment = -release(total, z_slope, run.noise, run.record).values
    std = z_gram * pattern.sensitivity
    if eigenvalue is None:
        bound = std * (math.sqrt(2 * d) + math.sqrt(2 * math.log(1 / RHO)))
        eigenvalue = max(0.0, float(np.linalg.eigvalsh(gram)[0]) - bound)
    else:
        bound = std * math.sqrt(d * math.log(2 * d * d / RHO))
    ridge = max(0.0, bound - eigenvalue)
    system = gram + np.diag(read_ridge(problem) + ridge)
    return Solved(
        weights=clip_to_box(
            _solve(system, moment, 1e-9 * problem.n_rows + 0.01 * bound)
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


def _count_coordinates(problem: Problem) -> int:
    """Return the number of coordinates. Raise if there are too many for a matrix."""
    d = problem.layout.n_features
    check(d <= 4000, f"AdaSSP supports at most 4000 coordinates, got {d}.")
    return d


def _fill_gram(
    layout: Layout, pattern: queries.GramPattern, values: FloatArray, n_rows: float
) -> FloatArray:
    """Return XᵀX, filled with the released entries and those that are known."""
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


def _release_eigenvalue(
    problem: Problem, run: Run, adder: queries.Engine, z: float
) -> float:
    """Release λ_min(XᵀX), lowered to be below the true value with high probability.

    R bounds the norm of a row of X. One record changes λ_min by at most R² (Weyl), even
    if the record is replaced. Rounding errors change λ_min by an amount proportional to
    d·2⁻⁵²·NR², where N is the exact number of rows. The computation uses bisection,
    which terminates for every matrix. λ_min is clipped to nR², where n is the public or
    released number of rows. If N is private, λ_min is also multiplied by `fade`, which
    is below 1 if N is larger than the M of `certified.count_covered_rows`. A row then
    changes the factor by 1/M, and the product by at most nR²/M more. (An additional row
    raises λ_min and lowers the factor, so the sum of both bounds is on the safe side.)
    """
    exact = adder.gram().astype(np.float64) * math.ldexp(1.0, -2 * FEATURE_BITS)
    first = eigvalsh(exact, subset_by_index=[0, 0], driver="evx", check_finite=False)
    squared, (full, most) = problem.row_norm**2, count_covered_rows(problem)
    largest = problem.n_rows * squared
    rows = adder.records.add_up(_count_kept)
    value = min(max(0.0, float(first[0])), largest) * fade(problem, rows)
    lost = 64 * problem.layout.n_features * 2.0**-52 * most * squared
    lost += largest / full if most > full else 0.0
    bound = round_up(squared + lost + 2.0**-30)
    total = queries.state_sensitivity(
        np.array([value]),
        bound,
        Kind.EIGENVALUE,
        "least eigenvalue of the Gram matrix",
    )
    released = release(total, z, run.noise, run.record)
    likely = z * bound * math.sqrt(math.log(6 / run.record.delta))
    return max(0.0, float(released.values[0]) - likely)


def _count_kept(records: Records) -> int:
    return sum(len(chunk.target) for chunk in records.chunks)


def _solve(system: FloatArray, moment: FloatArray, floor: float) -> FloatArray:
    """Solve a symmetric system after raising its eigenvalues to at least `floor`."""
    values, vectors = np.linalg.eigh(system)
    inside = vectors.T @ moment / np.maximum(values, floor)[:, None]
    return np.asarray(vectors @ inside)
