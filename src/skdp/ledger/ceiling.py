r"""Define the ceiling of a ledger and prove that releases below it are private.

**The ceiling has three separate limits.** We say that a mechanism is (μ, d) if, for all
neighbouring tables, all real ε' and all events E, its output laws P and Q on the two
tables obey P(E) ≤ e^ε' Q(E) + h(ε', μ) + d, with h(ε', μ) = `accountant.gdp_delta`. Let
η = `accountant.SLACK_PER_DRAW`, which bounds the error of one noise draw. When the
ledger is made, a part r = `reserved_delta` of δ is set aside for the d's. The
inequalities

.. math:: Σ μᵢ² ≤ m,\quad Σ dᵢ ≤ r,\quad Σ \text{draws} ≤ D

then hold at all times, with m = `accountant.calibrate` (ε, δ - r e^{Dη}, D)². The
limits m, r and D are fixed beforehand, and the sums are computed in exact rational
numbers. Trading one limit against another later, by requiring only that
h(ε, √Σμ²) + Σd ≤ δ, would not be private. An analyst could spend μ² where the answers
so far reveal much, and spend the rest as d where they reveal little. This nearly
reaches 2δ (`tests/ledger/test_ceiling.py` computes 1.96 δ).

1. *Two steps.* Let M₁ be (μ₁, d₁), and let M₂, which sees the output x of M₁, be
   (μ₂, d₂) for every x. Then M₁ and M₂ together are (√(μ₁² + μ₂²), d₁ + d₂). Write
   q(x) = Q₂ˣ(E_x). Then P₂ˣ(E_x) ≤ F(q(x)) + d₂, where F(q) is the infimum over ε' of
   e^ε' q + h(ε', μ₂). So P(E) - e^ε Q(E) ≤ d₂ + ∫ [p₁ F(q) - e^ε q₁ q]
   ≤ d₂ + ∫ p₁ H(e^ε q₁/p₁), where H(γ) = h(log γ, μ₂). H is convex and falls from 1 to
   0, hence it is a mixture of functions (1 - γ/c)₊. For each of these,
   ∫ p₁ (1 - e^ε q₁/(c p₁))₊ ≤ h(ε - log c, μ₁) + d₁. The mixture of these h's is what
   two Gaussian mechanisms reach, h(ε, √(μ₁² + μ₂²)) (Dong, Roth & Su 2022, Corollary
   3.3).
2. *The whole.* All queries together, including queries of processes that run at the
   same time, are a sequence of releases. The (μᵢ, dᵢ) of a release may be chosen with
   knowledge of all earlier answers, but the sums stay within m and r. Such a sequence
   is (√m, r). The proof is by induction on the number of releases. The first release
   has constants (μ₁, d₁). For each answer to it, the other releases are such a sequence
   within m - μ₁² and r - d₁. These two steps compose as above. (For d = 0 this is the
   filter of Smith & Thakurta, arXiv 2210.17520.) Reserving more than is spent only
   makes the sums in the ledger larger.
3. *The real sampler.* At most D draws are made. By the sampler slack lemma of
   `skdp.privacy.accountant`, the ideal guarantee (ε', h(ε', √m) + r) therefore becomes
   the real guarantee (ε' + 2Dη, e^{Dη}(h(ε', √m) + r)). At ε' = ε - 2Dη this is at most
   (ε, δ), by the choice of m. D grows with ε, so the slack takes a fraction 2⁻¹³ of ε.
   Only if ε < 1/64 does it take more. ∎

**Neighbour relations are not mixed.** Replacing a record is the same as zeroing it and
filling it again, so μ-GDP under zero-out is 2μ-GDP under replace-one. But no such rule
holds for the d's. Also, replace-one says nothing about tables with a zeroed record, and
add-remove hides the number of rows, which the other relations treat as public. So a
ledger is made for one relation and refuses the others.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, NamedTuple

from msgspec import Meta

from skdp.privacy import accountant
from skdp.privacy.budget import ALLOWED_DRAWS
from skdp.privacy.queries import NEIGHBOURS, Neighbours
from skdp.schema import check
from skdp.typed_files import Count

#: Relative error allowed in the sums of a privacy record. It covers the 10⁻¹² that
#: `PrivacyRecord.charge` itself allows, and rounding.
ROUNDING = 2.0**-30
#: A number read from a file. The limit keeps sums of such numbers finite.
Finite = Annotated[float, Meta(ge=0, lt=1e300)]
#: A ledger allows as many noise draws as a certain number of runs may make. This number
#: is `RUNS_PER_EPSILON` per unit of ε, and at least `RUNS`.
RUNS_PER_EPSILON, RUNS = 4096, 64


class Amount(NamedTuple):
    """An amount of budget: exact sums of μ² and δ, and a number of noise draws."""

    mu_squared: Fraction
    delta: Fraction
    n_draws: int

    @classmethod
    def of(cls, mu_squared: float, delta: float, n_draws: int) -> Amount:
        """Return an amount, with floats converted to exact rational numbers.

        Infinite, nan and negative numbers are refused.
        """
        right = 0 <= mu_squared < math.inf and 0 <= delta < 1
        check(
            right and isinstance(n_draws, int) and 0 <= n_draws <= 1 << 53,
            "A ledger needs finite μ² ≥ 0, δ in [0, 1) and whole numbers of draws, got "
            f"{mu_squared!r}, {delta!r}, {n_draws!r}. A release without noise cannot "
            "be charged to it.",
        )
        return cls(Fraction(mu_squared), Fraction(delta), n_draws)

    def plus(self, other: Amount, sign: int = 1) -> Amount:
        """Return the sum of two amounts, or their difference if `sign` is -1."""
        return Amount(
            self.mu_squared + sign * other.mu_squared,
            self.delta + sign * other.delta,
            self.n_draws + sign * other.n_draws,
        )

    def within(self, other: Amount) -> bool:
        """Return whether μ², δ and the draws are all at most those of `other`."""
        return (
            self.mu_squared <= other.mu_squared
            and self.delta <= other.delta
            and self.n_draws <= other.n_draws
        )


def round_towards(value: Fraction, towards: float) -> float:
    """Round a fraction up or down to a float, in the direction of `towards`."""
    # `float` rounds to the nearest. A spent sum must not be rounded down, and a limit
    # must not be rounded up.
    near = float(value)
    right = near >= value if towards > near else near <= value
    return near if right else math.nextafter(near, towards)


NOTHING = Amount(Fraction(0), Fraction(0), 0)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The ceiling of a ledger, fixed when the ledger is made.

    Attributes
    ----------
    epsilon, delta : float
        The privacy that all releases together guarantee.
    reserved_delta : float
        The part r of delta that is set aside for releases that are not Gaussian.
    neighbours : str
        Which tables are neighbours.
    unit : str or None
        The names of the columns that identify a person, if neighbouring tables differ
        in one person. Otherwise they differ in one row.
    mu_squared : float
        The limit m on the sum of μ².
    n_draws : int
        The limit D on the number of noise draws.
    """

    epsilon: Finite
    delta: Finite
    reserved_delta: Finite
    neighbours: Neighbours
    mu_squared: Finite
    n_draws: Count
    unit: str | None = None

    @classmethod
    def of(
        cls,
        epsilon: float,
        delta: float,
        reserved_delta: float = 0.0,
        neighbours: Neighbours = "add-remove",
        unit: str | None = None,
    ) -> Terms:
        """Compute the limits m and D from (ε, δ) and return all terms."""
        check(
            0 < epsilon <= 1e5,
            f"epsilon of a ledger must be in (0, 1e5], got {epsilon!r}.",
        )
        check(
            0 <= reserved_delta < delta < 1,
            "A ledger must have 0 ≤ reserved_delta < delta < 1, got "
            f"{reserved_delta!r} and {delta!r}.",
        )
        check(
            neighbours in NEIGHBOURS,
            f"neighbours must be one of {NEIGHBOURS}, got {neighbours!r}.",
        )
        n_draws = ALLOWED_DRAWS * max(RUNS, math.ceil(RUNS_PER_EPSILON * epsilon))
        grown = math.exp(n_draws * accountant.SLACK_PER_DRAW) * (1 + ROUNDING)
        left = delta - reserved_delta * grown
        mu_squared = accountant.calibrate(epsilon, left, n_draws) ** 2 * (1 - ROUNDING)
        return cls(
            epsilon=float(epsilon),
            delta=float(delta),
            reserved_delta=float(reserved_delta),
            neighbours=neighbours,
            mu_squared=mu_squared,
            n_draws=n_draws,
            unit=unit,
        )

    def to_values(self) -> dict[str, Any]:
        """Return the fields that are written to a ledger.

        The field `unit` is written only if it is set. So the text of a ledger without a
        unit is the same as in versions of skdp that had no units.
        """
        values = asdict(self)
        if self.unit is None:
            del values["unit"]
        return values

    def check(self) -> None:
        """Raise an error unless m and D are the limits that follow from ε and δ.

        Terms that were edited in the file are refused in this way.
        """
        fresh = Terms.of(self.epsilon, self.delta, self.reserved_delta, self.neighbours)
        near = math.isclose(self.mu_squared, fresh.mu_squared, rel_tol=1e-9)
        check(
            near and self.n_draws == fresh.n_draws,
            "the limits m and D must follow from ε and δ",
        )

    @cached_property
    def ceiling(self) -> Amount:
        """The largest amount that all entries together may spend."""
        return Amount.of(self.mu_squared, self.reserved_delta, self.n_draws)

    def epsilon_of(self, amount: Amount) -> float:
        """Return the ε that an amount costs at the ledger's δ.

        The result is never above the ε of the ceiling.
        """
        mu = math.sqrt(round_towards(amount.mu_squared, math.inf)) * (1 + ROUNDING)
        extra = round_towards(amount.delta, math.inf) * (1 + ROUNDING)
        own = accountant.spent_epsilon(mu, self.delta, amount.n_draws, extra)
        return min(self.epsilon, own)


def find_epsilon(left: Amount, delta: float, reserved_delta: float = 0.0) -> float:
    """Return the largest ε, to four digits, of a fit that `left` can pay for.

    The result is 0 if `left` cannot pay for any fit.
    """
    most = delta - reserved_delta * (1 + 2.0**-25)  # as PrivacyRecord does
    short = left.delta < reserved_delta or left.n_draws < ALLOWED_DRAWS
    if short or left.mu_squared <= 0 or not 0 < most < 1:
        return 0.0
    mu = math.sqrt(round_towards(left.mu_squared, 0.0))
    text = f"{accountant.spent_epsilon(mu, most, ALLOWED_DRAWS):.3e}"
    epsilon, step = float(text), 10.0 ** (int(text.partition("e")[2]) - 3)
    slack = 2 * ALLOWED_DRAWS * accountant.SLACK_PER_DRAW
    while epsilon > max(step, 1.001 * slack):
        if accountant.calibrate(epsilon, most, ALLOWED_DRAWS) ** 2 <= left.mu_squared:
            return float(f"{epsilon:.4g}")
        epsilon -= step
    return 0.0
