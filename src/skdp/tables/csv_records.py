"""Find the fields and records of CSV text, as `skdp.tables.csv` defines them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

LINE_ENDS = (b"\n", b"\r\n")


def find_last_end(block: bytes, delimiter: bytes) -> int:
    """Return the end of the last multi-line record that is complete in the block.

    Return 0 if no record is certain to be complete.
    """
    if b'"' not in block:
        return block.rfind(b"\n") + 1
    quotes = _find_quotes(block, delimiter)
    if quotes is None:
        fields = match_fields(block, delimiter)
        ends = [match.end() for match in fields if match[3] in LINE_ENDS]
        return ends[-1] if ends else 0
    at = block.rfind(b"\n")
    while at >= 0:
        before = int(np.searchsorted(quotes, at))
        if before % 2 == 0:
            return at + 1
        at = block.rfind(b"\n", 0, int(quotes[before - 1]))
    return 0


def _find_quotes(block: bytes, delimiter: bytes) -> Any:
    """Return the positions of all quotes, or None if the block has irregular quotes.

    A regular quote opens a field, closes a field or is part of a doubled pair.
    """
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    ends = np.zeros(256, bool)
    ends[[ord("\n"), ord("\r"), ord('"'), ord(delimiter)]] = True
    starts = ends.copy()
    starts[ord("\r")] = False
    opening, closing = quotes[::2], quotes[1::2]
    # A quote next to an opening or closing one belongs to a doubled pair. At the ends
    # of the block there is no neighbour.
    before, after = data[opening - 1], data[np.minimum(closing + 1, len(data) - 1)]
    good = (starts[before] | (opening == 0)).all() and ends[after].all()
    return quotes if good else None


def close_quotes(block: bytes, delimiter: bytes) -> bytes:
    """Return the block with each unclosed quote closed at the end of its line."""
    stop = re.escape(delimiter)
    inside = rb'[^"\n]*+(?:""[^"\n]*+)*+'
    rest = rb"[^\n" + stop + rb"]*+"
    field = rb'(?:"' + inside + rb'"' + rest + rb'|[^"\n' + stop + rb"]" + rest + rb"|)"
    line = rb"(?m)^(?:" + field + stop + rb')*+"' + inside + rb"$"

    def close(match: re.Match[bytes]) -> bytes:
        text = match[0]
        if text.endswith(b"\r") and match.end() < len(block):  # part of the line end
            return text[:-1] + b'"\r'
        return text + b'"'

    return re.sub(line, close, block)


def match_fields(block: bytes, delimiter: bytes) -> Iterator[re.Match[bytes]]:
    """Yield a match for each field.

    The groups of the match are the field's quoted part, its plain part and its end.
    """
    stop = re.escape(delimiter)
    quoted = rb'(?:"([^"]*+(?:""[^"]*+)*+)(?:"|\Z))?+'
    some = rb"[^\r\n" + stop + rb"]*+"
    plain = rb"(" + some + rb"(?:\r(?!\n)" + some + rb")*+)"
    return re.finditer(quoted + plain + rb"(\r\n|[\n" + stop + rb"]|\Z)", block)


def parse_records(block: bytes, delimiter: bytes) -> list[list[bytes]]:
    """Return the records of a block as lists of fields.

    For blocks that Arrow can read, the result is the same as Arrow's.
    """
    records: list[list[bytes]] = []
    record: list[bytes] = []
    for match in match_fields(block, delimiter):
        if match.end() == match.start() == len(block) and not record:
            break  # the last record ended with a line end
        quoted, plain, end = match.groups()
        record.append((quoted or b"").replace(b'""', b'"') + plain)
        if end == delimiter:
            continue
        records.append(record)
        record = []
        if not end:
            break
    return records
