"""
Several classes
===============

More than two classes are one softmax model. ``bounds`` and ``classes`` are a short
schema for arrays: both must be known without looking at the records.
"""

import matplotlib.pyplot as plt
import numpy as np

import skdp

rng = np.random.default_rng(0)
centres = np.array([[0.3, 0.3], [0.7, 0.35], [0.35, 0.7], [0.7, 0.75]])
y = rng.integers(4, size=6_000)
X = np.clip(centres[y] + 0.12 * rng.standard_normal((6_000, 2)), 0, 1)

clf = skdp.LogisticRegression(
    epsilon=1.0, bounds=(0, 1), classes=[0, 1, 2, 3], random_state=0
)
clf.fit(X, y)

plain = skdp.LogisticRegression(epsilon=np.inf, bounds=(0, 1), classes=[0, 1, 2, 3])
fresh = rng.integers(4, size=20_000)
points = np.clip(centres[fresh] + 0.12 * rng.standard_normal((20_000, 2)), 0, 1)
for name, model in (("ε = 1", clf), ("no privacy", plain.fit(X, y))):
    print(
        f"{name}: {np.mean(model.predict(points) == fresh):.3f} of fresh points right"
    )

grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 200)] * 2), axis=-1)
regions = clf.predict(grid.reshape(-1, 2)).reshape(200, 200)
fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
ax.contourf(grid[..., 0], grid[..., 1], regions, levels=3, alpha=0.25, cmap="viridis")
ax.scatter(*X[:600].T, c=y[:600], s=8, cmap="viridis")
ax.set_title("Decisions of a private model; 600 of 6,000 points")
plt.show()
