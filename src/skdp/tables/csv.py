"""Read CSV files by a rule of our own, which one record cannot bend for others."""

from __future__ import annotations

import codecs
import io
import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike, fspath
from typing import IO, Any, TypeVar

import numpy as np

from skdp.schema import check
from skdp.tables.in_order import map_in_order
from skdp.tables.locations import (
    AnyPath,
    get_name,
    measure_file,
    open_bytes,
    show_path,
    split_name,
)
from skdp.tables.readers import (
    Cells,
    Section,
    Source,
    hide_errors,
    import_library,
    make_slices,
)

# ---- Find the fields and records of CSV text, as `skdp.tables.csv` defines them


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


# ---- Read CSV files block by block
#
# The first record has the names of the columns, in UTF-8. Every other record is a row,
# whatever it contains. If it has too few fields, the rest are missing cells, so an
# empty line is a row of missing cells. If it has too many fields, the last ones are
# dropped. The number of rows, which is public under replace-one, therefore does not
# depend on what a record contains. Lines end with ``\n`` or ``\r\n``. A single ``\r``
# is an ordinary character, because common writers do not quote it. The delimiter is a
# comma, semicolon, tab or bar, whichever finds the most requested columns in the
# header. Cells are bytes. A cell that is not valid UTF-8 matches no level.
#
# Every line is a record. A field that begins with a quote ends at the next quote that
# is not doubled, or at the end of the line, and may contain delimiters. Text between
# that quote and the delimiter is part of the field. A quote elsewhere is an ordinary
# character. With ``CSV(path, multiline=True)`` a quoted field may contain line ends.
#
# Notes
# -----
# The unit that privacy protects is the record as defined here. With `multiline`, an
# opening quote that is not closed pulls all lines up to the next quote into its own
# record. One person's cell can then remove other people's rows, which ε does not cover.
# Use `multiline` only if a program wrote the file and doubled the quotes inside fields,
# not if people typed the cells themselves.
#
# An empty cell is an empty string. As a number it is missing. As a category it is
# missing unless the schema lists the empty level.


BLOCK_BYTES = 1 << 23
"""Number of bytes to read at a time. Longer records are still read whole."""

LONGEST_HEADER = 1 << 24
"""Rough limit on the bytes of the header. A longer one must have an unclosed quote."""

S = TypeVar("S")
T = TypeVar("T")

_DELIMITERS = (b",", b";", b"\t", b"|")
_LARGEST = 1 << 30  # Arrow's offsets have 32 bits


@dataclass(frozen=True)
class CSV(PathLike[str]):
    """A CSV file with options. Use it wherever a table's path is accepted.

    Parameters
    ----------
    path : str or path
        The path of the file.
    multiline : bool
        Whether a quoted field may contain line ends. An unclosed quote then pulls other
        people's lines into its own record, which ε does not cover.
    encoding : str
        The encoding of the text: UTF-8, UTF-16, UTF-32 or one with one byte per
        character, such as ``"latin-1"`` or ``"cp1252"``. In other encodings, one record
        could change how the next ones are read.
    """

    path: str | PathLike[str]
    multiline: bool = False
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        check(
            _is_stateless(self.encoding),
            "encoding must be UTF-8, UTF-16, UTF-32 or an encoding of Python with one "
            f"byte per character, such as 'latin-1', got {self.encoding!r}.",
        )

    def __fspath__(self) -> str:
        return fspath(self.path)

    def __str__(self) -> str:
        return show_path(self.path)


def _is_stateless(encoding: str) -> bool:
    """Return whether no character can change how the characters of others are read."""
    try:
        found = codecs.lookup(encoding)
    except (LookupError, TypeError):
        return False
    wide = found.name.startswith(("utf-8", "utf-16", "utf-32"))
    # Python decodes one byte at a time by a table, or without one in these two.
    module = sys.modules[found.decode.__module__ or "codecs"]
    one_byte = hasattr(module, "decoding_table") or found.name in ("ascii", "iso8859-1")
    return wide or one_byte


class Recoded(io.RawIOBase):
    """The text of a file in UTF-8, whatever its own encoding.

    Bytes that are not text in the file's encoding become the character U+FFFD.
    """

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._file, self._rest = file, b""
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def readable(self) -> bool:
        """Return that this file can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the next bytes, and return their number."""
        while not self._rest:
            piece = self._file.read(1 << 20)
            text = self._decoder.decode(piece, final=not piece)
            self._rest = text.encode("utf-8", "replace")
            if not piece:
                break
        own = self._rest[: len(buffer)]
        buffer[: len(own)] = own
        self._rest = self._rest[len(own) :]
        return len(own)

    def close(self) -> None:
        """Close the file itself."""
        self._file.close()
        super().close()


def _is_plain(given: AnyPath) -> bool:
    """Return whether the bytes of a file are UTF-8 text, so one can seek in it."""
    return split_name(given)[1] is None and _find_encoding(given) is None


def _find_encoding(given: AnyPath) -> str | None:
    """Return the encoding of a CSV file, or None for UTF-8."""
    whole = given.whole if isinstance(given, Section) else given
    encoding = whole.encoding if isinstance(whole, CSV) else "utf-8"
    return None if codecs.lookup(encoding).name.startswith("utf-8") else encoding


def open_text(given: AnyPath) -> IO[bytes]:
    """Open a CSV file for reading its text in UTF-8."""
    file, encoding = open_bytes(given), _find_encoding(given)
    return file if encoding is None else io.BufferedReader(Recoded(file, encoding))


def open_csv(
    given: AnyPath,
    wanted: Sequence[str] | None,
    block_bytes: int | None = None,
) -> Source:
    """Open a CSV file."""
    name, size = repr(get_name(given)), block_bytes or BLOCK_BYTES
    section = given if isinstance(given, Section) else None
    whole = given if section is None else section.whole
    multiline = isinstance(whole, CSV) and whole.multiline
    plain = _is_plain(given)
    heads = (_read_header(one, size, multiline) for one in [given])
    # Messages about damaged files may quote them. Only those of the system do not.
    ((header, start),) = heads if plain else hide_errors(heads, name)
    check(bool(header.strip()), f"{name} has no header line.")
    check(
        b"\0" not in header and _is_utf8(header),
        f"The header of {name} is not UTF-8. State the encoding of the file: "
        "skdp.tables.CSV(path, encoding='latin-1'), or --encoding latin-1 on the "
        "command line. Windows programs also write 'cp1252' and 'utf-16'.",
    )
    check(
        b"\r" not in header,
        f"Lines of {name} must end with a line feed, not a carriage return.",
    )
    names, delimiter = _split_header(header, wanted)

    stop: float = measure_file(given) if plain else math.inf
    if section is not None and plain:
        with open_text(given) as opened:
            stop = _find_line(opened, max(start, section.stop))
            start = _find_line(opened, max(start, section.first))
    reached, length = 0, max(1, stop - start)

    def read_text() -> Iterator[bytes]:
        with open_text(given) as file:
            if plain:
                file.seek(start)
            else:
                file.read(start)
            yield from cut_blocks(file, delimiter, size, multiline, stop - start)

    def read_blocks() -> Iterator[bytes]:
        return hide_errors(read_text(), name)

    def parse_blocks(at: Sequence[int]) -> Iterator[tuple[int, list[Any]]]:
        def parse(block: bytes) -> tuple[int, list[Any]]:
            columns = _read_columns(block, delimiter, len(names), at, multiline)
            return len(block), columns

        # Arrow's own threads are not used, because they can wait forever on a
        # malformed record (apache/arrow issue 38676).
        yield from map_in_order(parse, read_blocks())

    def read(at: Sequence[int], rows: int) -> Iterator[list[Cells]]:
        nonlocal reached
        reached = 0
        for n_bytes, columns in parse_blocks(at):
            reached += n_bytes
            for part in make_slices(len(columns[0]), rows):
                yield [column[part] for column in columns]
        # Otherwise Arrow would keep tens of megabytes for later use.
        import_library("pyarrow").default_memory_pool().release_unused()

    def count() -> int:
        return sum(
            _count_records(block, delimiter, len(names), multiline)
            for block in read_blocks()
        )

    return Source(
        names=names,
        kinds=["unknown"] * len(names),
        read=read,
        count=count,
        share=(lambda: reached / length) if plain else None,
    )


def split_csv(given: AnyPath, most: float) -> list[Section]:
    """Split a file into sections of about `most` bytes.

    Each line belongs to the section in which it begins. A file whose records may span
    several lines is not split, because a section alone does not show where its records
    begin. Neither is one that must be decompressed or decoded from its start.
    """
    size = measure_file(given)
    whole = not _is_plain(given) or (isinstance(given, CSV) and given.multiline)
    n_sections = 1 if whole else max(1, round(size / most))
    edges = [size * i // n_sections for i in range(n_sections + 1)]
    return [Section(given, *pair, pair[1] - pair[0]) for pair in pairwise(edges)]


def _find_line(file: IO[bytes], at: int) -> int:
    """Return the position of the first line that begins at byte `at` or later."""
    file.seek(at - 1)
    while piece := file.readline(BLOCK_BYTES):
        at += len(piece)
        if piece.endswith(b"\n"):
            break
    return at - 1


def cut_blocks(
    file: IO[bytes],
    delimiter: bytes,
    size: int,
    multiline: bool = False,
    left: float = math.inf,
) -> Iterator[bytes]:
    """Cut the next `left` bytes into blocks of complete records.

    A block has about `size` bytes. By default all bytes up to the end of the file are
    read.
    """
    if not multiline:  # each line is a record
        while block := file.read(int(min(size, max(left, 0)))):
            if not block.endswith(b"\n"):
                block += file.readline()
            left -= len(block)
            yield block
        return
    rest = b""
    # A huge record is scanned again with each new piece. Pieces are at least as long as
    # the rest, so this happens only a few times.
    while piece := file.read(int(min(max(size, len(rest)), left))):
        left -= len(piece)
        block = rest + piece
        end = find_last_end(block, delimiter)
        if end:
            yield block[:end]
        rest = block[end:]
    if rest:
        yield rest


def _count_records(block: bytes, delimiter: bytes, width: int, multiline: bool) -> int:
    if multiline and b'"' in block:
        return len(_read_columns(block, delimiter, width, [0], multiline)[0])
    return _count_lines(block)


def _count_lines(block: bytes) -> int:
    return block.count(b"\n") + (not block.endswith(b"\n"))


def _read_columns(
    block: bytes,
    delimiter: bytes,
    width: int,
    at: Sequence[int],
    multiline: bool = False,
) -> list[Any]:
    """Return the requested columns as Arrow arrays of bytes."""
    pa = import_library("pyarrow")
    by_lines = not multiline and b'"' in block
    if by_lines and _opens_last(block, delimiter):
        block = close_quotes(block, delimiter)
    found = _read_with_arrow(block, delimiter, width, at)
    if found is not None and not (by_lines and len(found[0]) != _count_lines(block)):
        return found
    if by_lines:
        # Arrow joined lines into one field, or failed on a record with too few or too
        # many fields.
        block = close_quotes(block, delimiter)
        found = _read_with_arrow(block, delimiter, width, at)
        if found is not None:
            return found
    records = parse_records(block, delimiter)
    return [
        pa.array(
            [record[position] if position < len(record) else b"" for record in records],
            pa.large_binary(),
        )
        for position in at
    ]


def _opens_last(block: bytes, delimiter: bytes) -> bool:
    """Return whether the last line has an unclosed quote.

    In any other line, an unclosed quote merges the line with the next one, so a count
    of the records reveals it. The last line has no next line.
    """
    last = block[block.rfind(b"\n", 0, -1) + 1 :]
    return b'"' in last and close_quotes(last, delimiter) != last


def _read_with_arrow(
    block: bytes, delimiter: bytes, width: int, at: Sequence[int]
) -> list[Any] | None:
    """Return the columns as Arrow reads them.

    Return None if Arrow fails, or if its result might differ from `parse_records`.
    """
    pa, csv = import_library("pyarrow"), import_library("pyarrow.csv")
    # Arrow ends a line at every carriage return, but `parse_records` does not. Arrow
    # also drops a byte order mark at the start of any block, and where a block starts
    # depends on other records.
    alike = b"\r" not in block or block.count(b"\r") == block.count(b"\r\n")
    alike = alike and not block.startswith(b"\xef\xbb\xbf")
    if not alike or len(block) >= _LARGEST:
        return None
    names = [str(position) for position in range(width)]
    wanted = [names[position] for position in at]
    try:
        found = csv.read_csv(
            pa.py_buffer(block),
            # Arrow gets one block, because it loses a line feed if it splits \r\n.
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
        return None  # drop Arrow's message, which may quote a record
    return [column.combine_chunks() for column in found.columns]


def _read_header(path: AnyPath, size: int, multiline: bool) -> tuple[bytes, int]:
    """Return the header line (without a BOM) and the offset of the next line."""
    with open_text(path) as file:
        first = file.read(3)
        skipped = 3 if first == b"\xef\xbb\xbf" else 0
        head, piece = b"", first[skipped:] + file.read(size)
        while piece:
            head += piece
            check(
                len(head) <= LONGEST_HEADER + size,
                f"The header line of {get_name(path)!r} does not end. Is a quote "
                "unclosed?",
            )
            if not multiline and b"\n" in piece:
                end = head.index(b"\n")
                return head[:end].removesuffix(b"\r"), skipped + end + 1
            for match in match_fields(head, b",") if multiline else ():
                if match[3] in LINE_ENDS:
                    return head[: match.start(3)], skipped + match.end()
            piece = file.read(size)
    return head, skipped + len(head)


def _is_utf8(header: bytes) -> bool:
    try:
        header.decode()
    except UnicodeDecodeError:
        return False
    return True


def _split_header(
    header: bytes, wanted: Sequence[str] | None
) -> tuple[list[str], bytes]:
    """Return the names of the columns and the delimiter."""
    splits = {}
    for delimiter in _DELIMITERS:
        fields = parse_records(header, delimiter)[0]
        splits[delimiter] = [field.decode() for field in fields]

    def count_names(delimiter: bytes) -> tuple[int, int]:
        names = set(splits[delimiter])
        return len(names & set(wanted or ())), len(names) if wanted is None else 0

    best = max(_DELIMITERS, key=count_names)
    return splits[best], best
