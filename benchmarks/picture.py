"""Draw docs/evidence/picture.svg, which the readme shows: make bench NAME=picture.

Scores on rows that were not fitted, against ε, for a table of classes and one of
numbers. Lines of ours come from docs/evidence/utility/results.csv, theirs from
docs/evidence/peers/results.csv, and additive models from docs/evidence/additive.csv.
Nothing is fitted here.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from peers_report import read_additive

mpl.rcParams |= {"svg.hashsalt": "skdp", "font.size": 8.5, "axes.linewidth": 0.6}

DOCS = Path(__file__).resolve().parents[1] / "docs" / "evidence"
#: After Okabe and Ito, whose colours all eyes tell apart; darker, as text has them too.
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#c04f00", "#00795a", "#555555"
PURPLE, SKY = "#8c3b73", "#3c8fc4"
DASHED: Any = (0, (3.5, 1.5))
#: (peer, variant) -> colour, line and marker.
STYLES: dict[tuple[str, str], tuple[str, Any, str]] = {
    ("Opacus", "tuned"): (ORANGE, "-", "s"),
    ("Opacus", "default"): (ORANGE, DASHED, "s"),
    ("diffprivlib", "tuned"): (GREEN, "-", "^"),
    ("diffprivlib", "default"): (GREEN, DASHED, "^"),
    ("DP-EBM", "tuned"): (PURPLE, "-", "D"),
    ("DP-EBM", "default"): (PURPLE, DASHED, "D"),
}
Curve = dict[float, list[float]]


def read(name: str) -> list[dict[str, Any]]:
    """Rows of a file of results."""
    with (DOCS / name / "results.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def curve(rows: list[dict[str, Any]], **wanted: str) -> Curve:
    """Scores of all seeds by ε, or 0 for a missing score."""
    found: Curve = {}
    for row in rows:
        if all(row[key] == value for key, value in wanted.items()):
            found.setdefault(float(row["epsilon"] or 0), []).append(float(row["value"]))
    return {epsilon: found[epsilon] for epsilon in sorted(found)}


def draw_ours(axis: Axes, found: Curve, colour: str, marker: str) -> None:
    """Draw a line of ours and the band of all its seeds."""
    found = {epsilon: v for epsilon, v in found.items() if epsilon >= 0.1}
    ends = [list(map(end, found.values())) for end in (min, max)]
    axis.fill_between(list(found), *ends, color=colour, alpha=0.22, lw=0)
    means = [sum(v) / len(v) for v in found.values()]
    style = {"color": colour, "marker": marker, "ms": 4.2, "lw": 2.2, "zorder": 5}
    axis.plot(list(found), means, **style)


def panel(axis: Axes, table: str, low: float, high: float) -> None:
    """Draw the scores on one table."""
    ours, theirs = read("utility"), read("peers")
    theirs += read_additive(DOCS / "additive.csv")
    for rows, wanted in (
        (ours, {"method": "no privacy"}),
        (theirs, {"peer": "boosted trees"}),
    ):
        (value,) = next(iter(curve(rows, table=table, **wanted).values()))
        axis.axhline(value, color=GREY, lw=0.9, ls=(0, (1, 2)))
    for (peer, variant), (colour, line, marker) in STYLES.items():
        found = curve(theirs, table=table, peer=peer, variant=variant)
        means = [sum(v) / len(v) for v in found.values()]
        style = {"color": colour, "ls": line, "marker": marker, "ms": 3.4, "lw": 1.2}
        axis.plot(list(found), means, **style)
    found = curve(ours, table=table, method="skdp", neighbours="add-remove")
    draw_ours(axis, found, SKY, "o")
    draw_ours(axis, curve(theirs, table=table, peer="skdp, additive"), BLUE, "o")
    axis.set(xscale="log", xlim=(0.085, 9.5), ylim=(low, high))
    axis.set_xticks([0.1, 0.5, 1, 3, 8], ["0.1", "0.5", "1", "3", "8"])
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_xlabel("ε for what is hidden (smaller is more private)")


def label(axis: Axes, x: float, y: float, text: str, colour: str) -> None:
    """Write beside a line, in its colour."""
    weight = "bold" if colour in (BLUE, SKY) else "normal"
    axis.text(x, y, text, va="center", color=colour, weight=weight, linespacing=1.0)


def main() -> None:
    """Draw both panels."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.6, 4.9), facecolor="white")
    panel(left, "adult", 0.272, 0.462)
    left.set_title("Adult: test log-loss, lower is better", loc="left", fontsize=9)
    label(left, 1.15, 0.453, "diffprivlib\n(replace)", GREEN)
    label(left, 0.21, 0.437, "diffprivlib,\ntuned* (replace)", GREEN)
    label(left, 0.8, 0.416, "DP-EBM (zero-out)", PURPLE)
    label(left, 0.62, 0.391, "Opacus (zero-out)", ORANGE)
    label(left, 1.2, 0.3565, "DP-EBM, tuned*", PURPLE)
    label(left, 0.44, 0.3405, "Opacus,\ntuned*", ORANGE)
    label(left, 0.1, 0.3475, "skdp, linear", SKY)
    label(left, 2.3, 0.3175, "line, no privacy", GREY)
    label(left, 0.3, 0.3035, "skdp, additive", BLUE)
    label(left, 0.1, 0.2845, "boosted trees, no privacy", GREY)
    panel(right, "bike", -0.12, 1.0)
    right.set_title("Bike: test R², higher is better", loc="left", fontsize=9)
    label(right, 0.1, 0.97, "boosted trees, no privacy", GREY)
    label(right, 0.165, 0.82, "skdp, additive", BLUE)
    label(right, 0.1, 0.74, "line, no privacy", GREY)
    label(right, 2.2, 0.73, "skdp, linear", SKY)
    label(right, 0.21, 0.54, "Opacus", ORANGE)
    label(right, 2.5, 0.65, "Opacus, tuned*", ORANGE)
    label(right, 0.9, 0.545, "DP-EBM,\ntuned*", PURPLE)
    label(right, 1.6, 0.40, "DP-EBM", PURPLE)
    off = curve(read("peers"), table="bike", peer="diffprivlib")
    power = min(int(math.log10(-sum(v) / len(v))) for v in off.values())
    label(right, 0.6, -0.07, f"diffprivlib: below −{10**power:,} ↓", GREEN)
    figure.tight_layout(w_pad=2.0, rect=(0, 0.115, 1, 1))
    note = (
        "* tuned on the test rows, which no private user can do. skdp is at its "
        "defaults; bands hold all runs. In brackets: what is hidden.\n"
        "zero-out: whether a row is in the table; the number of rows is public (skdp "
        "additive, Opacus, DP-EBM). skdp linear also hides the number of\nrows (add or "
        "remove). replace: what a row says (diffprivlib, δ = 0). All others: "
        "δ = 10⁻⁶."
    )
    figure.text(0.01, 0.02, note, color=GREY, fontsize=7.5)
    about = "Scores against ε: skdp, Opacus, diffprivlib and DP-EBM"
    figure.savefig(
        DOCS / "picture.svg", metadata={"Date": None, "Title": about}, facecolor="white"
    )


if __name__ == "__main__":
    main()
