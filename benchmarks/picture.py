"""Draw docs/evidence/picture.svg, what the readme shows: make bench NAME=picture.

What privacy costs on rows that were not fitted, against ε, on a table of classes and
one of numbers, from the committed docs/evidence/utility/results.csv (ours) and
docs/evidence/peers/results.csv (theirs). Nothing is fitted here.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
mpl.rcParams |= {"svg.hashsalt": "skdp", "font.size": 8.5, "axes.linewidth": 0.6}

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

DOCS = Path(__file__).resolve().parents[1] / "docs" / "evidence"
#: After Okabe and Ito, whose colours all eyes tell apart; darker, as text has them too.
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#c04f00", "#00795a", "#555555"
#: (peer, variant) -> colour, line and marker.
STYLES: dict[tuple[str, str], tuple[str, Any, str]] = {
    ("Opacus", "tuned"): (ORANGE, "-", "s"),
    ("Opacus", "default"): (ORANGE, (0, (3.5, 1.5)), "s"),
    ("diffprivlib", "tuned"): (GREEN, "-", "^"),
    ("diffprivlib", "default"): (GREEN, (0, (3.5, 1.5)), "^"),
}
#: Costs below count as none: scores differ by as much from one noise to the next.
TIE = 0.0005
Curve = dict[float, list[float]]


def read(name: str) -> list[dict[str, str]]:
    """Rows of a file of results."""
    with (DOCS / name / "results.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def curve(rows: list[dict[str, str]], **wanted: str) -> Curve:
    """Scores of all seeds by ε (0 where there is none)."""
    found: Curve = {}
    for row in rows:
        if all(row[key] == value for key, value in wanted.items()):
            found.setdefault(float(row["epsilon"] or 0), []).append(float(row["value"]))
    return dict(sorted(found.items()))


def panel(axis: Axes, table: str, top: float) -> None:
    """Draw one table: the cost of privacy in log-loss, or in R²."""
    ours, theirs = read("utility"), read("peers")
    best = curve(ours, table=table, method="no privacy")[0][0]
    floor = curve(ours, table=table, method="floor")[0][0]
    sign = 1 if floor > best else -1

    def cost(score: float) -> float:
        return max(sign * (score - best), TIE)

    axis.axhline(TIE, color=GREY, lw=0.9)
    axis.axhline(cost(floor), color=GREY, lw=0.9, ls=(0, (1, 2)))
    for (peer, variant), (colour, line, marker) in STYLES.items():
        found = curve(theirs, table=table, peer=peer, variant=variant)
        costs = [cost(sum(v) / len(v)) for v in found.values()]
        style = {"color": colour, "ls": line, "marker": marker, "ms": 3.4, "lw": 1.2}
        axis.plot(list(found), costs, **style)
    found = curve(ours, table=table, method="skdp", neighbours="add-remove")
    found = {epsilon: v for epsilon, v in found.items() if epsilon >= 0.1}
    ends = [[cost(v) for v in map(end, found.values())] for end in (min, max)]
    axis.fill_between(list(found), *ends, color=BLUE, alpha=0.22, lw=0)
    costs = [cost(sum(v) / len(v)) for v in found.values()]
    axis.plot(list(found), costs, color=BLUE, marker="o", ms=4.2, lw=2.2, zorder=5)
    axis.set(xscale="log", yscale="log", xlim=(0.085, 9.5), ylim=(TIE * 0.8, top))
    axis.set_xticks([0.1, 0.5, 1, 3, 8], ["0.1", "0.5", "1", "3", "8"])
    ticks = [tick for tick in (TIE, 0.001, 0.01, 0.1, 1) if tick < top]
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel("ε for what is hidden (smaller is more private)")


def label(axis: Axes, x: float, y: float, text: str, colour: str) -> None:
    """Write beside a line, in its colour."""
    weight = "bold" if colour == BLUE else "normal"
    axis.text(x, y, text, va="center", color=colour, weight=weight, linespacing=1.0)


def main() -> None:
    """Draw both panels."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.3, 4.0), facecolor="white")
    panel(left, "adult", 12.0)
    left.set_title("Adult: test log-loss lost to privacy", loc="left", fontsize=9)
    label(left, 0.3, 4.5, "diffprivlib (replace)", GREEN)
    label(left, 0.1, 0.3, "base rate", GREY)
    label(left, 1.3, 0.09, "Opacus (zero-out)", ORANGE)
    label(left, 1.15, 0.038, "diffprivlib,\ntuned* (replace)", GREEN)
    label(left, 1.25, 0.0021, "Opacus, tuned*\n(zero-out)", ORANGE)
    label(left, 0.1, 0.0025, "skdp (add\nor remove)", BLUE)
    label(left, 0.1, TIE * 1.35, "no privacy", GREY)
    panel(right, "bike", 1.6)
    right.set_title("Bike: test R² lost to privacy", loc="left", fontsize=9)
    off = curve(read("peers"), table="bike", peer="diffprivlib")
    power = min(int(math.log10(-sum(v) / len(v))) for v in off.values())
    label(right, 0.2, 1.2, f"diffprivlib (replace): above {10**power:,} ↑", GREEN)
    label(right, 0.1, 0.86, "mean", GREY)
    label(right, 0.19, 0.15, "Opacus (zero-out)", ORANGE)
    label(right, 1.35, 0.0023, "Opacus, tuned*\n(zero-out)", ORANGE)
    label(right, 0.1, 0.0045, "skdp (add\nor remove)", BLUE)
    label(right, 0.1, TIE * 1.3, "no privacy", GREY)
    figure.tight_layout(w_pad=2.0, rect=(0, 0.11, 1, 1))
    note = (
        "* tuned on the test rows, which no private user can do. skdp is at its "
        "defaults; the band holds all ten runs. In brackets: what is hidden.\n"
        "add or remove: whether a row is in the table at all, and how many there are "
        "(released with noise). zero-out: the same, but the number\nof rows is public. "
        "replace: what a row says; the number of rows is public. skdp and Opacus: "
        "δ = 10⁻⁶. diffprivlib: δ = 0."
    )
    figure.text(0.01, 0.02, note, color=GREY, fontsize=7.5)
    about = {"Date": None, "Title": "What privacy costs: skdp, Opacus and diffprivlib"}
    figure.savefig(DOCS / "picture.svg", metadata=about, facecolor="white")


if __name__ == "__main__":
    main()
