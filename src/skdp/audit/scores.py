"""The game of a private evaluation: a model's scores on neighbouring tables."""

from __future__ import annotations

import math

import numpy as np

from skdp.audit.judge import Game, Trial
from skdp.estimators.logistic import LogisticRegression
from skdp.evaluation.evaluate import evaluate
from skdp.evaluation.results import Evaluation
from skdp.privacy import accountant
from skdp.privacy.queries import Relation
from skdp.schema import Categorical, Numeric, Schema

SCHEMA = Schema({"x": Numeric(-1.0, 1.0)}, target=Categorical([0, 1]))
#: Losses above this are clipped to it: that of every wrong answer is.
MAX_LOSS = 0.25
DELTA = 1e-3


def evaluation(relation: Relation, z: float, group: int, delta: float) -> Game:
    """Accuracy and log-loss of a sure model, on records it gets right or wrong."""
    x = np.repeat([-1.0, 1.0], 20)
    model = LogisticRegression(
        epsilon=math.inf, schema=SCHEMA, fit_intercept=False, alpha=0.0
    )
    model.fit(x[:, None], x > 0)
    model.weights_ = np.full_like(model.weights_, 40.0)
    right = np.concatenate([np.ones(group), [0.0, 1.0]])
    wrong = np.concatenate([np.zeros(group), [0.0, 1.0]])
    other = wrong if relation == "replace-one" else right[group:]
    epsilon = accountant.spent_epsilon(1.0 / z, DELTA, 0)

    def scored(target: np.ndarray, budget: float) -> Evaluation:
        table = np.ones((len(target), 1))
        return evaluate(
            model,
            table,
            target.astype(int),
            epsilon=budget,
            delta=DELTA,
            metrics=["accuracy", "log_loss"],
            max_loss=MAX_LOSS,
            neighbours=relation,
        )

    # Without noise the transcript holds the sums themselves.
    first, second = (
        scored(target, math.inf).privacy_.transcript[0].values
        for target in (right, other)
    )

    def play(changed: bool) -> Trial:
        record = scored(other if changed else right, epsilon).privacy_
        (released,) = record.transcript
        std = released.noise_std
        return Trial(
            ((released.values - first) / std).ravel(),
            ((second - first) / std).ravel(),
            record.spent,
            uncharged=len(record.transcript) - sum(record.events.values()),
        )

    return play
