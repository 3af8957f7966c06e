r"""Bound how much of a run of steps on public sets one record can take part in.

A row with one category per column has a gradient on only one coordinate of each column.
If steps move single coordinates, most steps have no gradient of that row, and it pays
for the others alone.

**Theorem.** Let the sets S₁, …, S_T be drawn independently of the table, and be public.
Let step t release a sum over records on S_t, at weights that may depend on all earlier
releases. Its noise is Gaussian. Coordinate j has the standard deviation z·Δ_t·h_tj,
where Δ_t is c times a bound on ‖x_{S_t}/h_t‖ over all rows x, times the cap on slopes.
Here c is 2 if a record may be replaced, and 1 otherwise. Let a_t(x) ≤ 1 be
‖x_{S_t}/h_t‖ divided by that bound. Then the run, including the sets, is μ-GDP with

.. math:: μ² = N/z², \qquad N = \sup_x \sum_t a_t(x)^2 .

*Proof.* Condition on the sets. Fix two neighbouring tables, which differ in a row x
that one of them lacks. At step t, for every earlier output, the means of the two
outputs differ by s·x_{S_t} with a slope s of at most the cap. In units of the noise,
the difference is at most a_t(x)/z, whatever s is. So the step is (a_t(x)/z)-GDP for
this pair of tables. The number a_t(x) depends on the sets and on x, not on earlier
outputs, so the composition of all steps has the trade-off curve of √(Σ_t a_t(x)²)/z-GDP
or a higher one (Dong, Roth & Su 2022, Theorem 3.2, whose proof compares one pair of
tables). The supremum over x covers all pairs. If x is replaced by x', the difference in
step t is at most (a_t(x) + a_t(x'))/(2z), and by Minkowski's inequality √Σ_t (a_t(x) +
a_t(x'))² ≤ 2√N. If all m rows x_i of a person are added or removed, each slope is at
most 1/m of the cap in all steps, so the difference is at most Σ_i a_t(x_i)/(mz), and
Minkowski's inequality gives √N/z again. Finally, the sets have the same law for both
tables, and the trade-off curve of a mixture whose component is published is not below
the lowest curve of a component. ∎

For every record of every table, a_t(x)² = Σ_j v_tj x_j², where v_tj = h_tj⁻²/sup_x
‖x_{S_t}/h_t‖² for j in S_t and 0 otherwise. So N is the largest squared norm of a row
in the weights v = Σ_t v_t, the *profile* of the sets (`find_longest`). For a category,
the most visited level counts. N = T if every step moves whole columns. If slopes can
always reach their cap, no smaller N is true: the row with the most visited level of
each column, with numbers at the end of their range and with a slope that stays at the
cap, attains every inequality.

The sets must not depend on the table, not even through released gradients. Then the
number of visits would be known only after the run. Such runs pay for all steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from skdp.schema import FloatArray, IntArray, Layout, check

#: N is raised by this factor, which covers the rounding of a sum over 2²² steps.
ROUNDING = 1.0 + 2.0**-30
#: `visit_images` needs a matrix of this many rows, at most.
MOST_COUPLED = 2048


@dataclass(frozen=True, kw_only=True, eq=False)
class Visits:
    """How much of a run one record can take part in.

    Attributes
    ----------
    n_steps : int
        The number T of steps.
    most : float
        N of the theorem, rounded up. It is at least 1 and at most T.
    profile : float64 (d,)
        v of the theorem.
    """

    n_steps: int
    most: float
    profile: FloatArray

    @classmethod
    def of(cls, layout: Layout, profile: FloatArray, n_steps: int) -> Visits:
        """Return the visits of a run whose sets have this profile.

        Notes
        -----
        **Guarantee.** For every encoded row x of the layout, Σ_j profile_j x_j² ≤ most,
        unless most = T. In that case the theorem holds because no a_t exceeds 1.
        """
        right = np.all((profile >= 0) & np.isfinite(profile))
        check(bool(right), "A profile must be finite and not negative.")
        most = find_longest(layout, profile) * ROUNDING
        return cls(
            n_steps=n_steps,
            most=min(max(most, 1.0), float(n_steps)),
            profile=profile,
        )

    @property
    def presence(self) -> float:
        """N/T, the largest part of the steps that a record takes part in."""
        return self.most / self.n_steps


def find_longest(layout: Layout, profile: FloatArray) -> float:
    """Return sup_x Σ_j profile_j x_j² over all encoded rows x.

    The squared norms of a row on the groups are at most 1 each. Together they are at
    most the square of `row_norm`, without the intercept. So the groups with the largest
    entries of the profile are filled first.

    Notes
    -----
    **Guarantee.** For every encoded row of the layout, the sum is at most the result.
    """
    largest = np.zeros(len(layout.groups))
    np.maximum.at(largest, layout.group_of, profile)
    fixed = np.array([group.kind == "ones" for group in layout.groups])
    inside, room = np.sort(largest[~fixed])[::-1], math.inf
    if layout.row_norm is not None:
        room = layout.row_norm**2
    share = np.clip(room - np.arange(len(inside)), 0.0, 1.0)
    return float(share @ inside + largest[fixed].sum())


#: Returns the visits of a run on given sets, one per step, or None if all steps must be
#: paid for.
CountVisits = Callable[[Sequence[IntArray]], Visits | None]


def count_distinct(sets: Iterable[IntArray]) -> list[tuple[IntArray, int]]:
    """Return each different set, and how often it occurs."""
    found: dict[bytes, tuple[IntArray, int]] = {}
    for at in sets:
        key = at.tobytes()
        found[key] = at, found[key][1] + 1 if key in found else 1
    return list(found.values())


def visit_gradients(
    layout: Layout,
    sets: Sequence[IntArray],
    shape: Callable[[IntArray], FloatArray] | None = None,
) -> Visits:
    """Return the visits of steps that release `queries.gradient` on these sets.

    ``shape(at)`` must be the shape that the query for the set `at` gets. By default it
    is 1 in all coordinates.

    Notes
    -----
    **Guarantee.** For every record, or all rows of a person together, and all weights,
    the parts of the sums on these sets, divided by the shapes and the sensitivities,
    have norms b_t with Σ_t b_t² ≤ N/c². Here N is `most`, and c is 2 if a record may be
    replaced, and 1 otherwise.
    """
    profile = np.zeros(layout.n_features)
    for at, times in count_distinct(sets):
        weights = np.ones(len(at)) if shape is None else 1.0 / shape(at) ** 2
        # The bound is the one from which `queries.gradient` computes the sensitivity.
        profile[at] += times * weights / layout.squared_norm(at, weights)
    return Visits.of(layout, profile, len(sets))


def visit_images(
    layout: Layout, images: Sequence[tuple[FloatArray, int]]
) -> Visits | None:
    """Return the visits of steps that release `queries.mapped_gradient`.

    Each entry of `images` is a matrix E and a number of steps. In these steps, the part
    of a row x must be at most min(1, ‖E x‖) times the radius of the metric. So
    a_t(x) = min(1, ‖E_t x‖), and Σ_t a_t(x)² ≤ xᵀVx with V = Σ_t E_tᵀE_t. There are two
    bounds on xᵀVx. One is the largest eigenvalue of V times ‖x‖². The other is
    (Σ_G n_G τ_G)² ≤ (Σ_G n_G) Σ_G n_G τ_G², where τ_G ≤ 1 is 1 for categories and
    curves and the norm of x on the group G for others, and n_G bounds
    ‖V^½ x_G‖/τ_G: it is the root of the largest V_jj in G for categories, curves and
    single numbers, and of the largest eigenvalue of V_GG for others. Both are sums over
    the groups, as a profile needs them, and the smaller one is used. If there are more
    coordinates than `MOST_COUPLED`, the result is None.

    Notes
    -----
    **Guarantee.** For every encoded row of the layout, Σ_t min(1, ‖E_t x‖)² ≤ N, where
    N is `most`. The same holds for the average over all rows of a person.
    """
    d, n_steps = layout.n_features, sum(times for _, times in images)
    if d > MOST_COUPLED:
        return None
    coupled = np.zeros((d, d))
    for image, times in images:
        coupled += times * (image.T @ image)
    reach = np.zeros(len(layout.groups))
    for number, group in enumerate(layout.groups):
        own = coupled[np.ix_(group.coordinates, group.coordinates)]
        ball = group.kind == "dense" and group.width > 1
        square = np.linalg.norm(own, 2) if ball else own.diagonal().max()
        reach[number] = math.sqrt(max(0.0, float(square)))
    by_group = (reach.sum() * reach)[layout.group_of]
    by_length = np.full(d, np.linalg.norm(coupled, 2))
    found = [Visits.of(layout, v * ROUNDING, n_steps) for v in (by_group, by_length)]
    return min(found, key=lambda visits: visits.most)
