"""Narrow groups of codes that are read as one: a code for each combination of theirs.

Reading one byte of a row instead of three makes full steps faster. The move of a
combination is the sum of its groups' moves, and the sum of a group is that over all
combinations: integers that are exact either way, so that no bit changes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from skdp.privacy.encoding import AnyArray
from skdp.schema import FloatArray, Layout

#: Combinations that a byte can tell apart.
MOST = 256


class Joint(NamedTuple):
    """Groups of codes, their first slots and widths, and the joint's first slot.

    A group's width includes its spare slot, for codes that touch nothing.
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
        """Code of each row's combination."""
        total = np.zeros(len(parts[self.groups[0]]), np.uint8)
        for group, width in zip(self.groups, self.shape, strict=True):
            total = total * np.uint8(width) + parts[group].astype(np.uint8)
        return total

    def spread(self, moves: FloatArray) -> None:
        """Fill in the moves (k, slots) of all combinations."""
        total = np.zeros((len(moves), 1))
        for slot, width in zip(self.slots, self.shape, strict=True):
            own = moves[:, None, slot : slot + width]
            total = (total[:, :, None] + own).reshape(len(moves), -1)
        moves[:, self.start : self.start + self.size] = total

    def gather(self, sums: npt.NDArray[np.int64]) -> None:
        """Add the sums (k, slots) of all combinations to those of the groups."""
        own = sums[:, self.start : self.start + self.size].reshape(-1, *self.shape)
        axes = set(range(1, own.ndim))
        for axis, (slot, width) in enumerate(zip(self.slots, self.shape, strict=True)):
            sums[:, slot : slot + width] += own.sum(axis=tuple(axes - {axis + 1}))


def joints(layout: Layout, start: int) -> list[Joint]:
    """Which groups of codes are read together, narrow ones first.

    Parameters
    ----------
    layout : Layout
        The coordinates.
    start : int
        First slot that is free; the joints' slots follow each other from there.
    """
    widths = {g: c.width + 1 for g, c in enumerate(layout.groups) if c.kind == "code"}
    bins: list[list[int]] = [[]]
    for group in sorted(widths, key=lambda group: widths[group]):
        if math.prod(widths[g] for g in [*bins[-1], group]) > MOST:
            bins.append([])
        bins[-1].append(group)
    found = []
    for groups in bins:
        if len(groups) > 1:
            slots = tuple(layout.groups[g].start + g for g in groups)
            shape = tuple(widths[g] for g in groups)
            found.append(Joint(tuple(groups), slots, shape, start))
            start += found[-1].size
    return found
