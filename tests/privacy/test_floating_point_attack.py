"""The published attacks on floating-point Gaussian noise, on naive noise and on ours.

A naive mechanism computes ``value + sigma * normal()`` in doubles. Not every double can
come out of every value, and an attacker who knows the two values that are possible asks
which of them the output can have come from:

- *grid* (Mironov, CCS 2012, on Laplace noise): doubles near zero are closer together
  than those that a larger value was rounded to.
- *inverse* (Jin, McMurtry, Rubinstein and Ohrimenko, IEEE S&P 2022, arXiv 2112.05307):
  Box and Muller's method makes two normals from two multiples of 2⁻⁵³. The attacker
  inverts it, tries all multiples nearby, and looks whether one of them gives the very
  bits that were seen; for a wrong value mostly none does.

Both often know for certain what (ε, δ)-privacy says nobody may be sure of. `release`
rounds the real sum of value and noise to a grid that does not depend on the value:
whatever it returns could have come from either.
"""

import math

import numpy as np
import pytest

from skdp.audit import games
from skdp.privacy import accountant, queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import release
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness

EPSILON, DELTA, MISS = 1.0, 1e-6, 1e-6
MU = accountant.gdp_mu(EPSILON, DELTA)
SIGMA = 1.0 / MU  # of a count, which one record changes by one
N = 10_000


def numpy_noise(value, rng, n):
    """The program as a user would write it in a notebook."""
    return value + SIGMA * rng.standard_normal((n, 1))


def box_muller(value, rng, n):
    """Two answers from one pair of uniform deviates."""
    return textbook(value, 1.0 - rng.random(n), rng.random(n))


def textbook(value, u, angle):
    """Box and Muller's method, as it is printed."""
    length = np.sqrt(-2.0 * np.log(u))
    turn = 2.0 * math.pi * angle
    pair = np.column_stack([length * np.cos(turn), length * np.sin(turn)])
    return value + SIGMA * pair


def ours(value, rng, n, width=1):
    """The library's release of a count, as often as is asked for."""
    noise, record = (
        Randomness(),
        PrivacyRecord(epsilon=math.inf, delta=0.5, neighbours="add-remove"),
    )
    count = queries.histogram(
        queries.big([int(value)] * width), 1, "add-remove", Kind.ROW_COUNT, "count"
    )
    return np.array([release(count, SIGMA, noise, record).values for _ in range(n)])


def our_pairs(value, rng, n):
    return ours(value, rng, n, width=2)


def grid_says_zero(outputs):
    """Where the output cannot have come from the value one, but from zero.

    1 + noise below 1/2 has noise of at least 1/2, a multiple of 2⁻⁵³; so is the sum.
    """
    y = outputs[:, 0]
    small = np.abs(y) < 0.5
    units = np.ldexp(np.where(small, y, 0.0), 53)
    return small & (units != np.rint(units))


def inverse_says_zero(outputs):
    """Where no deviates give exactly these two answers for the value one."""
    noise = (outputs - 1.0) / SIGMA
    size = np.exp(-(noise * noise).sum(axis=1) / 2)
    turn = np.arctan2(noise[:, 1], noise[:, 0]) / (2.0 * math.pi) % 1.0
    first, second = np.rint(np.ldexp(size, 53)), np.rint(np.ldexp(turn, 53))
    reachable = np.zeros(len(outputs), dtype=bool)
    top = 2.0**53
    for near in range(-5, 6):
        u = np.clip(first + near, 1.0, top) / top
        for beside in range(-7, 8):
            angle = (second + beside) % top / top
            reachable |= (textbook(1.0, u, angle) == outputs).all(axis=1)
    return ~reachable


def played(mechanism, attack):
    """(said zero though it was one, said one though it was zero) of N games each."""
    rng = np.random.default_rng(1)
    wrong = int(attack(mechanism(1.0, rng, N)).sum())
    missed = N - int(attack(mechanism(0.0, rng, N)).sum())
    return wrong, missed


def proved(wrong, missed):
    """Lower bounds on ε at δ: from the plain inequality, and on μ."""
    plain = games.plain_epsilon_lower(wrong, missed, N, DELTA, MISS)
    return plain, games.mu_lower(wrong + missed, 2 * N, MISS)


def told(name, wrong, missed):
    plain, mu = proved(wrong, missed)
    print(
        f"{name}: advantage {1.0 - (wrong + missed) / N:.3f}, wrong {wrong / N:.4f}; "
        f"proves ε ≥ {plain:.2f}, μ ≥ {mu:.2f}; claimed ε = {EPSILON}, μ = {MU:.3f}"
    )


@pytest.mark.parametrize(
    ("mechanism", "attack"),
    [(numpy_noise, grid_says_zero), (box_muller, inverse_says_zero)],
    ids=["grid", "inverse"],
)
def test_the_attack_breaks_naive_noise(mechanism, attack, request):
    wrong, missed = played(mechanism, attack)
    told(request.node.name, wrong, missed)
    assert wrong == 0  # what it says is certain
    assert proved(wrong, missed)[0] > 3 * EPSILON


@pytest.mark.parametrize(
    ("mechanism", "attack"),
    [(ours, grid_says_zero), (our_pairs, inverse_says_zero)],
    ids=["grid", "inverse"],
)
def test_the_attack_gains_nothing_on_ours(mechanism, attack, request):
    """It is right no more often than it is wrong, beyond what the claim allows."""
    wrong, missed = played(mechanism, attack)
    told(request.node.name, wrong, missed)
    plain, mu = proved(wrong, missed)
    assert plain <= EPSILON
    assert mu <= MU
    advantage = abs(1.0 - (wrong + missed) / N)
    allowed = accountant.gdp_delta(0.0, MU)  # for an attacker who uses all releases
    assert advantage <= allowed + 5.0 / math.sqrt(2 * N)


@pytest.mark.parametrize("value", [0.0, 1.0, 2.0**40])
def test_what_ours_can_return_does_not_depend_on_the_value(value):
    """Multiples of one cell, public and far coarser than a double, and all of them."""
    cell = 2.0 ** (math.frexp(SIGMA)[1] - 11)
    cells = np.ravel(ours(value, None, 4000)) / cell
    assert np.array_equal(cells, np.rint(cells))
    assert set(np.unique(cells % 4.0)) == {0.0, 1.0, 2.0, 3.0}
