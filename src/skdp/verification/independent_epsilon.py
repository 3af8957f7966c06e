"""ε from a list of releases: in closed form, and by privacy loss distributions.

`skdp.privacy.accountant` is not imported, nor anything that spends.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from skdp.estimators.stored_record import ReleaseForm, SearchForm

#: Digits of the closed form.
DIGITS = 60
#: Where dp-accounting is reliable, and done in seconds: in μ, in δ, in the number of
#: noise multipliers. Losses are on a grid as wide as a part of μ, which is all of 1e-6
#: off for ten multipliers, and takes the same time whatever μ is.
PLD_MU, PLD_DELTA, PLD_KINDS = (0.01, 30.0), 1e-12, 100
PLD_GRID = 1e-3
#: Above this μ no ε is computed, nor claimed by `skdp.privacy.accountant`.
LARGEST_MU = 1e9
#: Of the law of the number of trials, in a random search.
SEARCH_SHAPE = 3
#: The sampler's bound on the logarithm of a cell's probability, per draw: see
#: `skdp.privacy.randomness`, which derives it.
SLACK = 2.0**-50


def closed_form_epsilon(
    releases: list[ReleaseForm], delta: float, search: SearchForm | None = None
) -> float:
    """Smallest ε at δ, from the closed form of the Gaussian mechanism.

    With μ² = Σ times/z², D draws and η = 2⁻⁵⁰, it solves Φ(-ε/μ + μ/2) - e^ε
    Φ(-ε/μ - μ/2) = δ e^{-Dη} - Σ δᵢ and adds 2Dη. The best of a random number of
    trials is computed from the releases of one, by the theorem of
    `skdp.privacy.selection`, each trial with 2²⁴ draws.
    """
    mp = _mpmath()
    with mp.workdps(DIGITS):
        squares = [r.times / mp.mpf(r.noise_multiplier) ** 2 for r in releases]
        mu = mp.sqrt(mp.fsum(squares))

        def curve(epsilon: Any) -> Any:
            t, h = epsilon / mu, mu / 2
            return mp.ncdf(h - t) - mp.exp(epsilon) * mp.ncdf(-t - h)

        if mu == 0:
            return 0.0
        if mu > LARGEST_MU:  # digits by the thousands, for minutes
            return math.inf
        draws = sum(r.times * r.n_draws for r in releases)
        slack = draws * mp.mpf(SLACK)
        if search is None or search.stop is None:
            extra = mp.fsum(r.times * mp.mpf(r.delta) for r in releases)
            left = mp.mpf(delta) * mp.exp(-slack) - extra
            if left <= 0:
                return math.inf
            return float(_first(lambda e: curve(e) <= left) + 2 * slack)
        stop, slack = mp.mpf(search.stop), 2**24 * mp.mpf(SLACK)
        shape = SEARCH_SHAPE
        trials = shape * (1 - stop) / stop / (1 - stop**shape) if stop < 1 else 1
        left = mp.mpf(delta) / trials * mp.exp(-slack)
        ratio = mp.mpf(0)
        if stop < 1:
            odds = mp.exp(-slack) * stop / (1 - stop)
            ratio = _first(lambda c: curve(c - 2 * slack) <= mp.expm1(c) * odds)
        reached = _first(lambda e: curve(e) <= left)
        return float(reached + 2 * slack + (shape + 1) * ratio)


def _first(holds: Callable[[Any], bool]) -> Any:
    """First number from 0 on at which a condition holds that stays true."""
    mp = _mpmath()
    low, high = mp.mpf(0), mp.mpf(1)
    if holds(low):
        return low
    while not holds(high):
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def pld_epsilon(releases: list[ReleaseForm], delta: float) -> tuple[float | None, str]:
    """ε by dp-accounting's privacy loss distributions, or why it was not used."""
    extra = math.fsum(r.times * r.delta for r in releases)
    mu = math.sqrt(mu_squared(releases))
    kinds: Counter[float] = Counter()
    for r in releases:
        kinds[r.noise_multiplier] += r.times
    low, high = PLD_MU
    if not low <= mu <= high or delta - extra < PLD_DELTA:
        return None, (
            f"not used: dp-accounting is reliable for μ in [{low:g}, {high:g}] and δ ≥ "
            f"{PLD_DELTA:g} only, and here they are {mu:.3g} and {delta - extra:.3g}"
        )
    if len(kinds) > PLD_KINDS:
        return None, (
            f"not used: dp-accounting takes long for more than {PLD_KINDS} noise "
            f"multipliers, and here are {len(kinds)}"
        )
    try:
        dp = import_module("dp_accounting")
    except ModuleNotFoundError:
        return None, "not used: dp-accounting is missing, pip install 'skdp[verify]'"
    # Noise multipliers are relative to what one record changes under the relation.
    neighbours = dp.NeighboringRelation.ADD_OR_REMOVE_ONE
    account = dp.pld.PLDAccountant(neighbours, PLD_GRID * mu)
    for noise_multiplier, times in kinds.items():
        one = dp.GaussianDpEvent(noise_multiplier)
        account.compose(dp.SelfComposedDpEvent(one, times))
    epsilon = float(account.get_epsilon(delta - extra))
    return epsilon, f"ε = {epsilon:.6g} by dp-accounting"


def mu_squared(releases: list[ReleaseForm]) -> float:
    """Sum of 1/z² over all releases."""
    return math.fsum(r.times / r.noise_multiplier**2 for r in releases)


def _mpmath() -> Any:
    try:
        return import_module("mpmath").mp
    except ModuleNotFoundError:
        raise ValueError(
            "Verification computes with mpmath: pip install 'skdp[verify]'."
        ) from None
