"""
Intervals that hold
===================

A private model is fitted to each of thirty fresh tables, and the 95 % interval of one
weight is drawn. About one in twenty may miss the truth. An interval spends nothing: it
is computed from what the fit has already released.
"""

import matplotlib.pyplot as plt

import skdp

NAME = "prior_admissions"
truth = skdp.make_hospital(10).truth[NAME]
estimates, widths = [], []
for seed in range(30):
    data = skdp.make_hospital(20_000, random_state=seed)
    clf = skdp.LogisticRegression(epsilon=1.0, schema=data.schema, random_state=seed)
    clf.fit(data.columns)
    at = list(clf.get_feature_names_out()).index(NAME)
    scale = clf.weights_[at, 0] / clf.coef_[0, at]
    estimates.append(clf.weights_[at, 0])
    widths.append(1.96 * scale * clf.coef_std_[0, at])
hit = [abs(e - truth) <= w for e, w in zip(estimates, widths, strict=True)]
print(f"{sum(hit)} of {len(hit)} intervals hold the true weight, {truth}.")

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for i, (estimate, width, held) in enumerate(zip(estimates, widths, hit, strict=True)):
    ax.errorbar(i, estimate, yerr=width, fmt=".", color="C0" if held else "C3")
ax.axhline(truth, color="k", linewidth=1)
ax.set_xlabel("table")
ax.set_ylabel(f"weight of {NAME}")
plt.show()
