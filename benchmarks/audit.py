"""Empirical lower bounds on ε beside the claims, and planted mistakes.

Run it with ``make bench NAME=audit``.

Four questions, each answered by games on made-up neighbouring tables (`skdp.audit`):

1. Is any claim refuted? Every mechanism and short fits of every estimator, under all
   relations, at ε from 0.5 to 8.
2. Would a mistake be found? The same games with mistakes planted: noise that is 20 %
   too small in every mechanism at ε = 1 and in fits at ε = 4 and 8, and others.
3. What does a single fit with many canaries prove?
4. What do single records prove without any assumption on the form of the claim?

It writes audit.md, audit/results.csv and audit/audit.svg in docs/evidence. All noise is
that of the operating system, so numbers differ a little from run to run. Names of parts
(``bug``, say) or of mechanisms run those alone, and keep the other rows of the last
report.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

# Mistakes are written in tests/audit.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "audit"))
# Games are many and small: threads inside them would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import bugs
from audit_report import SURE, read, write
from rich.progress import Progress

from skdp import HuberRegressor, LogisticRegression
from skdp.audit import MECHANISMS, games, one_run
from skdp.audit.suite import (
    SHORT,
    Setting,
    list_mechanism_settings,
    make_fit_setting,
)
from skdp.privacy import accountant
from skdp.privacy.queries import NEIGHBOURS

ROOT = Path(__file__).resolve().parents[1]

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-6
WORKERS = 2
PARTS = {"mechanism", "fit", "plain", "bug", "one run"}
#: Name of a mistake -> how to plant it.
BUGS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "noise × 0.8": ("noise_times", (0.8,)),
    "no factor 2": ("no_factor_two", ()),
    "Gram not charged": ("uncharged", ("Gram",)),
    "row count not charged": ("uncharged", ("counts",)),
    "noise shared by entries": ("one_deviate_a_release", ()),
    "noise repeated each step": ("same_noise_each_step", ()),
    "seed fixed": ("fixed_seed", ()),
    "Gram noise halved off the diagonal": ("small_noise_off_the_diagonal", ()),
    "threshold of categories too low": ("low_threshold", ()),
    "sketch without caps": ("sketch_not_capped", ()),
    "caps of another set": ("sketch_caps_of_another_set", ()),
    "sets by exact gradients": ("sets_by_exact_gradients", ()),
    "noise by the chance of a set": ("sets_amplify", ()),
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One row of the report."""

    part: str
    setting: Setting
    bug: str | None = None
    label: str = ""

    def planted(self) -> AbstractContextManager[None]:
        """Plant the mistake, if there is one."""
        if self.bug is None:
            return nullcontext()
        name, arguments = BUGS[self.bug]
        made: AbstractContextManager[None] = getattr(bugs, name)(*arguments)
        return made

    def run(self) -> dict[str, Any]:
        """Play; a claim without a planted mistake must fail twice to be refuted."""
        start = process_time()
        with self.planted():
            play = self.setting.run if self.bug else self.setting.run_and_confirm
            found = play().to_dict()
        found["cpu"] = process_time() - start
        found["violations"] = "; ".join(found["violations"])
        steps = self.setting.parameters.get("n_steps", "")
        label = self.label or self.setting.name
        return {"part": self.part, "label": label, "bug": self.bug or "", **found} | {
            "nominal": self.setting.epsilon,
            "n_steps": steps,
        }


def claims() -> Iterator[Job]:
    """Right noise: nothing may be flagged."""
    for epsilon in EPSILONS:
        for setting in list_mechanism_settings(epsilon, DELTA, single=epsilon == 1.0):
            if epsilon == 1.0 or MECHANISMS[setting.name].gaussian:
                yield Job(part="mechanism", setting=setting)
        for neighbours in NEIGHBOURS:
            yield Job(
                part="fit", setting=make_fit_setting("linear", neighbours, epsilon)
            )
            if epsilon in (1.0, 4.0):
                setting = make_fit_setting("logistic", neighbours, epsilon)
                yield Job(part="fit", setting=setting)
    for model in ("huber", "svc", "poisson"):
        for neighbours in NEIGHBOURS:
            yield Job(part="fit", setting=make_fit_setting(model, neighbours, 4.0))
    columns = {"geometry": "diagonal", "sampling": "columns", "n_steps": 8}
    for model in ("linear", "huber"):
        yield Job(
            part="fit",
            setting=make_fit_setting(
                model, "replace-one", 4.0, parameters=SHORT | columns
            ),
            label=f"{model}, columns as blocks",
        )
    whole = {"n_rows": 1000, "twins": 20}
    for model in ("logistic", "linear"):
        yield Job(
            part="fit",
            setting=make_fit_setting(
                model, "zero-out", 8.0, parameters={"n_threads": 1}, table=whole
            ),
            label=f"{model}, all its steps",
        )


def single_records() -> Iterator[Job]:
    """Tables that differ in one record, for the bound that assumes nothing."""
    for epsilon in EPSILONS:
        for name in ("gradient", "gram"):
            setting = Setting(
                name=name,
                neighbours="replace-one",
                epsilon=epsilon,
                delta=DELTA,
                group=1,
                n_trials=60_000,
            )
            yield Job(part="plain", setting=setting)


def mistakes() -> Iterator[Job]:
    """Planted mistakes: each must be found."""
    for setting in list_mechanism_settings(1.0, DELTA, single=True):
        shown = setting.name != "levels" or setting.neighbours != "replace-one"
        if shown and setting.name != "rare level":
            mu = setting.group * accountant.gdp_mu(1.0, DELTA)
            setting = replace(setting, n_trials=2 * games.trials_needed(mu, power=SURE))
            yield Job(part="bug", setting=setting, bug="noise × 0.8")
    for epsilon in (4.0, 8.0):
        group = games.best_group(accountant.gdp_mu(epsilon, DELTA))
        mu = group * accountant.gdp_mu(epsilon, DELTA)
        for model, neighbours, reach in (
            ("linear", "zero-out", 0.98),
            ("linear", "add-remove", 0.98),
            ("linear", "replace-one", 0.91),
            ("logistic", "zero-out", 0.95),
            ("logistic", "add-remove", 0.95),
        ):
            n_trials = 2 * games.trials_needed(mu, reach=reach, power=SURE)
            setting = make_fit_setting(model, neighbours, epsilon, n_trials=n_trials)
            yield Job(part="bug", setting=setting, bug="noise × 0.8")
    for name in ("gradient", "matrix gradient", "gram", "counts", "ranges"):
        yield Job(part="bug", setting=_grouped(name, "replace-one"), bug="no factor 2")
    gram = "Gram noise halved off the diagonal"
    yield Job(part="bug", setting=_grouped("gram", "replace-one"), bug=gram)
    for name in ("gradient", "matrix gradient", "ranges"):
        setting = _grouped(name, "zero-out")
        yield Job(part="bug", setting=setting, bug="noise shared by entries")
    low = next(s for s in list_mechanism_settings(1.0) if s.name == "rare level")
    low = replace(low, neighbours="zero-out")
    yield Job(part="bug", setting=low, bug="threshold of categories too low")
    for name, bug in (
        ("sketch", "sketch without caps"),
        ("sketch", "caps of another set"),
        ("adaptive sets", "sets by exact gradients"),
        ("adaptive sets", "noise by the chance of a set"),
    ):
        yield Job(part="bug", setting=_grouped(name, "add-remove"), bug=bug)
    for bug in ("Gram not charged", "row count not charged"):
        setting = make_fit_setting("linear", "add-remove", 4.0, n_trials=400)
        yield Job(part="bug", setting=setting, bug=bug)
    diagonal = SHORT | {"geometry": "diagonal", "sampling": "full"}
    setting = make_fit_setting("linear", "zero-out", 4.0, parameters=diagonal, group=1)
    yield Job(part="bug", setting=setting, bug="noise repeated each step")
    setting = make_fit_setting("linear", "zero-out", 1.0, n_trials=400)
    yield Job(part="bug", setting=setting, bug="seed fixed")


def _grouped(name: str, neighbours: str) -> Setting:
    """A mechanism at ε = 1 on tables that differ in a group."""
    found = list_mechanism_settings(1.0, DELTA)
    return next(s for s in found if (s.name, s.neighbours) == (name, neighbours))


def one_runs() -> Iterator[tuple[Any, int]]:
    """Single fits with many canaries."""
    for epsilon in EPSILONS:
        given = {"epsilon": epsilon, "delta": DELTA, "n_threads": 1}
        model = HuberRegressor(geometry="diagonal", n_steps=20, **given)
        yield model, 1000
        yield model, 10_000
        yield LogisticRegression(n_steps=8, **given), 500


def _one(model: Any, n_canaries: int) -> dict[str, Any]:
    start = process_time()
    found = one_run(model, n_canaries=n_canaries).to_dict()
    found |= {"part": "one run", "label": found["name"], "bug": ""}
    return found | {"cpu": process_time() - start}


def main() -> None:
    """Run everything, or the parts that are named, and write the report."""
    asked = set(sys.argv[1:]) or PARTS
    known = PARTS | set(MECHANISMS)
    if not asked <= known:
        raise SystemExit(f"A part must be one of {sorted(known)}. Got {sorted(asked)}.")
    docs = ROOT / "docs" / "evidence"
    rows = [row for row in read(docs) if not {row["part"], row["label"]} & asked]
    jobs = [*claims(), *single_records(), *mistakes()]
    jobs = [job for job in jobs if {job.part, job.setting.name} & asked]
    # The longest first, or a core would wait for them at the end.
    jobs.sort(key=lambda job: -job.setting.n_trials * (1 if job.part == "plain" else 9))
    with (
        ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as pool,
        Progress() as progress,
    ):
        waiting = [pool.submit(job.run) for job in jobs]
        if "one run" in asked:
            waiting += [pool.submit(_one, *one) for one in one_runs()]
        task = progress.add_task("audits", total=len(waiting))
        for n_done, done in enumerate(as_completed(waiting), start=1):
            rows.append(done.result())
            progress.advance(task)
            if not progress.console.is_terminal:
                print(f"{n_done} of {len(waiting)}: {rows[-1]['label']}", flush=True)
    failed = write(rows, docs)
    print("\n".join(failed) or "No claim was refuted, and every mistake was found.")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
