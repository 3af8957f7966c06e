"""Encode batches, in memory or in a temporary file."""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal

import numpy as np
from scipy.sparse import csr_array, vstack

from skdp.privacy.encoding import AnyArray, Batch, Chunk, Records, encode
from skdp.privacy.grid import CHUNK_ROWS
from skdp.privacy.persons import RowCounts
from skdp.schema import Schema
from skdp.tables import readers
from skdp.tables.batches import batches

# ---- Keep records that do not fit in memory in a temporary file
#
# The file is created in the directory for temporary files (``TMPDIR``), and only its
# owner has access. It is unlinked before anything is written. No other process can open
# it, and it disappears when the process ends, for whatever reason. Like the table
# itself, it contains records. Keep both on disks that you trust.


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
                chunk = _append_chunk(chunk, file)
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


def _append_chunk(chunk: Chunk, file: IO[bytes]) -> FileChunk:
    """Append a chunk to a file, and return a chunk whose arrays are read from there."""
    start = file.seek(0, 2)
    start += -start % mmap.ALLOCATIONGRANULARITY
    places: list[int] = []
    for array in _arrays(chunk):
        at = file.tell() if places else start
        at += -at % _ALIGNED
        file.seek(at)
        file.write(_view_bytes(array))
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


def _view_bytes(array: AnyArray) -> Any:
    """Return the bytes of an array in its memory order, by rows or by columns."""
    whole = array if array.flags.c_contiguous else np.ascontiguousarray(array.T)
    return whole.reshape(-1).view(np.uint8).data


# ---- Read and encode a table, batch by batch, as every fit does


#: Largest number of bytes of chunks that wait to be joined with others.
WAITING = 1 << 24


def read_rows(
    table: Any,
    target: Any,
    sample_weight: Any,
    keep: AnyArray | None = None,
    row_counts: RowCounts | None = None,
    *,
    schema: Schema,
    class_weight: Mapping[Any, float] | None,
    intercept: bool,
    max_weight: float,
    unit: Any = None,
    n_threads: int | None = 1,
) -> Records:
    """Read and encode a table, as `batches` and `Encoder` do."""
    work = Encoder(schema, intercept, max_weight)
    encoded = batches(
        table,
        schema,
        target=target,
        sample_weight=sample_weight,
        class_weight=class_weight,
        unit=unit,
        row_counts=row_counts,
        n_threads=n_threads,
        keep=keep,
        finish=work,
    )
    return work.collect(encoded, math.inf if readers.is_in_memory(table) else None)


class Encoder:
    """Encodes batches as `encode` does, for tables that are read in several threads.

    Several threads may call this object, each with its own batch. `collect` then takes
    the resulting chunks in order.

    Parameters
    ----------
    schema, intercept, max_weight
        As in `encode`.
    """

    def __init__(self, schema: Schema, intercept: bool, max_weight: float) -> None:
        self._schema, self._intercept = schema, intercept
        self._max_weight = max_weight

    def __call__(self, batch: Batch) -> Sequence[Chunk]:
        """Encode a batch."""
        made = encode(
            [batch],
            self._schema,
            intercept=self._intercept,
            max_weight=self._max_weight,
        )
        if self._schema.unit is None:  # otherwise chunks are joined first
            return [_compact(chunk) for chunk in made.chunks]
        return made.chunks

    def collect(
        self, encoded: Iterable[Sequence[Chunk]], in_memory: float | None = None
    ) -> Records:
        """Return the records of all batches.

        If `in_memory` is not infinite, `limit_memory` limits the memory that they take.
        """
        parts = (chunk for chunks in encoded for chunk in chunks)
        if self._schema.unit is not None:
            parts = (_compact(chunk) for chunk in _join_equal(parts))
        kept = parts if in_memory == math.inf else limit_memory(parts, in_memory)
        layout = self._schema.layout(self._intercept)
        return Records(layout, tuple(kept), self._max_weight)


def _compact(chunk: Chunk) -> Chunk:
    """Return the chunk with a single 1 as all weights, if all its weights are 1.

    This saves memory, and engines need not read the weights of each row.
    """
    target, weight = chunk.target, chunk.weight
    if np.all(weight == 1.0):
        weight = np.broadcast_to(np.float32(1.0), weight.shape)
    if target.dtype == np.uint8:  # engines read two bytes, and would make a copy
        target = target.astype(np.uint16)
    return Chunk(chunk.parts, target, weight, chunk.divisor)


def _join_equal(parts: Iterable[Chunk]) -> Iterator[Chunk]:
    """Join chunks with the same divisor, so that engines get few and long chunks.

    A row with divisor m counts as 1/m of a record (`RowCounts.find_divisors`). Chunks
    wait until `WAITING` bytes are collected. Then the largest group of chunks with the
    same divisor is joined. A joined chunk has at most `CHUNK_ROWS` rows.
    """
    waiting: dict[int, list[Chunk]] = {}
    sizes: dict[int, int] = {}
    for chunk in parts:
        rows = sum(len(one.target) for one in waiting.get(chunk.divisor, []))
        if rows + len(chunk.target) > CHUNK_ROWS:
            del sizes[chunk.divisor]
            yield _join_chunks(waiting.pop(chunk.divisor))
        waiting.setdefault(chunk.divisor, []).append(chunk)
        sizes[chunk.divisor] = sizes.get(chunk.divisor, 0) + measure_size(chunk)
        while sum(sizes.values()) > WAITING:
            most = max(sizes, key=sizes.__getitem__)
            del sizes[most]
            yield _join_chunks(waiting.pop(most))
    for divisor in sorted(waiting):
        yield _join_chunks(waiting[divisor])


def _join_chunks(chunks: list[Chunk]) -> Chunk:
    """Return one chunk with the rows of several chunks that have the same divisor."""
    if len(chunks) == 1:
        return chunks[0]
    parts = tuple(
        vstack(part, format="csr")
        if isinstance(part[0], csr_array)
        else _stack_arrays(part)
        for part in zip(*(chunk.parts for chunk in chunks), strict=True)
    )
    target = _stack_arrays([chunk.target for chunk in chunks])
    weight = _stack_arrays([chunk.weight for chunk in chunks])
    return Chunk(parts, target, weight, chunks[0].divisor)


def _stack_arrays(arrays: Sequence[AnyArray]) -> AnyArray:
    return np.concatenate(arrays)
