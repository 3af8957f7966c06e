"""Make the audit game of a private evaluation on two neighbouring tables."""

from __future__ import annotations

import math

import numpy as np

from skdp.audit.games import Game, Observation
from skdp.estimators.classifiers import LogisticRegression
from skdp.evaluation.evaluate import evaluate
from skdp.evaluation.results import Evaluation
from skdp.privacy import accountant
from skdp.privacy.queries import Neighbours
from skdp.schema import Categorical, Numeric, Schema

SCHEMA = Schema({"x": Numeric(-1.0, 1.0)}, target=Categorical([0, 1]))
#: Losses are clipped to this value. The loss of every wrong prediction exceeds it.
MAX_LOSS = 0.25
DELTA = 1e-4


def make_evaluation_game(
    neighbours: Neighbours, z: float, group: int, delta: float
) -> Game:
    """Return the game that releases the scores of an overconfident model."""
    x = np.repeat([-1.0, 1.0], 20)
    model = LogisticRegression(
        epsilon=math.inf, schema=SCHEMA, fit_intercept=False, alpha=0.0
    )
    model.fit(x[:, None], x > 0)
    model.weights_ = np.full_like(model.weights_, 40.0)
    right = np.concatenate([np.ones(group), [0.0, 1.0]])
    wrong = np.concatenate([np.zeros(group), [0.0, 1.0]])
    other = wrong if neighbours == "replace-one" else right[group:]
    epsilon = accountant.spent_epsilon(1.0 / z, DELTA, 0)

    def evaluate_on(target: np.ndarray, budget: float) -> Evaluation:
        table = np.ones((len(target), 1))
        return evaluate(
            model,
            table,
            target.astype(int),
            epsilon=budget,
            delta=DELTA,
            metrics=["accuracy", "log_loss"],
            max_loss=MAX_LOSS,
            neighbours=neighbours,
        )

    # With an infinite budget there is no noise, so the released values are exact sums.
    first, second = (
        evaluate_on(target, math.inf).privacy_.transcript[0].values
        for target in (right, other)
    )

    def play(changed: bool) -> Observation:
        record = evaluate_on(other if changed else right, epsilon).privacy_
        (released,) = record.transcript
        std = released.noise_std
        return Observation(
            ((released.values - first) / std).ravel(),
            ((second - first) / std).ravel(),
            record.spent,
            uncharged=len(record.transcript) - sum(record.events.values()),
        )

    return play
