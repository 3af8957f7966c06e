"""Hostile tables, and the sums over them in Python's own integers.

The second half is written from the definitions alone: no numpy, nothing of skdp but
the public numbers of a layout and one row's slope.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from skdp.privacy.encoding import Batch, Coded, encode
from skdp.privacy.grid import WeightGrid
from skdp.schema import Categorical, Numeric, Pair, Schema, Vector

ONE = 1 << 14
#: What readers may hand over as categories: known, unknown and absurd ones.
WORDS = ["a", "b", "c", "zzz", "", 1, 1.0, True, 7, None, math.nan, -0.0]
CODES = [0, 1, 2, 3, 5, 6, 7, 9, 10, 11, -1, 12, 255, 256, 10**6, -(10**6)]
EXTREMES = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 16.0, -16.0, 1024.0, -1024.0, 1e5, 0.1),
    *(math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -5e-324, 1e-310, 2.0**-14),
    *(
        2.0**-15,
        1 - 2.0**-53,
        1 + 2.0**-52,
        1e16,
        2.0**53,
        -(2.0**63),
        0.7071067811865476,
    ),
]
hostile = st.one_of(st.sampled_from(EXTREMES), st.floats(), st.floats(-2.0, 2.0))
codes = st.sampled_from(CODES)

MIXED = {
    "x": Numeric(0.0, 2.0),
    "log": Numeric(-1.0, 1e5, scale="log", indicator=True),
    "bins": Numeric(-3.0, 3.0, bins=4, indicator=True),
    "job": Categorical(["a", "b", "c"]),
    "kin": Categorical(["a", 1, True], other="a"),
    "text": Vector(["t0", "t1", "t2"], norm=2.0),
}
FILLED = {
    "x": Numeric(0.0, 2.0, fill=(0.5, 1.0)),
    "y": Numeric(-1.0, 1.0, missing=0.99, fill=(0.75, 1.0)),
    "job": MIXED["job"],
}
CURVED = {
    "x": Numeric(0.0, 2.0, knots=(0.0, 0.25, 0.5, 1.75, 2.0)),
    "log": Numeric(-1.0, 1e5, scale="log", knots=3, indicator=True),
    "job": MIXED["job"],
    "x:log": Pair("x", "log", knots=3),
    "x:job": Pair("x", "job", knots=2, scale=1.0),
    "bins": MIXED["bins"],
    "job:bins": Pair("job", "bins", knots=2, scale=0.25),
}
COLUMNS = {
    "curved": (CURVED, None),
    "filled": (FILLED, None),
    "mixed": (MIXED, None),
    "short": (MIXED, 2.05),  # room for 1.2 beside its three codes
    "codes": ({key: MIXED[key] for key in ("bins", "job", "kin")}, None),
    "plain": ({"x": MIXED["x"], "job": MIXED["job"]}, None),
    "text": ({"text": MIXED["text"], "x": MIXED["x"]}, 1.1),
}
CLASSES = Categorical(["a", "b", "c"])
#: Losses of a number; the others take classes.
NUMERIC = ("squared", "huber", "poisson")


def target_of(loss):
    """A target that suits the loss: two or three classes, or a number."""
    if loss in NUMERIC:
        return Numeric(-2.0, 2.0)
    return CLASSES if loss == "softmax" else Categorical(["a", "b"])


def schema_of(name, loss="logistic"):
    columns, row_norm = COLUMNS[name]
    return Schema(columns, target=target_of(loss), row_norm=row_norm)


def cell(column):
    """Anything that a column may hold in one row."""
    if isinstance(column, Categorical):
        return codes
    if isinstance(column, Vector):
        width = len(column.names)
        return st.lists(hostile, min_size=width, max_size=width)
    return hostile


def read_by(schema):
    """The columns that have cells of their own."""
    columns = schema.columns.items()
    return [(key, column) for key, column in columns if not isinstance(column, Pair)]


def row_of(schema):
    """One raw record: its cells, its target and its weight."""
    cells = {key: cell(column) for key, column in read_by(schema)}
    return st.fixed_dictionaries(
        cells | {"target": cell(schema.target_column), "weight": hostile}
    )


def rows_of(schema, **sizes):
    return st.lists(row_of(schema), **sizes)


def _cells(values, column):
    if isinstance(column, Categorical):
        return Coded(np.array(values, dtype=np.int64), WORDS)
    if isinstance(column, Vector):
        return np.array(values, dtype=np.float64).reshape(-1, len(column.names))
    return np.array(values, dtype=np.float64)


def batch_of(rows, schema):
    return Batch(
        columns={
            key: _cells([row[key] for row in rows], column)
            for key, column in read_by(schema)
        },
        target=_cells([row["target"] for row in rows], schema.target_column),
        weight=np.array([row["weight"] for row in rows], dtype=np.float64),
    )


def records_of(rows, schema, *, cuts=(), intercept=True, max_weight=1.0):
    """Encode raw rows, in chunks that end at `cuts`."""
    edges = [0, *sorted(cuts), len(rows)]
    batches = [
        batch_of(rows[low:high], schema) for low, high in itertools.pairwise(edges)
    ]
    return encode(batches, schema, intercept=intercept, max_weight=max_weight)


def weights_of(layout, n_outputs):
    """Weights (d, k) as a run may hand them over, nan and infinities included."""
    size = layout.n_features * n_outputs
    return st.lists(hostile, min_size=size, max_size=size).map(
        lambda values: np.array(values).reshape(layout.n_features, n_outputs)
    )


def sets_of(layout):
    """Nonempty sets of coordinates, in any order."""
    everything = list(range(layout.n_features))
    subsets = st.lists(st.sampled_from(everything), min_size=1, unique=True)
    return st.one_of(st.just(everything), subsets).map(np.array)


# ------------------------------------------------------------ in Python's integers


def features(records):
    """Encoded rows as lists of integers in units of 2⁻¹⁴, one per coordinate."""
    result = []
    for chunk in records.chunks:
        for i in range(len(chunk.target)):
            row = []
            for group, part in zip(records.layout.groups, chunk.parts, strict=True):
                if group.kind == "ones":
                    row.append(ONE)
                elif group.kind == "dense":
                    row.extend(int(unit) for unit in part[i])
                elif group.kind == "hats":
                    row.extend(hats([int(place) for place in part[i]], group.axes))
                else:
                    hot = int(part[i])
                    row.extend(ONE * (j == hot) for j in range(group.width))
            result.append(row)
    return result


def hats(positions, axes):
    """The products of max(0, 1 - |position - knot|) over the axes, rounded down."""
    tents = [
        [max(0, ONE - abs(position - knot * ONE)) for knot in range(width)]
        for position, width in zip(positions, axes, strict=True)
    ]
    return [
        math.prod(some) // ONE ** (len(axes) - 1) for some in itertools.product(*tents)
    ]


def slope_grid(bound):
    """The unit and the cap of slopes bounded by `bound`, as fractions."""
    power = Fraction(1)
    while power > Fraction(bound):
        power /= 2
    while 2 * power <= Fraction(bound):
        power *= 2
    unit = power / 2**16
    return unit, math.floor(Fraction(bound) / unit)


def root_floor(square):
    """⌊√square⌋ of a nonnegative fraction."""
    return math.isqrt(math.floor(square))


def clipped_features(records):
    """The same, with numbers clipped to what rows fill, as Gram matrices take them."""
    ends = records.layout.clips
    if ends is None:
        return features(records)
    low, high = ends.tolist()
    return [
        [max(a, min(b, k)) for a, b, k in zip(low, high, row, strict=True)]
        for row in features(records)
    ]


def slope_units(raw, unit, cap):
    """Slopes of one record: to the nearest unit, halves up, then of norm ≤ cap."""
    units = []
    for slope in raw:
        if math.isnan(slope):
            units.append(0)
        elif math.isinf(slope) or abs(Fraction(slope)) > 2**20 * unit:
            units.append(cap if slope > 0 else -cap)
        else:  # the sum is a float's: the float below one half goes up
            nearest = math.floor(float(Fraction(slope) / unit) + 0.5)
            units.append(max(-cap, min(cap, nearest)))
    square = sum(u * u for u in units)
    if len(units) == 1 or square <= cap * cap:
        return units
    shrunk = Fraction(cap * cap * (2**40 - 1) ** 2, square * 2**80)
    return [int(math.copysign(1, u)) * root_floor(u * u * shrunk) for u in units]


def weight_units(weights, layout):
    """Weights as integers on the layout's grid."""
    bits = WeightGrid.of(layout).bits
    box = 1024 * Fraction(2) ** bits

    def unit(weight):
        if math.isnan(weight):
            return 0
        if math.isinf(weight):
            return int(math.copysign(1, weight) * box)
        return round(max(-box, min(box, Fraction(weight) * Fraction(2) ** bits)))

    return [[unit(weight) for weight in row] for row in weights.tolist()]


def exact_slopes(records, slopes, weights, caps=None):
    """Integer slopes of all records, each from its own row alone."""
    layout, loss = records.layout, slopes.loss
    unit, cap = slope_grid(loss.slope_bound * slopes.max_weight)
    scale = Fraction(1, ONE) / Fraction(2) ** WeightGrid.of(layout).bits
    w = weight_units(weights, layout)
    rows = iter(zip(features(records), caps or [cap] * 10**4, strict=False))
    result = []
    for chunk in records.chunks:
        for i in range(len(chunk.target)):
            x, own = next(rows)
            margins = []
            for k in range(len(w[0])):
                margin = sum(x[j] * w[j][k] for j in range(len(x))) * scale
                assert Fraction(float(margin)) == margin, "a margin is a float exactly"
                margins.append(float(margin))
            slope = loss.slope(np.array([margins]), chunk.target[i : i + 1])
            raw = [s * float(chunk.weight[i]) for s in slope[0].tolist()]
            result.append(slope_units(raw, unit, min(own, cap)))
    return result


def exact_gradient(records, slopes, weights, at, caps=None):
    """Σ_i x_i s_iᵀ on the coordinates `at`, in integers."""
    parts = list(
        zip(
            features(records),
            exact_slopes(records, slopes, weights, caps),
            strict=True,
        )
    )
    return [
        [sum(x[j] * s[k] for x, s in parts) for k in range(weights.shape[1])]
        for j in np.asarray(at).tolist()
    ]


def exact_images(records, metric):
    """B x of all records, in integers."""
    matrix = [[int(unit) for unit in row] for row in metric.units.tolist()]
    return [
        [sum(b * k for b, k in zip(row, x, strict=True)) for row in matrix]
        for x in features(records)
    ]


def exact_caps(records, metric, slopes):
    """⌊radius / (unit ‖B x‖ (1 + 2⁻⁴⁰))⌋, at most the grid's cap, of all records."""
    unit, cap = slope_grid(slopes.loss.slope_bound * slopes.max_weight)
    worth = unit * Fraction(1, ONE) / Fraction(2) ** metric.bits
    caps = []
    for image in exact_images(records, metric):
        square = sum(u * u for u in image) * (1 + Fraction(1, 2**40)) ** 2
        most = cap * cap * square * worth**2
        inside = most <= Fraction(metric.radius) ** 2
        reach = Fraction(metric.radius) / worth
        caps.append(cap if inside else root_floor(reach**2 / square))
    return caps


def squared_difference(one, other):
    """‖(value - value')·unit/shape‖² of two sums, as a fraction."""
    assert (one.unit, one.sensitivity) == (other.unit, other.sensitivity)
    assert np.array_equal(one.shape, other.shape)
    scales = np.broadcast_to(one.shape, one.value.shape)
    difference = (one.value - other.value).ravel().tolist()
    return sum(
        (Fraction(d) * Fraction(one.unit) / Fraction(scale)) ** 2
        for d, scale in zip(difference, scales.ravel().tolist(), strict=True)
    )
