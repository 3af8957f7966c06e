"""The page of the experiments, written from the CSV files that are there."""

from pathlib import Path
from types import ModuleType

from matplotlib.figure import Figure

from experiments import store

#: CPU time of each figure's cells.
TIMES = "times.csv"


def write(folder: Path, figures: dict[str, ModuleType]) -> None:
    """Draw every figure that has a CSV, and write README.md."""
    for name, (module, rows) in measured(folder, figures).items():
        save(module.draw(rows), folder / f"{name}.svg")
    (folder / "README.md").write_text(written(folder, figures), encoding="utf-8")


def measured(
    folder: Path, figures: dict[str, ModuleType]
) -> dict[str, tuple[ModuleType, store.Rows]]:
    """Return the figures that have a CSV, with its rows."""
    return {
        name: (module, store.read_csv(folder / f"{name}.csv"))
        for name, module in figures.items()
        if (folder / f"{name}.csv").exists()
    }


def written(folder: Path, figures: dict[str, ModuleType]) -> str:
    """Return the page: what was run, where our method loses, and a section a figure."""
    sections, losses = [], []
    for name, (module, rows) in measured(folder, figures).items():
        letter = name.partition("_")[0].upper()
        sections.append(
            f"## {letter}. {module.TITLE}\n\n"
            f"![{module.TITLE}]({name}.svg)\n\n{module.text(rows).strip()}\n\n"
            f"Numbers: [{name}.csv]({name}.csv), from "
            f"`experiments/figures/{name}.py`.\n"
        )
        found = module.losses(rows) if hasattr(module, "losses") else []
        losses += [f"- {letter}: {point}" for point in found]
    return "\n".join([intro(folder), lost(losses), *sections])


def save(figure: Figure, path: Path) -> None:
    """Write an SVG that depends on what is drawn alone: no date in it."""
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "skdp"})


def intro(folder: Path) -> str:
    """What was run, how, and how to run it again."""
    path = folder / TIMES
    times = store.read_csv(path) if path.exists() else []
    minutes = sum(row["core_minutes"] for row in times)
    return f"""# Experiments

The experiment section that the paper left open. All of it is made by

```sh
make bench NAME=experiments
```

which takes {minutes:.0f} minutes of one core, shared by two processes; a run that was
stopped goes on where it was. This page is generated (`experiments/page.py`): its
numbers are computed from the CSV files beside it. A system, a table or a sampling of
your own is [one more file](adding.md).

- **What is measured.** The excess risk f(w) − f*, where f is the mean loss over all
  rows plus the estimators' light ridge, and f* its minimum by Newton's method: the
  training objective, which the theory speaks of. [Test scores](../utility/README.md)
  are elsewhere.
- **What is equal.** (ε, δ = 1e-6), one record being emptied (zero-out), and exact
  accounting, unless a figure says otherwise. Nothing is tuned: every system has
  defaults that are made of public facts.
- **What is uncertain.** Means are over at least ten seeds of the noise; intervals are
  95 %, Student's t, of logarithms for ratios.
- **What is not private.** Seeds make runs repeatable, and a seeded run claims no
  privacy; an excess is computed from the records without noise, which is for public
  tables alone.
"""


def lost(points: list[str]) -> str:
    """Where our method loses, as the figures found it."""
    head = "## Where our method loses\n\nBy figure, each case that its numbers show:\n"
    return "\n".join([head, *points, ""]) if points else ""
