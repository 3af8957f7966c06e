"""Laws over a table's blocks, one file each: a `NAME` and `make`, Facts to Sampling."""

from collections.abc import Sequence
from dataclasses import dataclass

from skdp.schema import FloatArray, IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Facts:
    """The facts that a sampling may use, in the table's raw units.

    Attributes
    ----------
    blocks : sequence of index arrays
        The partition of the coordinates, one block per column.
    smoothness : float64 (d,)
        M, the same on all coordinates of a block.
    ranges : float64 (d,)
        Length of each column's public range; 1 for categories.
    distance : float64 (d,)
        |w0 - w*|, the truth: what is made of it is not private.
    """

    blocks: Sequence[IntArray]
    smoothness: FloatArray
    ranges: FloatArray
    distance: FloatArray
