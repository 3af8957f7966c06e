"""A table whose rows come in another order, and in other batches, at each read."""

from dataclasses import replace

import numpy as np

from skdp.tables import arrays
from skdp.tables.readers import cut

_rng = np.random.default_rng()  # whatever the order, results must be the same
_open = arrays.open_mapping


class Shuffled(dict):
    """Columns by name, read as a query would be whose rows have no fixed order."""

    __len__ = None  # a query does not tell how many rows it has


def _open_shuffled(given, wanted):
    source = _open(dict(given), wanted)
    if type(given) is not Shuffled:
        return source

    def read(at, rows):
        (columns,) = source.read(range(len(source.kinds)), max(1, source.n_rows))
        order = _rng.permutation(source.n_rows)
        rows = min(rows, 400)
        ends = np.sort(_rng.integers(0, source.n_rows + 1, 3 + source.n_rows // rows))
        for part in np.split(order, ends):
            for some in np.split(part, range(rows, len(part), rows)):
                yield [cut(columns[position], some) for position in at]

    def count():
        return source.n_rows

    return replace(source, read=read, n_rows=None, count=count, ordered=False)


arrays.open_mapping = _open_shuffled
