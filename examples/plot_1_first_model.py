"""
A first model
=============

A private logistic regression of hospital stays, compared with the weights that the
table was drawn from. The bars are 95 % intervals, which include sampling error and the
noise of privacy.
"""

import matplotlib.pyplot as plt
import numpy as np

import skdp

data = skdp.make_hospital(50_000)
clf = skdp.LogisticRegression(epsilon=1.0, schema=data.schema, random_state=0)
clf.fit(data.columns)
print(clf.summary())

# %%
# ``coef_`` is in the units of the columns. The true weights are those of columns scaled
# to [0, 1], so they are compared on that scale.

names = list(clf.get_feature_names_out())
numbers = ["age", "length_of_stay", "prior_admissions", "creatinine", "medications"]
at = [names.index(name) for name in numbers]
scaled = clf.weights_[at, 0]
std = scaled / clf.coef_[0, at] * clf.coef_std_[0, at]

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
rows = np.arange(len(numbers))
ax.errorbar(scaled, rows, xerr=1.96 * std, fmt="o", label="private, ε = 1")
ax.plot([data.truth[name] for name in numbers], rows, "kx", label="truth")
ax.set_yticks(rows, numbers)
ax.invert_yaxis()
ax.set_xlabel("weight")
ax.legend()
plt.show()
