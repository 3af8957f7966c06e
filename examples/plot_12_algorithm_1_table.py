"""
Algorithm 1 on a table
======================

The same `skdp.descend` takes an encoded table and a loss instead of a gradient. Sums
over records are then exact, and bounds on records follow from the schema. Here one
column is updated per step, from a start that is given, and a callback keeps the path.
"""

import matplotlib.pyplot as plt
import numpy as np

import skdp
from skdp.datasets import compute_true_margins
from skdp.descent.samplings import Blocks

data = skdp.make_hospital(20_000)
records = skdp.encode([data.batch], data.schema)
path = []
weights, privacy = skdp.descend(
    records,
    Blocks.uniform(records.layout.blocks),  # S: the columns
    loss=skdp.Logistic(),
    n_steps=600,  # K
    epsilon=1.0,
    start=np.zeros(records.layout.n_features),  # w⁰
    callback=path.append,  # sees released values only
)
print(privacy)

readmitted = data.columns["readmitted"] == "yes"


def log_loss(w):
    """Mean log-loss, computed without noise: do this with made-up tables only."""
    margin = compute_true_margins(records, w)[:, 0]
    return np.logaddexp(0.0, np.where(readmitted, -margin, margin)).mean()


shown = path[::20]
fig, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
ax.plot([20 * i for i in range(len(shown))], [log_loss(s.weights) for s in shown])
ax.axhline(log_loss(weights[:, None]), color="k", ls="--", label="average, returned")
ax.axhline(log_loss(data.weights), color="grey", ls=":", label="true weights")
ax.set_xlabel("step")
ax.set_ylabel("log-loss")
ax.legend()
plt.show()
