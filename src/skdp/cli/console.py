"""What all commands share: their common options and how they print JSON."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer

#: `as_json: AsJson = False`: one object on stdout and nothing else.
AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, null for infinity.")
]


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object; null stands for what JSON has no word for."""
    typer.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
