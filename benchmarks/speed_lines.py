"""A line of the table of speeds, and how two sides are timed in turn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PAGE = Path(__file__).resolve().parent.parent / "docs/evidence/speed.md"
#: The part of the page below it is written by another command than the part above.
CSV_SECTION = "## A large CSV file"
HEADER = "| what | ours | theirs | ratio | required | aim | met |\n" + "|---" * 7 + "|"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One measurement, whose `figure` is compared with `required` and `aim`.

    `ratio` says whether the figure is a ratio of the two sides; `more` whether larger
    is better; `unit` is that of figures that are not ratios. Nothing is asked of a line
    without `required`.
    """

    what: str
    ours: str
    theirs: str = "–"
    figure: float
    required: float | None
    aim: float | None = None
    ratio: bool = True
    more: bool = False
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the figure is as required."""
        if self.required is None:
            return True
        if self.more:
            return self.figure >= self.required
        return self.figure <= self.required

    def __str__(self) -> str:
        sign = "≥" if self.more else "≤"
        aim = "–" if self.aim is None else f"{sign} {self.aim:g}{self.unit}"
        ratio = f"{self.figure:.2f}" if self.ratio else "–"
        met, required = "–", "–"
        if self.required is not None:
            met = "yes" if self.met else "**no**"
            required = f"{sign} {self.required:g}{self.unit}"
        cells = (self.what, self.ours, self.theirs, ratio, required, aim, met)
        return "| " + " | ".join(cells) + " |"


def alternate(repeats: int, *sides: Callable[[], object]) -> list[float]:
    """Median seconds of each side, one call of each in turn, after a first round."""
    times: list[list[float]] = [[] for _ in sides]
    for turn in range(repeats + 1):
        for side, taken in zip(sides, times, strict=True):
            start = time.perf_counter()
            side()
            if turn:
                taken.append(time.perf_counter() - start)
    return [median(taken) for taken in times]


def milliseconds(seconds: float) -> str:
    """Seconds as a text, in ms."""
    return f"{1e3 * seconds:.0f} ms"


def load() -> str:
    """How many processes wanted a core in the last minute, on how many cores."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
