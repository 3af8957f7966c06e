"""Read scipy sparse matrices in dense tiles of a few rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from skdp.tables import arrays
from skdp.tables.readers import Cells, Source, make_slices


def matrix(given: Any, wanted: Sequence[str] | None) -> Source:
    """Open a sparse matrix, which must have the schema's columns in the same order."""
    by_rows = given.tocsr()

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        for part in make_slices(by_rows.shape[0], rows):
            tile = by_rows[part].toarray().T
            yield [tile[position] for position in at]

    kinds = arrays.matrix(by_rows[:0].toarray(), None).kinds
    return Source(names=None, kinds=kinds, read=read, n_rows=by_rows.shape[0])
