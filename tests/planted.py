"""Planted bugs: realistic privacy mistakes that the tests must catch.

A bug is a file of ``tests/mutants``. It names the function that it is planted in, a
text of that function, and what takes its place. The function is found by its name, in
whatever file it is. A bug outside of all functions names its file instead.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

BUGS = Path(__file__).with_name("mutants")


@dataclass(frozen=True, kw_only=True)
class Bug:
    """A mistake, as its file describes it."""

    name: str
    title: str
    leaks: str
    before: str
    after: str
    author: str
    function: str = ""
    file: str = ""
    tests: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Bug:
        """Read one file of `BUGS`."""
        given = tomllib.loads(path.read_text(encoding="utf-8"))
        return cls(name=path.stem, tests=tuple(given.pop("tests", ())), **given)

    def plant(self, package: Path) -> tuple[str, str]:
        """Return the file of a package that the bug is in, and its source with it."""
        if self.file:
            source = (package / self.file).read_text(encoding="utf-8")
            places = [(self.file, source, 0, len(source))]
        else:
            places = _find_functions(package, self.function)
        found = [
            (file, source, first, last)
            for file, source, first, last in places
            if self.before in source[first:last]
        ]
        times = sum(source[a:b].count(self.before) for _, source, a, b in found)
        if times != 1:
            where = self.file or f"a function {self.function}"
            raise ValueError(
                f"{self.name}: its text must occur once in {where}. It occurs {times} "
                "times: write it anew."
            )
        ((file, source, first, last),) = found
        planted = source[first:last].replace(self.before, self.after)
        return file, source[:first] + planted + source[last:]


def read_bugs() -> dict[str, Bug]:
    """Return all planted bugs by name."""
    return {path.stem: Bug.read(path) for path in sorted(BUGS.glob("*.toml"))}


def list_functions(source: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each function, method and class, and where it is in the text.

    A text that starts with a line break may start at the end of the line before.
    """
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

    def visit(node: ast.AST, inside: str) -> Iterator[tuple[str, int, int]]:
        for child in ast.iter_child_nodes(node):
            name = inside
            if isinstance(child, kinds):
                name = f"{inside}.{child.name}" if inside else child.name
                first = min(d.lineno for d in [child, *child.decorator_list])
                assert child.end_lineno is not None
                yield name, max(0, starts[first - 1] - 1), starts[child.end_lineno]
            yield from visit(child, name)

    yield from visit(ast.parse(source), "")


@cache
def _index(package: Path) -> dict[str, list[tuple[str, str, int, int]]]:
    found: dict[str, list[tuple[str, str, int, int]]] = {}
    for path in sorted(package.rglob("*.py")):
        source, file = path.read_text("utf-8"), path.relative_to(package).as_posix()
        for name, first, last in list_functions(source):
            found.setdefault(name, []).append((file, source, first, last))
    return found


def _find_functions(package: Path, name: str) -> list[tuple[str, str, int, int]]:
    return _index(package).get(name, [])
