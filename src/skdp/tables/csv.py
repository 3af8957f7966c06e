r"""CSV files, read block by block.

The first record names the columns, in UTF-8. Every further record is a row, whatever
it holds: one of too few fields is filled up with missing cells (an empty line is a row
of missing cells), one of too many loses the last, so that the number of rows, which is
public under replace-one, does not depend on what a record holds. Lines end with ``\n``
or ``\r\n``; a ``\r`` that stands alone is an ordinary character, since common writers
leave it without quotes. The delimiter is the one of comma, semicolon, tab and bar under
which the header has most of the columns asked for. Cells are bytes: what is not UTF-8
matches no level.

Every line is a record. A field that begins with a quote ends at the next quote that is
not doubled, or at the end of the line, and may hold delimiters; what follows that quote
up to the delimiter is part of the field. A quote elsewhere is an ordinary character.
With ``CSV(path, multiline=True)`` a quoted field may hold line ends too.

Notes
-----
The unit that privacy protects is the record so defined. With `multiline`, an opening
quote that is never closed takes the lines after it, up to the next quote, into its own
record: one person's cell then removes the rows of others, and no ε covers that. Use it
for files that a program wrote with doubled quotes, not for cells that people typed.

An empty cell is an empty text: it is a missing number, and a missing category unless
the empty level is listed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from skdp.schema import check
from skdp.tables.source import Cells, Source, library, slices

BLOCK_BYTES = 1 << 23
"""Bytes read at a time; a longer record is kept whole."""

LONGEST_HEADER = 1 << 24
"""Bytes of a first line, about; one that goes on was opened by a quote."""

AT_ONCE = 2
"""Blocks that are parsed at once."""

S = TypeVar("S")
T = TypeVar("T")

_DELIMITERS = (b",", b";", b"\t", b"|")
_LINE_ENDS = (b"\n", b"\r\n")
_LARGEST = 1 << 30  # its offsets are 32-bit


@dataclass(frozen=True)
class CSV(PathLike[str]):
    """A CSV file with an option; wherever a table is read, it may stand for its path.

    Parameters
    ----------
    path : str or path
        The file.
    multiline : bool
        Whether a quoted field may hold line ends. Then a quote that is never closed
        takes the lines of other people into its own record, which no ε covers.
    """

    path: str | PathLike[str]
    multiline: bool = False

    def __fspath__(self) -> str:
        return fspath(self.path)

    def __str__(self) -> str:
        return str(self.path)


def table(
    given: PathLike[str], wanted: Sequence[str] | None, block_bytes: int | None = None
) -> Source:
    """A CSV file."""
    path, size = Path(given), block_bytes or BLOCK_BYTES
    multiline = isinstance(given, CSV) and given.multiline
    header, start = _header(path, size, multiline)
    check(bool(header.strip()), f"{path.name!r} has no header line: name its columns.")
    check(
        b"\r" not in header,
        f"The lines of {path.name!r} need to end with a line feed: convert it.",
    )
    check(
        b"\0" not in header,
        f"{path.name!r} needs to be text in UTF-8 or the like: convert it.",
    )
    check(
        _is_utf8(header), f"The header of {path.name!r} is not UTF-8: save it as UTF-8."
    )
    names, delimiter = _names(header, wanted)

    reached, length = start, max(1, path.stat().st_size)

    def parsed(at: Sequence[int]) -> Iterator[tuple[int, list[Any]]]:
        def parse(block: bytes) -> tuple[int, list[Any]]:
            return len(block), _columns(block, delimiter, len(names), at, multiline)

        with path.open("rb") as file:
            file.seek(start)
            yield from ahead(parse, blocks(file, delimiter, size, multiline))

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        nonlocal reached
        reached = start
        for n_bytes, columns in parsed(at):
            reached += n_bytes
            for part in slices(len(columns[0]), rows):
                yield [column[part] for column in columns]
        # Arrow would keep what it read last, tens of megabytes of it.
        library("pyarrow").default_memory_pool().release_unused()

    def count(told: Callable[[float], None] | None) -> int:
        n_rows, passed = 0, start
        with path.open("rb") as file:
            file.seek(start)
            for block in blocks(file, delimiter, size, multiline):
                n_rows += _n_records(block, delimiter, len(names), multiline)
                passed += len(block)
                if told is not None:
                    told(passed / length)
        return n_rows

    return Source(
        names=names,
        kinds=["unknown"] * len(names),
        read=read,
        count=count,
        share=lambda: reached / length,
    )


def ahead(work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """Work on items in order, some of them at once, while what is done is used.

    Arrow's own threads would do so too, but may wait for ever where a record is odd
    (apache/arrow issue 38676).
    """
    waiting: deque[Future[T]] = deque()
    with ThreadPoolExecutor(AT_ONCE, "skdp-csv") as pool:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > AT_ONCE:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def blocks(
    file: IO[bytes], delimiter: bytes, size: int, multiline: bool = False
) -> Iterator[bytes]:
    """Cut a file into blocks of whole records, of about `size` bytes each."""
    rest = b""
    # Reading at least as much as is left over keeps a huge record from being
    # scanned more than a few times.
    while piece := file.read(max(size, len(rest))):
        block = rest + piece
        end = last_end(block, delimiter) if multiline else block.rfind(b"\n") + 1
        if end:
            yield block[:end]
        rest = block[end:]
    if rest:
        yield rest


def last_end(block: bytes, delimiter: bytes) -> int:
    """Where the last record that surely ends in a block of multi-line ones, ends."""
    if b'"' not in block:
        return block.rfind(b"\n") + 1
    quotes = _toggling_quotes(block, delimiter)
    if quotes is None:
        ends = [
            match.end() for match in _fields(block, delimiter) if match[3] in _LINE_ENDS
        ]
        return ends[-1] if ends else 0
    at = block.rfind(b"\n")
    while at >= 0:
        before = int(np.searchsorted(quotes, at))
        if before % 2 == 0:
            return at + 1
        at = block.rfind(b"\n", 0, int(quotes[before - 1]))
    return 0


def _toggling_quotes(block: bytes, delimiter: bytes) -> Any:
    """Positions of the quotes if each one opens, closes or is doubled; else None."""
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    ends = np.zeros(256, bool)
    ends[[ord("\n"), ord("\r"), ord('"'), ord(delimiter)]] = True
    starts = ends.copy()
    starts[ord("\r")] = False
    opening, closing = quotes[::2], quotes[1::2]
    # A quote before an opening one is that of a doubled pair, as is one after a
    # closing one; at the ends of the block nothing is before or after.
    before, after = data[opening - 1], data[np.minimum(closing + 1, len(data) - 1)]
    good = (starts[before] | (opening == 0)).all() and ends[after].all()
    return quotes if good else None


def closed(block: bytes, delimiter: bytes) -> bytes:
    """Close each quote that a line leaves open, at the end of that line."""
    stop = re.escape(delimiter)
    inside = rb'[^"\n]*+(?:""[^"\n]*+)*+'
    rest = rb"[^\n" + stop + rb"]*+"
    field = rb'(?:"' + inside + rb'"' + rest + rb'|[^"\n' + stop + rb"]" + rest + rb"|)"
    line = rb"(?m)^(?:" + field + stop + rb')*+"' + inside + rb"$"

    def shut(match: re.Match[bytes]) -> bytes:
        text = match[0]
        if text.endswith(b"\r") and match.end() < len(block):  # of the line's end
            return text[:-1] + b'"\r'
        return text + b'"'

    return re.sub(line, shut, block)


def _fields(block: bytes, delimiter: bytes) -> Iterator[re.Match[bytes]]:
    """The fields of a block, one match each: quoted part, plain part, what ends it."""
    stop = re.escape(delimiter)
    quoted = rb'(?:"([^"]*+(?:""[^"]*+)*+)(?:"|\Z))?+'
    some = rb"[^\r\n" + stop + rb"]*+"
    plain = rb"(" + some + rb"(?:\r(?!\n)" + some + rb")*+)"
    return re.finditer(quoted + plain + rb"(\r\n|[\n" + stop + rb"]|\Z)", block)


def lexed(block: bytes, delimiter: bytes) -> list[list[bytes]]:
    """The records of a block, as lists of fields: as Arrow reads them, but total."""
    records: list[list[bytes]] = []
    record: list[bytes] = []
    for match in _fields(block, delimiter):
        if match.end() == match.start() == len(block) and not record:
            break  # the line end before closed the last record
        quoted, plain, end = match.groups()
        record.append((quoted or b"").replace(b'""', b'"') + plain)
        if end == delimiter:
            continue
        records.append(record)
        record = []
        if not end:
            break
    return records


def _n_records(block: bytes, delimiter: bytes, width: int, multiline: bool) -> int:
    """How many records a block of whole ones holds: its lines, unless some are long."""
    if multiline and b'"' in block:
        return len(_columns(block, delimiter, width, [0], multiline)[0])
    return _n_lines(block)


def _n_lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _columns(
    block: bytes,
    delimiter: bytes,
    width: int,
    at: Sequence[int],
    multiline: bool = False,
) -> list[Any]:
    """The columns asked for, as Arrow arrays of bytes."""
    pa = library("pyarrow")
    by_lines = not multiline and b'"' in block
    if by_lines and _opens_last(block, delimiter):
        block = closed(block, delimiter)
    found = _by_arrow(block, delimiter, width, at)
    if found is not None and not (by_lines and len(found[0]) != _n_lines(block)):
        return found
    if by_lines:
        # Arrow has taken line ends into a field, unless a record's width stopped it.
        block = closed(block, delimiter)
        found = _by_arrow(block, delimiter, width, at)
        if found is not None:
            return found
    records = lexed(block, delimiter)
    return [
        pa.array(
            [record[position] if position < len(record) else b"" for record in records],
            pa.large_binary(),
        )
        for position in at
    ]


def _opens_last(block: bytes, delimiter: bytes) -> bool:
    """Whether the last line leaves a quote open: it has no later line to take in."""
    last = block[block.rfind(b"\n", 0, -1) + 1 :]
    return b'"' in last and closed(last, delimiter) != last


def _by_arrow(
    block: bytes, delimiter: bytes, width: int, at: Sequence[int]
) -> list[Any] | None:
    """The columns as Arrow reads them; None if it does not, or not as the lexer."""
    pa, csv = library("pyarrow"), library("pyarrow.csv")
    # Arrow ends a line at every carriage return, the lexer at those of line ends; and
    # it drops a byte order mark wherever a block starts, which others' lengths decide.
    alike = b"\r" not in block or block.count(b"\r") == block.count(b"\r\n")
    alike = alike and not block.startswith(b"\xef\xbb\xbf")
    if not alike or len(block) >= _LARGEST:
        return None
    names = [str(position) for position in range(width)]
    wanted = [names[position] for position in at]
    try:
        found = csv.read_csv(
            pa.py_buffer(block),
            # Arrow loses a line feed where it cuts one from its return: it must not.
            read_options=csv.ReadOptions(
                column_names=names, block_size=len(block) + 1, use_threads=False
            ),
            parse_options=csv.ParseOptions(
                delimiter=delimiter.decode(),
                newlines_in_values=b'"' in block,
                ignore_empty_lines=False,
            ),
            convert_options=csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.binary()),
                check_utf8=False,
            ),
        )
    except Exception:
        return None  # a record of another width, say; Arrow's message would quote it
    return [column.combine_chunks() for column in found.columns]


def _header(path: Path, size: int, multiline: bool) -> tuple[bytes, int]:
    """The first line, and where the second starts; a byte order mark is no part."""
    with path.open("rb") as file:
        skipped = 3 if file.read(3) == b"\xef\xbb\xbf" else 0
        file.seek(skipped)
        head = b""
        while piece := file.read(size):
            head += piece
            check(
                len(head) <= LONGEST_HEADER + size,
                f"The header line of {path.name!r} does not end: close its quotes.",
            )
            if not multiline and b"\n" in piece:
                end = head.index(b"\n")
                return head[:end].removesuffix(b"\r"), skipped + end + 1
            for match in _fields(head, b",") if multiline else ():
                if match[3] in _LINE_ENDS:
                    return head[: match.start(3)], skipped + match.end()
    return head, skipped + len(head)


def _is_utf8(header: bytes) -> bool:
    try:
        header.decode()
    except UnicodeDecodeError:
        return False
    return True


def _names(header: bytes, wanted: Sequence[str] | None) -> tuple[list[str], bytes]:
    """Names of the columns, and the delimiter they are apart by."""
    splits = {}
    for delimiter in _DELIMITERS:
        fields = lexed(header, delimiter)[0]
        splits[delimiter] = [field.decode() for field in fields]

    def found(delimiter: bytes) -> tuple[int, int]:
        names = set(splits[delimiter])
        return len(names & set(wanted or ())), len(names) if wanted is None else 0

    best = max(_DELIMITERS, key=found)
    return splits[best], best
