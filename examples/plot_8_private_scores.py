"""
Scores that are paid for
========================

``score`` of a private model on its records is not private. ``skdp.evaluate`` releases
scores with noise, gives intervals for them, and includes a calibration curve.
"""

import matplotlib.pyplot as plt
import numpy as np

import skdp

train, test = (
    skdp.make_hospital(30_000, random_state=1),
    skdp.make_hospital(30_000, random_state=2),
)
clf = skdp.LogisticRegression(epsilon=1.0, schema=train.schema, random_state=0)
clf.fit(train.columns)
scores = skdp.evaluate(clf, test.columns, epsilon=1.0, random_state=0)
for name, score in scores.scores.items():
    print(f"{name:9} {score.value:.4f}, 95 % in [{score.low:.4f}, {score.high:.4f}]")

# %%
# Noise dominates where there are few rows: those bins are left out of the picture.

bins = [b for b in scores.calibration if b.count > 100 and b.rate_std < 0.1]
fig, ax = plt.subplots(figsize=(4.5, 4), layout="constrained")
ax.errorbar(
    [b.predicted for b in bins],
    [b.rate for b in bins],
    yerr=[1.96 * b.rate_std for b in bins],
    fmt="o",
    label="released, with 95 % bars",
)
top = max(b.predicted for b in bins)
ax.plot(np.array([0, top]), np.array([0, top]), "k--", linewidth=1)
ax.set_xlabel("predicted probability")
ax.set_ylabel("observed rate")
ax.legend()
plt.show()
