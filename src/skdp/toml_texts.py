"""Texts as TOML writes them."""

from __future__ import annotations

import re

from skdp.schema import check

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def key(name: str) -> str:
    """A name as a key: bare if it may be."""
    return name if _BARE.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """A basic string of TOML."""
    check(
        not any("\ud800" <= letter <= "\udfff" for letter in text),
        f"A schema file is UTF-8 text, which cannot hold {text!r}: change it.",
    )
    # What no terminal shows as it is: TOML would take most of it, and move its cursor.
    escaped = (
        _ESCAPES.get(letter)
        or (letter if letter.isprintable() else f"\\U{ord(letter):08x}")
        for letter in text
    )
    return f'"{"".join(escaped)}"'
