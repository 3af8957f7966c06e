"""
Curves, not lines
=================

In this synthetic table the risk of a readmission falls and rises with age. A line
cannot show that, with or without privacy. An additive model draws a curve for each
number, with a band that contains the noise of privacy and of sampling.
"""

import matplotlib.pyplot as plt
import numpy as np

import skdp
from skdp.datasets import bend_age

BEND = 1.0
data = skdp.make_hospital(8_000, bend=BEND)
fresh = skdp.make_hospital(10_000, random_state=1, bend=BEND)
for kind in (skdp.LogisticRegression, skdp.AdditiveClassifier):
    model = kind(epsilon=1.0, schema=data.schema, random_state=0).fit(data.columns)
    chance = model.predict_proba(fresh.columns)[:, 1]
    happened = fresh.columns["readmitted"] == "yes"
    loss = -np.mean(np.log(np.where(happened, chance, 1 - chance)))
    print(f"{kind.__name__:20} log-loss {loss:.4f}")

curve = model.curves_.query("column == 'age'")
age = curve["value"].astype(float)
truth = BEND * bend_age(age) + data.truth["age"] * (age - 18) / 77
truth -= np.interp(data.columns["age"], age, truth).mean()

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.fill_between(age, curve["low"], curve["high"], alpha=0.25, linewidth=0)
ax.plot(age, curve["effect"], label="private curve, ε = 1, and its 95 % band")
ax.plot(age, truth, "k--", linewidth=1, label="truth")
ax.set_xlabel("age")
ax.set_ylabel("effect on the log-odds")
ax.legend()
plt.show()
