"""Combine narrow groups of codes into one code per combination of levels.

Reading one byte per row instead of three makes full steps faster. The move of a
combination is the sum of its groups' moves, and a group's sum adds up all of its
combinations. Both are exact integers, so combining changes no bit of a result.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skdp.privacy.encoding import AnyArray
from skdp.schema import FloatArray, Layout

#: Number of combinations that fit in a byte.
MOST_COMBINATIONS = 256


class CombinedCodes(NamedTuple):
    """Several groups of codes that are read as one.

    Attributes
    ----------
    groups : the groups that are combined
    slots : first slot of each of them
    shape : width of each, including its spare slot for codes that touch nothing
    start : first slot of the combinations
    """

    groups: tuple[int, ...]
    slots: tuple[int, ...]
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Number of combinations."""
        return math.prod(self.shape)

    def codes(self, parts: tuple[AnyArray, ...]) -> npt.NDArray[np.uint8]:
        """Return the code of each row's combination."""
        total = np.zeros(len(parts[self.groups[0]]), np.uint8)
        for group, width in zip(self.groups, self.shape, strict=True):
            total = total * np.uint8(width) + parts[group].astype(np.uint8)
        return total

    def spread(self, moves: FloatArray) -> None:
        """Write the moves of all combinations into `moves` (k, slots)."""
        total = np.zeros((len(moves), 1))
        for slot, width in zip(self.slots, self.shape, strict=True):
            own = moves[:, None, slot : slot + width]
            total = (total[:, :, None] + own).reshape(len(moves), -1)
        moves[:, self.start : self.start + self.size] = total

    def gather(self, sums: npt.NDArray[np.int64]) -> None:
        """Add the sums of all combinations to those of their groups, in `sums`."""
        own = sums[:, self.start : self.start + self.size].reshape(-1, *self.shape)
        axes = set(range(1, own.ndim))
        for axis, (slot, width) in enumerate(zip(self.slots, self.shape, strict=True)):
            sums[:, slot : slot + width] += own.sum(axis=tuple(axes - {axis + 1}))


def combine_codes(layout: Layout, start: int) -> list[CombinedCodes]:
    """Choose which groups of codes are read together, the narrowest first.

    Parameters
    ----------
    layout : Layout
        The coordinates.
    start : int
        First free slot; the slots of all combinations follow from there.
    """
    widths = {g: c.width + 1 for g, c in enumerate(layout.groups) if c.kind == "code"}
    bins: list[list[int]] = [[]]
    for group in sorted(widths, key=lambda group: widths[group]):
        if math.prod(widths[g] for g in [*bins[-1], group]) > MOST_COMBINATIONS:
            bins.append([])
        bins[-1].append(group)
    found = []
    for groups in bins:
        if len(groups) > 1:
            slots = tuple(layout.groups[g].start + g for g in groups)
            shape = tuple(widths[g] for g in groups)
            found.append(CombinedCodes(tuple(groups), slots, shape, start))
            start += found[-1].size
    return found
