"""Combine several columns of codes into one column with a code per combination.

A step over all columns is faster if it reads one code per row instead of, for example,
three. When weights change, the margin of a row changes by a sum over the row's codes.
This sum is computed once per combination. Conversely, slopes are added up for each
combination, and the sum for a single code is the total over all combinations that
contain the code. All sums are exact integers, so results stay the same, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from skdp.privacy.encoding import AnyArray
from skdp.schema import Layout

#: Number of codes that fit in a byte.
BYTE = 256


class CombinedCodes(NamedTuple):
    """Several groups of codes that are read as one group.

    A slot is a position in the kernels' arrays: see `compiled.Slots`.

    Attributes
    ----------
    groups : the groups that are combined
    slots : the first slot of each group
    shape : the number of slots of each group, including a spare slot. The code of a row
        that has none of the group's levels points to the spare slot.
    start : the first slot of the combinations
    """

    groups: tuple[int, ...]
    slots: tuple[int, ...]
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        """Number of combinations."""
        return math.prod(self.shape)

    @property
    def kind(self) -> type[np.unsignedinteger[Any]]:
        """The type of the combinations' codes, which has one or two bytes."""
        return np.uint8 if self.size <= BYTE else np.uint16

    def codes(self, parts: Mapping[int, AnyArray]) -> AnyArray:
        """Return the code of each row's combination, from the codes of each group."""
        first, *others = zip(self.groups, self.shape, strict=True)
        total: AnyArray = parts[first[0]].astype(self.kind)
        for group, width in others:
            total = total * self.kind(width) + parts[group].astype(self.kind)
        return total

    def spread(self, moves: npt.NDArray[np.float64]) -> None:
        """Within `moves` (k, slots), add a code's move to all its combinations."""
        whole = moves[:, self.start : self.start + self.size]
        for g, (slot, width) in enumerate(zip(self.slots, self.shape, strict=True)):
            shape = len(moves), math.prod(self.shape[:g]), width, -1
            whole.reshape(shape)[:] += moves[:, None, slot : slot + width, None]

    def gather(self, sums: npt.NDArray[Any]) -> None:
        """Within `sums`, add each combination's sum to the sums of its codes.

        The sums may be Python's integers. `kernels.sweep` does the same by itself.
        """
        rest = sums[:, self.start : self.start + self.size]
        for slot, width in zip(self.slots, self.shape, strict=True):
            rest = rest.reshape(len(sums), width, -1)
            sums[:, slot : slot + width] += rest.sum(axis=2)
            rest = rest.sum(axis=1)  # without this group


def list_lines(combined: Sequence[CombinedCodes]) -> npt.NDArray[np.int64]:
    """Describe combinations to `kernels.sweep`, by an array int64 (groups, 5).

    There is a line for each group. It holds the first slot of the combinations, the
    first slot of the group and its number of slots, and how many combinations the
    groups before it have, and those after it.
    """
    lines = [
        (
            one.start,
            slot,
            width,
            math.prod(one.shape[:g]),
            math.prod(one.shape[g + 1 :]),
        )
        for one in combined
        for g, (slot, width) in enumerate(zip(one.slots, one.shape, strict=True))
    ]
    return np.array(lines, np.int64).reshape(-1, 5)


def combine_codes(layout: Layout, start: int, most: int = BYTE) -> list[CombinedCodes]:
    """Choose which groups of codes are read together, starting with the narrowest.

    Parameters
    ----------
    layout : Layout
        The groups of coordinates of the table.
    start : int
        The first free slot. The slots of the combinations begin here.
    most : int
        The largest number of combinations of a column, at most 65536.
    """
    widths = {g: c.width + 1 for g, c in enumerate(layout.groups) if c.kind == "code"}
    bins: list[list[int]] = [[]]
    for group in sorted(widths, key=lambda group: widths[group]):
        if math.prod(widths[g] for g in [*bins[-1], group]) > most:
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
