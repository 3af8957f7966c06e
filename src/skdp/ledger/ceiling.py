r"""The ceiling of a ledger, and the proof that releases below it are private.

**The ceiling is a rectangle.** A mechanism is (μ, d) if for neighbouring tables and all
real ε' its output laws obey P(E) ≤ e^ε' Q(E) + h(ε', μ) + d, with h(ε', μ) =
`accountant.gdp_delta`. Of δ a part r = `reserved_delta` is set aside for the d's when
the ledger is made, and

.. math:: Σ μᵢ² ≤ m,\quad Σ dᵢ ≤ r,\quad Σ \text{draws} ≤ D

are kept at all times, m = `accountant.calibrate` (ε, δ - r e^{Dη}, D)², all three fixed
beforehand and added in exact rational numbers. To trade one against another later, by
requiring only that h(ε, √Σμ²) + Σd ≤ δ, would not be private: an analyst who spends μ²
where the answers so far reveal much, and the rest as d where they reveal little, nearly
reaches 2δ (`tests/ledger/test_ceiling.py` computes 1.96 δ).

1. *Two steps.* If M₁ is (μ₁, d₁), and M₂, which sees its output x, is (μ₂, d₂) for
   every x, then both are (√(μ₁² + μ₂²), d₁ + d₂). With q(x) = Q₂ˣ(E_x),
   P₂ˣ(E_x) ≤ F(q(x)) + d₂, F(q) = inf over ε' of e^ε' q + h(ε', μ₂), so P(E) - e^ε Q(E)
   ≤ d₂ + ∫ [p₁ F(q) - e^ε q₁ q] ≤ d₂ + ∫ p₁ H(e^ε q₁/p₁), H(γ) = h(log γ, μ₂). H is
   convex and falls from 1 to 0, hence a mixture of functions (1 - γ/c)₊, and ∫ p₁ (1 -
   e^ε q₁/(c p₁))₊ ≤ h(ε - log c, μ₁) + d₁; the mixture of the h's is what two Gaussian
   mechanisms reach, h(ε, √(μ₁² + μ₂²)) (Dong, Roth & Su 2022, Corollary 3.3).
2. *The whole.* All queries together, also those of processes that run at once, are a
   sequence of releases, each with a (μᵢ, dᵢ) chosen knowing all earlier answers, whose
   sums stay within m and r. It is (√m, r): by
   induction on the number of releases, the first has constants (μ₁, d₁), the others
   are, for each answer to it, such a sequence within m - μ₁² and r - d₁, and two steps
   compose as above. (For d = 0 this is the filter of Smith & Thakurta, arXiv
   2210.17520.) Reserving and settling only makes the sums in the ledger larger.
3. *The real sampler.* At most D draws are made, so the ideal (ε', h(ε', √m) + r) is in
   truth (ε' + 2Dη, e^{Dη}(h(ε', √m) + r)), by the sampler slack lemma of
   `skdp.privacy.accountant`. At ε' = ε - 2Dη it is at most (ε, δ), by the choice of
   m. D grows with ε, so that the slack takes 2⁻¹³ of it. ∎

**Relations are not mixed.** Replacing a record is zeroing one and filling it again, so
μ-GDP under zero-out is 2μ-GDP under replace-one, but no such rule holds for the d's,
replace-one says nothing of tables with a zeroed record, and add-remove hides the number
of rows that the others publish. A ledger is for one relation and refuses the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Annotated, NamedTuple

from msgspec import Meta

from skdp.privacy import accountant
from skdp.privacy.budget import ALLOWED_DRAWS
from skdp.privacy.queries import NEIGHBOURS, Neighbours
from skdp.schema import check
from skdp.typed_files import Count

#: What records may be off by, relatively: 10⁻¹² (`PrivacyRecord.charge`) and roundings.
ROUNDING = 2.0**-30
#: A number that was read from a file; an exact sum of such stays finite.
Finite = Annotated[float, Meta(ge=0, lt=1e300)]
#: Full runs whose draws the slack leaves room for, per unit of ε, and at least.
RUNS_PER_EPSILON, RUNS = 4096, 64


class Amount(NamedTuple):
    """What is spent: exact sums of μ² and of δ, and a number of draws."""

    mu_squared: Fraction
    delta: Fraction
    n_draws: int

    @classmethod
    def of(cls, mu_squared: float, delta: float, n_draws: int) -> Amount:
        """Take floats as what they are, rational numbers; refuse inf, nan, negative."""
        right = 0 <= mu_squared < math.inf and 0 <= delta < 1
        check(
            right and isinstance(n_draws, int) and 0 <= n_draws <= 1 << 53,
            "A ledger holds finite μ² ≥ 0, δ in [0, 1) and whole numbers of draws, got "
            f"{mu_squared!r}, {delta!r}, {n_draws!r}. A release without noise cannot "
            "be charged to it.",
        )
        return cls(Fraction(mu_squared), Fraction(delta), n_draws)

    def plus(self, other: Amount, sign: int = 1) -> Amount:
        """Add, or with sign -1 subtract, part by part."""
        return Amount(
            self.mu_squared + sign * other.mu_squared,
            self.delta + sign * other.delta,
            self.n_draws + sign * other.n_draws,
        )

    def within(self, other: Amount) -> bool:
        """Whether no part is larger than the other's."""
        return (
            self.mu_squared <= other.mu_squared
            and self.delta <= other.delta
            and self.n_draws <= other.n_draws
        )


def round_towards(value: Fraction, towards: float) -> float:
    """Return the nearest float on the side of `towards`."""
    near = float(value)
    right = near >= value if towards > near else near <= value
    return near if right else math.nextafter(near, towards)


NOTHING = Amount(Fraction(0), Fraction(0), 0)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The ceiling of a ledger, fixed when it is made.

    Attributes
    ----------
    epsilon, delta : float
        What is promised.
    reserved_delta : float
        r, the part of delta for what is not Gaussian.
    neighbours : str
        Which tables are neighbours.
    mu_squared : float
        m.
    n_draws : int
        D.
    """

    epsilon: Finite
    delta: Finite
    reserved_delta: Finite
    neighbours: Neighbours
    mu_squared: Finite
    n_draws: Count

    @classmethod
    def of(
        cls,
        epsilon: float,
        delta: float,
        reserved_delta: float = 0.0,
        neighbours: Neighbours = "add-remove",
    ) -> Terms:
        """Compute m and D from the ceiling (ε, δ)."""
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
        )

    def check(self) -> None:
        """Refuse terms that were read, unless m and D are what ε and δ give."""
        fresh = Terms.of(self.epsilon, self.delta, self.reserved_delta, self.neighbours)
        near = math.isclose(self.mu_squared, fresh.mu_squared, rel_tol=1e-9)
        check(near and self.n_draws == fresh.n_draws, "m or D are not those of (ε, δ)")

    @cached_property
    def ceiling(self) -> Amount:
        """What all entries together may reach."""
        return Amount.of(self.mu_squared, self.reserved_delta, self.n_draws)

    def epsilon_of(self, amount: Amount) -> float:
        """The ε of an amount at the ledger's δ; never above the ceiling's."""
        mu = math.sqrt(round_towards(amount.mu_squared, math.inf)) * (1 + ROUNDING)
        extra = round_towards(amount.delta, math.inf) * (1 + ROUNDING)
        own = accountant.spent_epsilon(mu, self.delta, amount.n_draws, extra)
        return min(self.epsilon, own)


def find_epsilon(left: Amount, delta: float, reserved_delta: float = 0.0) -> float:
    """Return the largest ε, to four digits, of a fit that `left` pays, or 0."""
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
