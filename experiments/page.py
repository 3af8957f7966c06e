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
    """Return the page: what was run, where we lose, and a section per figure."""
    sections, losses, lessons = [], [], []
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
        found = module.learnt(rows) if hasattr(module, "learnt") else []
        lessons += [f"- {letter}: {point}" for point in found]
    return "\n".join([intro(folder), learnt(lessons), lost(losses), *sections])


def save(figure: Figure, path: Path) -> None:
    """Write an SVG that depends on what is drawn alone: no date in it."""
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "skdp"})


def intro(folder: Path) -> str:
    """Describe what was run, and how to run it again."""
    path = folder / TIMES
    times = store.read_csv(path) if path.exists() else []
    minutes = sum(row["core_minutes"] for row in times)
    return f"""# Experiments

The paper has no experiments. These are made by

```sh
make bench NAME=experiments
```

in {minutes:.0f} minutes of one core, shared by two processes. A run that was stopped
continues where it was. `experiments/page.py` writes this page from the CSV files beside
it. To add a system, a table or a sampling, [add one file](adding.md).

- **What is measured.** The excess risk f(w) − f*, where f is the mean loss over all
  rows plus the estimators' light ridge, and f* its minimum by Newton's method: the
  training objective, which the theory is about. [Test scores](../utility/README.md)
  have their own page.
- **What is equal.** (ε, δ = 1e-6), zero-out neighbours and exact accounting, unless a
  figure says otherwise. No system is tuned for a table, except for the one whose name
  says so: the defaults are computed from public facts. But the constants of our own
  rule were chosen while looking at these very tables (adult, bank, electricity,
  california, bike), so our figures on them are not those of fresh data; *hospital* was
  made up, and the paper's methods have no such constants.
- **What is charged.** Steps that move a part of a column cost what one record can take
  part in ([Theorem V](../../guide/theory.md)): in A, E, G, H and the program of B. In
  D, F, I, J and K every record takes part in every step, and the simulations of B and
  C have the noise of the bounds.
- **What is uncertain.** Means are over ten seeds of the noise. Intervals are 95 %,
  Student's t, of logarithms for ratios.
- **What is not private.** The runs are seeded, so they claim no privacy. The excess is
  computed from the records without noise, which is acceptable for public tables only.
"""


def learnt(points: list[str]) -> str:
    """Summarise the findings about the paper, in a line or two per figure."""
    head = "## What was learnt about the paper\n"
    return "\n".join([head, *points, ""]) if points else ""


def lost(points: list[str]) -> str:
    """Where our method loses, as the figures found it."""
    head = "## Where our method loses\n\nEvery such case in the numbers, by figure:\n"
    return "\n".join([head, *points, ""]) if points else ""
