"""
What ε buys
===========

A plan is made from public facts, before a record is read, and forecasts what privacy
will cost. Here the forecast stands beside what fits really cost on a synthetic table
whose true weights are known. A plan is free; only the fits would spend. The forecast is
a guide and no bound: it takes columns to be independent and evenly spread, and at small
ε it is too hopeful here.
"""

import matplotlib.pyplot as plt
import numpy as np

import skdp
from skdp.datasets import compute_margins
from skdp.planning.forecast import forecast

N_ROWS = 20_000
train, fresh = skdp.make_hospital(N_ROWS, seed=1), skdp.make_hospital(N_ROWS, seed=2)
encoded = skdp.encode([fresh.batch], fresh.schema)
readmitted = fresh.columns["readmitted"] == "yes"


def log_loss(weights):
    """Mean log-loss on the fresh table, which is public."""
    margin = compute_margins(encoded, weights)[:, 0]
    return np.logaddexp(0.0, np.where(readmitted, -margin, margin)).mean()


best = log_loss(train.weights)
budgets = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
expected, measured = [], []
for epsilon in budgets:
    expected.append(forecast(skdp.plan(train.schema, N_ROWS, epsilon)).excess)
    clf = skdp.LogisticRegression(epsilon=epsilon, schema=train.schema)
    losses = [
        log_loss(clf.set_params(random_state=seed).fit(train.columns).weights_)
        for seed in range(3)
    ]
    measured.append(np.mean(losses) - best)
    print(f"ε = {epsilon}: forecast {expected[-1]:.4f}, measured {measured[-1]:.4f}")

fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ax.loglog(budgets, measured, "o-", label="measured, mean of 3 fits")
ax.loglog(budgets, expected, "s--", label="forecast, no record read")
ax.set_xlabel("ε")
ax.set_ylabel("log-loss above the truth's")
ax.legend()
plt.show()
