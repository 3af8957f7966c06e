"""Make the audit games of sketched steps and of sets that follow releases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from skdp.audit.games import Game, Observation, compare_releases, make_record
from skdp.audit.neighbouring_tables import MIXED, make_engines
from skdp.descent import averages
from skdp.descent.adaptive import Law
from skdp.descent.algorithm1 import Step, descend
from skdp.descent.geometry import Prepared, Task
from skdp.descent.samplings import Blocks
from skdp.descent.sketches import Sketched, randomised_hadamard
from skdp.models.losses import Squared
from skdp.models.penalties import ElasticNet
from skdp.privacy import queries
from skdp.privacy.budget import PrivacyRecord
from skdp.privacy.mechanism import Released
from skdp.privacy.randomness import Randomness

#: Number of steps of a game. Together they cost what one release would.
N_STEPS = 3
#: The cap on gradients. It is below the length of the gradient of a canary on any set.
CAP = 0.25
#: The public number of rows. It is so large that weights hardly move, and the slope of
#: a canary stays above its cap.
N_ROWS = 1e6


def make_sketch_game(
    law: Law, neighbours: queries.Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that takes a few steps along the rows of a random rotation.

    `law` says how the sets of rows are drawn. All steps together have the noise
    multiplier z.
    """
    engines = make_engines(MIXED, neighbours, group)
    loss, noise = Squared(1.0), Randomness()
    # With these signs, the image of a canary is twice as long on the second set.
    directions = randomised_hadamard(engines[0].records.layout.n_features, seed=1)
    sampling = Blocks.uniform(np.split(np.arange(len(directions)), 2))
    geometry = Sketched(directions=directions, cap=CAP, law=law, explore=0.1)
    tasks = [
        Task(
            engine=engine,
            loss=loss,
            slopes=queries.Slopes(loss=loss),
            curvature=loss.curvature,
            neighbours=neighbours,
            n_rows=N_ROWS,
            penalty=ElasticNet(),
            release=_refuse,
            sampling=sampling,
        )
        for engine in engines
    ]

    runs = [geometry.prepare(task) for task in tasks]

    def play(other: bool) -> Observation:
        record, steps = make_record(neighbours), list[Step]()
        _forget(runs)
        descend(
            query=runs[other].query,
            update=runs[other].update,
            sets=(runs[other].law or sampling).sets,
            average=averages.last,
            start=runs[other].start,
            n_steps=N_STEPS,
            noise_multiplier=z * math.sqrt(N_STEPS),
            randomness=noise,
            record=record,
            callback=steps.append,
        )
        _forget(runs)
        return _compare_steps(runs, steps, record)

    return play


def _forget(runs: Sequence[Prepared]) -> None:
    for run in runs:
        if run.law is not None:
            run.law.forget()


def _refuse(total: queries.BoundedSum, share: float) -> Released:
    raise AssertionError("Steps along public directions release nothing before.")


def _compare_steps(
    runs: Sequence[Prepared], steps: Sequence[Step], record: PrivacyRecord
) -> Observation:
    """Repeat the steps on both tables, and compare sums and probabilities of sets."""
    theta, choices = runs[0].start, 0.0
    sums: list[list[queries.BoundedSum]] = [[], []]
    for step in steps:
        chances = []
        for run, found in zip(runs, sums, strict=True):
            if run.law is not None:
                chances.append(run.law.find_probability(step.at))
            found.append(run.query(step.at, theta))
            run.update(theta, step.released, step.at)
        if chances:
            choices += math.log(chances[1] / chances[0])
        theta = step.weights
    seen = compare_releases(record, list(zip(*sums, strict=True)))
    return replace(seen, choices=choices)
