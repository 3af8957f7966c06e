"""
Algorithm 1 and a cell of Table 1
=================================

`skdp.descend` is Algorithm 1 of the paper on any function. Here it runs the cell
"single coordinates, importance sampling, convex" of Table 1, whose bound is
‖L‖_{M⁻¹} R_I √tr(M) up to the budget's factor. For each number of rows the function is
the quadratic of smoothness M that is hardest after K* steps.
"""

import matplotlib.pyplot as plt
import numpy as np

import skdp
from skdp.descent.bounds import Budget, convex_tight
from skdp.descent.samplings import SingleCoordinate

d = 8
M = 8.0 ** np.linspace(0, 1, d) / 16  # smoothness
L = np.ones(d)  # a record's derivatives are at most 1
w_star = np.full(d, 1 / 8)  # w⁰ = 0
law = SingleCoordinate.importance(M)  # p_j ∝ M_j
rows = [2**10, 2**11, 2**12, 2**13]
bounds, measured = [], []

for n in rows:
    budget = Budget(n_rows=n, epsilon=1.0, delta=1e-6)
    rate = convex_tight(
        distance_squared=M.sum() * w_star @ w_star,  # R_I² tr(M)
        sigma_squared=float(L**2 @ (1 / M)),  # ‖L‖²_{M⁻¹}
        budget=budget,
    )
    h = np.minimum(M, 1.2564 * M / (rate.n_steps * law.probabilities))
    excesses = []
    for seed in range(10):
        w, privacy = skdp.descend(
            lambda w, h=h: h * (w - w_star),  # ∇f
            law,  # S
            smoothness=M,  # Γ = PM⁻¹
            n_steps=rate.n_steps,  # K, and T = 1
            epsilon=1.0,
            delta=1e-6,
            n_rows=n,
            lipschitz=1.0,
            random_state=seed,  # for a figure that does not change: no privacy claim
        )
        excesses.append(0.5 * h @ (w - w_star) ** 2)
    bounds.append(rate.bound)
    measured.append(np.mean(excesses))
    share = measured[-1] / rate.bound
    print(f"n = {n:5}: K* = {rate.n_steps:3}, {share:.2f} of the bound")

slope = np.polyfit(np.log(rows), np.log(measured), 1)[0]
print(
    f"The excess falls as n to the power {slope:.2f}; the bound as n to the power -1."
)

fig, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
ax.loglog(rows, bounds, "k--", label="bound")
ax.loglog(rows, measured, "o-", label="measured, mean of 10 runs")
ax.set_xlabel("rows n")
ax.set_ylabel("excess f − f*")
ax.legend()
plt.show()
