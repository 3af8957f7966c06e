"""Make audit games for sketched steps, which move along a few rows of a matrix.

The set of rows may be drawn with fixed probabilities, or depend on earlier releases.
"""

from __future__ import annotations

import math
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
from skdp.privacy.mechanism import Released
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, IntArray

#: Number of steps of a game. All steps together cost what one release costs in the
#: games of other mechanisms.
N_STEPS = 3
#: The cap on gradients. On every set, the gradient of a canary is longer than the cap.
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
    # With this seed, a canary's image on the second set of directions has √5 times the
    # length of its image on the first set.
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
        views = [_View(run) for run in runs]
        descend(
            query=views[other].query,
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
        theta = runs[other].start
        for step in steps:  # the same steps on the table that was not run
            views[not other].query(step.at, theta)
            runs[not other].update(theta, step.released, step.at)
            theta = step.weights
        pairs = zip(views[0].sums, views[1].sums, strict=True)
        seen = compare_releases(record, list(pairs))
        return replace(seen, choices=views[1].chance - views[0].chance)

    return play


class _View:
    """Stores the exact sums of a run, and the log-likelihood of the drawn sets."""

    def __init__(self, run: Prepared) -> None:
        self._run, self.sums, self.chance = run, list[queries.BoundedSum](), 0.0
        if run.law is not None:
            run.law.forget()

    def query(self, at: IntArray, weights: FloatArray) -> queries.BoundedSum:
        """Return and store the sum on the set `at`, and update the log-likelihood."""
        if self._run.law is not None:
            self.chance += math.log(self._run.law.find_probability(at))
        self.sums.append(self._run.query(at, weights))
        return self.sums[-1]


def _refuse(total: queries.BoundedSum, share: float) -> Released:
    raise AssertionError("Games with public directions release only steps.")
