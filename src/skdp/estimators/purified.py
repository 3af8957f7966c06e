"""Separate the effects of curves and pairs in an additive model.

A surface over two columns can imitate the curves of both, so the weights of curves and
pairs are not unique. The effects below are unique. They are linear in the weights and
make (nearly) the same predictions:

* The effect of a pair has a mean of zero at each value of either column, if the columns
  are treated as independent. The means that are removed are added to the effects of the
  two columns.
* The effect of a column has a mean of zero over the rows. The mean that is removed is
  added to the intercept.

Boosted additive models show their terms in the same way. The means are weighted by the
share of rows at each category or knot. These shares follow from the released Gram
matrix, so all of this is post-processing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skdp.descent.gram import fill_gram
from skdp.planning.plan import Plan
from skdp.privacy.queries import GramPattern, name_gram
from skdp.schema import FloatArray, Layout, Numeric, Pair, Schema, split_hats


def estimate_shares(model: Any) -> FloatArray | None:
    """Estimate the mean of each coordinate over the rows, shape (d,).

    For a category or a knot, this is the share of rows that are there. It follows from
    the released Gram matrix. Return None if no matrix was released.
    """
    plan = model.plan_
    if not isinstance(plan, Plan) or not model.fit_intercept:
        return None
    pattern = GramPattern.of(plan.layout, plan.neighbours, centred=True)
    query = name_gram(len(pattern.rows))
    transcript = model.privacy_.transcript
    released = next((one for one in transcript if one.query == query), None)
    if released is None:
        return None
    gram = fill_gram(plan.layout, pattern, released.values, plan.n_rows)
    shares = np.clip(gram[:, -1] / plan.n_rows + pattern.shift / 2.0, 0.0, 1.0)
    for group in plan.layout.groups:
        if group.kind in ("code", "hats"):
            own = shares[group.coordinates]
            total = float(own.sum())
            even = np.full(group.width, 1.0 / group.width)
            shares[group.coordinates] = own / total if total > 0 else even
    return shares


def make_purifying_matrix(
    schema: Schema, layout: Layout, shares: FloatArray | None
) -> FloatArray:
    """Return the matrix (d, d) that maps weights to effects.

    Without an intercept, weights are effects. Without `shares`, all categories and
    knots of a column are taken as equally frequent.
    """
    matrix = np.eye(layout.n_features)
    if layout.groups[-1].kind != "ones":
        return matrix
    groups = {group.name: group for group in layout.groups[:-1]}
    if shares is None:
        shares = np.concatenate(
            [np.full(group.width, 1.0 / group.width) for group in layout.groups]
        )
    for name, column in schema.columns.items():
        if isinstance(column, Pair):
            at = groups[name].coordinates
            mains = [groups[one] for one in (column.first, column.second)]
            if all(main.kind in ("code", "hats") for main in mains):
                rows, means, moved = _split_pair(column, shares[at])
                matrix[np.ix_(at, at)] = rows
                matrix[-1, at] += means
                for main, part in zip(mains, moved, strict=True):
                    matrix[np.ix_(main.coordinates, at)] += part
    for name, group in groups.items():
        if isinstance(schema.columns[name], Pair):
            continue
        if group.kind in ("code", "hats"):
            at = group.coordinates
            mean = shares[at] @ matrix[at]
            matrix[at] -= mean
            matrix[-1] += mean
    return matrix


def _split_pair(
    pair: Pair, shares: FloatArray
) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """Return the matrices that map a pair's weights to the parts of its effect.

    The parts are the pair's own effect, the mean of the effect, and the amounts that
    are moved to each of the two columns, at the column's categories or knots.
    """
    a, b = (part.width for part in pair.parts)
    table = shares.reshape(a, b)
    first, second = table.sum(axis=1), table.sum(axis=0)
    mean = np.outer(first, second).ravel()
    over_second = np.kron(np.eye(a), second)  # (a, ab), the mean at each first value
    over_first = np.kron(first, np.eye(b))  # (b, ab)
    rows = np.eye(a * b) + mean
    rows -= np.repeat(over_second, b, axis=0) + np.tile(over_first, (a, 1))
    moved = [
        _place_knots(column, part) @ over - mean
        for column, part, over in zip(
            pair.columns, pair.parts, (over_second, over_first), strict=True
        )
    ]
    return rows, mean, moved


def _place_knots(column: Any, part: Any) -> FloatArray:
    """Evaluate a pair's hat functions of one column at the column's knots or levels."""
    if not isinstance(column, Numeric) or column.bins is not None:
        return np.eye(part.width)
    values = column.unscale(column.place_knots())
    if column.indicator:
        values = np.append(values, np.nan)
    positions = part.compute_features(values)
    places, shares = split_hats(positions, (part.width,))
    hats = np.zeros((len(positions), part.width + 1))
    for place, share in zip(places.T, shares.T, strict=True):
        hats[np.arange(len(hats)), place] += share
    return hats[:, :-1]
