"""
What ε buys
===========

A plan is made from public facts, before a record is read, and gives a range for the
cost of privacy. Here the range is compared with the cost of real fits of a synthetic
table. A plan is free; only fits spend. The range is not a bound: it is meant to hold
for four of five fits.
"""

import matplotlib.pyplot as plt
import numpy as np

import skdp
from skdp.datasets import compute_true_margins
from skdp.descent.forecast import forecast

N_ROWS = 20_000
train, fresh = (
    skdp.make_hospital(N_ROWS, random_state=1),
    skdp.make_hospital(N_ROWS, random_state=2),
)
encoded = skdp.encode([fresh.batch], fresh.schema)
readmitted = fresh.columns["readmitted"] == "yes"


def log_loss(weights):
    """Mean log-loss on the fresh table, which is public."""
    margin = compute_true_margins(encoded, weights)[:, 0]
    return np.logaddexp(0.0, np.where(readmitted, -margin, margin)).mean()


def fitted(epsilon, seed):
    """Log-loss of a fit; add-remove hides whether a row is in the table at all."""
    clf = skdp.LogisticRegression(
        epsilon=epsilon,
        schema=train.schema,
        neighbours="add-remove",
        n_rows=N_ROWS,
        random_state=seed,
    )
    return log_loss(clf.fit(train.columns).weights_)


without = fitted(np.inf, 0)
budgets = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
expected, measured = [], []
for epsilon in budgets:
    plan = skdp.plan(train.schema, N_ROWS, epsilon, neighbours="add-remove")
    expected.append(forecast(plan))
    measured.append(np.mean([fitted(epsilon, seed) for seed in range(3)]) - without)
    low, high = expected[-1].low, expected[-1].high
    print(f"ε = {epsilon}: forecast {low:.1g} to {high:.1g}, cost {measured[-1]:.1g}")

fig, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
ends = [[getattr(seen, end) for seen in expected] for end in ("low", "high")]
ax.fill_between(budgets, *ends, color="C1", alpha=0.3, label="forecast, 80 % range")
ax.plot(budgets, measured, "o-", label="measured, mean of 3 fits")
ax.set(xscale="log", yscale="log", xlabel="ε", ylabel="cost of privacy in log-loss")
ax.legend()
plt.show()
