"""Compute ε from a list of releases, in closed form and from loss distributions.

This module is independent of the code that it checks: it does not import
`skdp.privacy.accountant` or any code that spends a budget.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skdp.estimators.privacy_json import ReleaseForm, SearchForm

#: Number of decimal digits in which the closed form is computed.
DIGITS = 60
#: dp-accounting is reliable and takes only seconds if μ is in the range PLD_MU, δ is at
#: least PLD_DELTA, and there are at most PLD_KINDS different noise multipliers. The
#: grid of losses has a width of PLD_GRID times μ. The error is then 1e-6 for ten
#: multipliers, and the time does not depend on μ.
PLD_MU, PLD_DELTA, PLD_KINDS = (0.01, 30.0), 1e-12, 100
PLD_GRID = 1e-3
#: Largest μ for which ε is computed. For larger μ, `skdp.privacy.accountant` claims no
#: privacy.
LARGEST_MU = 1e9
#: Parameter r of the distribution of the number of trials in a random search.
SEARCH_SHAPE = 3
#: Bound on the error of the log-probability of one draw of the sampler. It is derived
#: in `skdp.privacy.randomness`.
SLACK = 2.0**-50


def closed_form_epsilon(
    releases: list[ReleaseForm], delta: float, search: SearchForm | None = None
) -> float:
    """Return the smallest ε at δ, from the closed form of the Gaussian mechanism.

    Let zᵢ be the noise multiplier of release i, which was made tᵢ times, and let δᵢ be
    the δ that it cost each time. Let μ² = Σ tᵢ/zᵢ², let D be the number of noise draws,
    and let η = 2⁻⁵⁰. The function solves

        Φ(-ε/μ + μ/2) - e^ε Φ(-ε/μ - μ/2) = δ e^{-Dη} - Σ tᵢ δᵢ

    for ε and adds 2Dη. For a search with a random number of trials, `releases` lists
    the releases of one trial. The ε of the search then follows from the theorem of
    `skdp.privacy.selection`, with 2²⁴ draws per trial.
    """
    mp = _import_mpmath()
    with mp.workdps(DIGITS):
        squares = [r.times / mp.mpf(r.noise_multiplier) ** 2 for r in releases]
        mu = mp.sqrt(mp.fsum(squares))

        def curve(epsilon: Any) -> Any:
            t, h = epsilon / mu, mu / 2
            return mp.ncdf(h - t) - mp.exp(epsilon) * mp.ncdf(-t - h)

        if mu == 0:
            return 0.0
        if mu > LARGEST_MU:  # this would take thousands of digits and minutes
            return math.inf
        draws = sum(r.times * r.n_draws for r in releases)
        slack = draws * mp.mpf(SLACK)
        if search is None or search.stop is None:
            extra = mp.fsum(r.times * mp.mpf(r.delta) for r in releases)
            left = mp.mpf(delta) * mp.exp(-slack) - extra
            if left <= 0:
                return math.inf
            return float(_find_first(lambda e: curve(e) <= left) + 2 * slack)
        stop, slack = mp.mpf(search.stop), 2**24 * mp.mpf(SLACK)
        shape = SEARCH_SHAPE
        trials = shape * (1 - stop) / stop / (1 - stop**shape) if stop < 1 else 1
        left = mp.mpf(delta) / trials * mp.exp(-slack)
        ratio = mp.mpf(0)
        if stop < 1:
            odds = mp.exp(-slack) * stop / (1 - stop)
            ratio = _find_first(lambda c: curve(c - 2 * slack) <= mp.expm1(c) * odds)
        reached = _find_first(lambda e: curve(e) <= left)
        return float(reached + 2 * slack + (shape + 1) * ratio)


def _find_first(holds: Callable[[Any], bool]) -> Any:
    """Return the smallest number ≥ 0 at and above which a condition holds."""
    mp = _import_mpmath()
    low, high = mp.mpf(0), mp.mpf(1)
    if holds(low):
        return low
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(100):
        if high - low <= mp.ldexp(high, -64):
            break
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def pld_epsilon(releases: list[ReleaseForm], delta: float) -> tuple[float | None, str]:
    """Return ε from dp-accounting's privacy loss distributions, and a description.

    If ε cannot be computed, return None and the reason.
    """
    extra = math.fsum(r.times * r.delta for r in releases)
    mu = math.sqrt(mu_squared(releases))
    kinds: Counter[float] = Counter()
    for r in releases:
        kinds[r.noise_multiplier] += r.times
    low, high = PLD_MU
    if not low <= mu <= high or delta - extra < PLD_DELTA:
        return None, (
            f"dp-accounting is reliable only for μ in [{low:g}, {high:g}] and δ ≥ "
            f"{PLD_DELTA:g}; here they are {mu:.3g} and {delta - extra:.3g}"
        )
    if len(kinds) > PLD_KINDS:
        return None, (
            f"dp-accounting takes too long for more than {PLD_KINDS} noise "
            f"multipliers; here there are {len(kinds)}"
        )
    try:
        epsilon = _compose(tuple(kinds.items()), PLD_GRID * mu, delta - extra)
    except ModuleNotFoundError:
        return None, "dp-accounting is not installed: pip install 'skdp[verify]'"
    return epsilon, f"ε = {epsilon:.6g} by dp-accounting"


@lru_cache  # a report verifies its model too
def _compose(kinds: tuple[tuple[float, int], ...], grid: float, delta: float) -> float:
    """Return ε at δ of Gaussian releases, given by noise multipliers and numbers.

    Noise multipliers are already relative to the sensitivity under the record's
    neighbour relation. ADD_OR_REMOVE_ONE takes them as they are, so it is used for
    every relation.
    """
    dp = import_module("dp_accounting")
    neighbours = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    account = dp.pld.PLDAccountant(neighbours, grid)
    for noise_multiplier, times in kinds:
        one = dp.GaussianDpEvent(noise_multiplier)
        account.compose(dp.SelfComposedDpEvent(one, times))
    return float(account.get_epsilon(delta))


def mu_squared(releases: list[ReleaseForm]) -> float:
    """Return μ², the sum of 1/z² over all releases with noise multipliers z."""
    return math.fsum(r.times / r.noise_multiplier**2 for r in releases)


def _import_mpmath() -> Any:
    try:
        return import_module("mpmath").mp
    except ModuleNotFoundError:
        raise ValueError(
            "Verification requires mpmath: pip install 'skdp[verify]'."
        ) from None
