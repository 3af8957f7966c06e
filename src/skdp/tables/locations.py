"""Find and open files, on this machine or in an object store.

A file in an object store has an address, such as ``"s3://bucket/stays.parquet"``. The
file systems of pyarrow open it, so options and credentials are theirs. Messages show no
more of an address than the file's own name, because the rest may hold a password.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from glob import glob, has_magic
from os import PathLike
from typing import IO, Any
from urllib.parse import unquote

from skdp.schema import InputError, check

AnyPath = str | PathLike[str]

#: How a file is compressed, by the last part of its name.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
#: Bytes that are read from an object store at a time.
PIECE = 1 << 20


@dataclass(frozen=True)
class Address(PathLike[str]):
    """The address of a file. `pathlib` would remove one of its two slashes."""

    text: str

    def __fspath__(self) -> str:
        return self.text

    def __str__(self) -> str:
        return show_path(self)


def is_address(path: AnyPath) -> bool:
    """Return whether a path is an address in an object store."""
    return "://" in os.fspath(path)


def show_path(path: AnyPath) -> str:
    """Return what messages may show of a path: all of it, or an address's last part."""
    text = os.fspath(path)
    if not is_address(path):
        return text
    scheme, rest = text.split("://", 1)
    return f"{scheme}://…/{rest.partition('?')[0].rstrip('/').rpartition('/')[2]}"


def get_name(path: AnyPath) -> str:
    """Return the name of a file without its directory."""
    return show_path(path).rstrip("/").replace(os.sep, "/").rpartition("/")[2]


def split_name(path: AnyPath) -> tuple[str, str | None]:
    """Return the ending of a file's name, in lower case, and how it is compressed."""
    stem, ending = os.path.splitext(get_name(path).lower())
    if ending in COMPRESSIONS:
        return os.path.splitext(stem)[1], COMPRESSIONS[ending]
    return ending, None


@cache
def _open_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path of the file there."""
    from skdp.tables.readers import import_library

    fs = import_library("pyarrow.fs")
    failed = False
    try:
        system, path = fs.FileSystem.from_uri(address)
    except Exception:  # the message may repeat a password
        failed = True
    if failed:
        raise InputError(
            f"The address of {show_path(address)!r} could not be opened. Is it an "
            "address that pyarrow.fs.FileSystem.from_uri understands?"
        )
    return system, path


def _find_info(path: AnyPath) -> tuple[Any, Any]:
    """Return the file system of an address, and what it says about the file."""
    system, inner = _open_system(os.fspath(path))
    failed = False
    try:
        found = system.get_file_info(inner)
    except Exception:
        failed = True
    if failed:
        raise InputError(
            f"{show_path(path)!r} could not be reached. Check the address, the network "
            "and the credentials."
        )
    return system, found


def is_file(path: AnyPath) -> bool:
    """Return whether there is such a file."""
    if is_address(path):
        return bool(_find_info(path)[1].is_file)
    return os.path.isfile(path)


def measure_file(path: AnyPath) -> int:
    """Return the number of bytes of a file."""
    return _find_info(path)[1].size if is_address(path) else os.path.getsize(path)


def make_absolute(path: AnyPath) -> str:
    """Return a path that means the same in every process."""
    return os.fspath(path) if is_address(path) else os.path.abspath(path)


def open_for_arrow(path: AnyPath) -> Any:
    """Open a file at random positions, as pyarrow reads it."""
    from skdp.tables.readers import import_library

    if not is_address(path):
        return import_library("pyarrow").OSFile(os.fspath(path))
    system, found = _find_info(path)
    return system.open_input_file(found.path)


def open_bytes(path: AnyPath) -> IO[bytes]:
    """Open a file for reading its bytes. Compressed files are decompressed."""
    from skdp.tables.readers import import_library

    compression = split_name(path)[1]
    if not is_address(path) and compression is None:
        return open(path, "rb")
    opened = open_for_arrow(path)
    if compression is not None:
        opened = import_library("pyarrow").CompressedInputStream(opened, compression)
    return io.BufferedReader(opened, PIECE)


# ---- List the files of a directory


def list_names(path: AnyPath) -> list[str] | None:
    """Return the paths of what is in a directory or matches a pattern.

    Return None if `path` is neither.
    """
    text = os.fspath(path)
    if is_address(path):
        check(
            not has_magic(text.partition("?")[0]),
            f"Patterns are for files of this machine, got {show_path(path)!r}.",
        )
        return _list_address(path)
    if os.path.isdir(text):
        return [os.path.join(text, name) for name in os.listdir(text)]
    if has_magic(text) and not os.path.lexists(text):
        return glob(text)
    return None


def _list_address(path: AnyPath) -> list[str] | None:
    from skdp.tables.readers import import_library

    system, found = _find_info(path)
    fs = import_library("pyarrow.fs")
    if found.type != fs.FileType.Directory:
        return None
    start, mark, options = os.fspath(path).partition("?")
    names = [one.base_name for one in system.get_file_info(fs.FileSelector(found.path))]
    return [f"{start.rstrip('/')}/{name}{mark}{options}" for name in names]


def split_partition(path: AnyPath) -> tuple[str, str | None] | None:
    """Return the column and the cell that a directory such as ``year=2024`` stands for.

    Return None for other names. The cell is None if it is missing.
    """
    name, mark, cell = get_name(path).partition("=")
    if not (name and mark):
        return None
    return unquote(name), None if cell == MISSING_CELL else unquote(cell)


#: What writers of partitioned directories call a missing cell.
MISSING_CELL = "__HIVE_DEFAULT_PARTITION__"


def walk_partitions(path: AnyPath) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the files below a directory, each with the pairs of its partitions.

    Names that begin with a dot or an underscore are left out. Programs that write
    directories of Parquet files use such names for metadata.
    """
    names = sorted(n for n in list_names(path) or () if get_name(n)[0] not in "._")
    for name in names:
        above, pair = tuple(_find_matches(path, name)), split_partition(name)
        if pair is None or is_file(name):
            yield name, above
        else:
            for below, pairs in walk_partitions(name):
                yield below, (*above, pair, *pairs)


def _find_matches(path: AnyPath, name: str) -> Iterator[tuple[str, str | None]]:
    """Yield the pairs of the directories that a pattern such as ``data/*/*.csv`` found.

    What the pattern writes out is the same in all names, so it tells nothing.
    """
    if is_address(path) or os.path.isdir(path):
        return
    pattern, parts = (
        [part for part in os.path.dirname(one).split(os.sep) if part]
        for one in (os.fspath(path), name)
    )
    for wanted, part in zip(pattern, parts, strict=False):
        pair = split_partition(part) if has_magic(wanted) else None
        if pair is not None:
            yield pair
