"""Keep records that do not fit in memory in a temporary file.

The file is created in the directory for temporary files (``TMPDIR``), and only its
owner has access. It is unlinked before anything is written. No other process can open
it, and it disappears when the process ends, for whatever reason. Like the table itself,
it contains records. Keep both on disks that you trust.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import numpy as np
from scipy.sparse import csr_array

from skdp.privacy.encoding import AnyArray, Chunk


def get_machine_memory() -> int:
    """Return the machine's memory in bytes, or 0 if it is not known."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 0


#: Bytes of records that are kept in memory before a file is opened. This is 64 MiB, or
#: an 80th of the memory of machines with more than 5 GiB.
IN_MEMORY = max(1 << 26, get_machine_memory() // 80)
_ALIGNED = 64


@dataclass(frozen=True, eq=False, repr=False)
class FileChunk(Chunk):
    """Encoded rows whose arrays are views of a file."""

    view: mmap.mmap = field(kw_only=True)

    def rest(self) -> None:
        """Free the memory of the arrays. The next access reads the file again."""
        self.view.madvise(mmap.MADV_DONTNEED)


def limit_memory(
    chunks: Iterable[Chunk], in_memory: float | None = None
) -> Iterator[Chunk]:
    """Return the chunks. Those beyond the first `in_memory` bytes are views of a file.

    The default is `IN_MEMORY` bytes. If the system does not support such views, all
    chunks stay in memory.
    """
    room = IN_MEMORY if in_memory is None else in_memory
    file: IO[bytes] | None = None
    try:
        for chunk in chunks:
            room -= measure_size(chunk)
            if room < 0 and hasattr(mmap, "MADV_DONTNEED"):
                file = file or tempfile.TemporaryFile()  # noqa: SIM115 (closed below)
                chunk = _write(chunk, file)
            yield chunk
    finally:
        if file is not None:
            file.close()  # the views keep it open


def measure_size(chunk: Chunk) -> int:
    """Return the number of bytes that the arrays of a chunk take."""
    return sum(array.nbytes for array in _arrays(chunk))


def _is_owned(weight: AnyArray) -> bool:
    """Return whether the weights of a chunk take up memory.

    They do not if all of them are one number in memory (`np.broadcast_to`).
    """
    return weight.strides != (0,)


def _arrays(chunk: Chunk) -> list[AnyArray]:
    """Return the arrays of a chunk that take up memory."""
    arrays: list[AnyArray] = []
    for part in chunk.parts:
        sparse = isinstance(part, csr_array)
        arrays += [part.data, part.indices, part.indptr] if sparse else [part]
    own = [chunk.weight] if _is_owned(chunk.weight) else []
    return [*arrays, chunk.target, *own]


def _write(chunk: Chunk, file: IO[bytes]) -> FileChunk:
    """Append a chunk to a file, and return a chunk whose arrays are read from there."""
    start = file.seek(0, 2)
    start += -start % mmap.ALLOCATIONGRANULARITY
    places: list[int] = []
    for array in _arrays(chunk):
        at = file.tell() if places else start
        at += -at % _ALIGNED
        file.seek(at)
        file.write(_bytes(array))
        places.append(at - start)
    length = max(1, file.tell() - start)
    file.truncate(max(file.tell(), start + length))
    file.flush()
    view = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ, offset=start)
    at_places = iter(places)

    def map_array(array: AnyArray) -> AnyArray:
        place, rows = next(at_places), array.flags.c_contiguous
        if not array.size:
            return array
        order: Literal["C", "F"] = "C" if rows else "F"
        return np.ndarray(array.shape, array.dtype, view, place, order=order)

    parts: list[Any] = []
    for part in chunk.parts:
        if isinstance(part, csr_array):
            arrays = (
                map_array(part.data),
                map_array(part.indices),
                map_array(part.indptr),
            )
            parts.append(csr_array(arrays, shape=part.shape, copy=False))
        else:
            parts.append(map_array(part))
    target = map_array(chunk.target)
    weight = map_array(chunk.weight) if _is_owned(chunk.weight) else chunk.weight
    return FileChunk(tuple(parts), target, weight, chunk.divisor, view=view)


def _bytes(array: AnyArray) -> Any:
    """Return the bytes of an array in its memory order, by rows or by columns."""
    whole = array if array.flags.c_contiguous else np.ascontiguousarray(array.T)
    return whole.reshape(-1).view(np.uint8).data
