"""Read and encode a table, batch by batch, as every fit does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import csr_array, vstack

from skdp.privacy.encoding import AnyArray, Batch, Chunk, Records, encode
from skdp.privacy.grid import CHUNK_ROWS
from skdp.privacy.persons import RowCounts
from skdp.schema import Schema
from skdp.tables import readers
from skdp.tables.batches import batches
from skdp.tables.larger_than_memory import limit_memory, measure_size

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
            yield _join(waiting.pop(chunk.divisor))
        waiting.setdefault(chunk.divisor, []).append(chunk)
        sizes[chunk.divisor] = sizes.get(chunk.divisor, 0) + measure_size(chunk)
        while sum(sizes.values()) > WAITING:
            most = max(sizes, key=sizes.__getitem__)
            del sizes[most]
            yield _join(waiting.pop(most))
    for divisor in sorted(waiting):
        yield _join(waiting[divisor])


def _join(chunks: list[Chunk]) -> Chunk:
    """Return one chunk with the rows of several chunks that have the same divisor."""
    if len(chunks) == 1:
        return chunks[0]
    parts = tuple(
        vstack(part, format="csr") if isinstance(part[0], csr_array) else _stack(part)
        for part in zip(*(chunk.parts for chunk in chunks), strict=True)
    )
    target = _stack([chunk.target for chunk in chunks])
    weight = _stack([chunk.weight for chunk in chunks])
    return Chunk(parts, target, weight, chunks[0].divisor)


def _stack(arrays: Sequence[AnyArray]) -> AnyArray:
    return np.concatenate(arrays)
