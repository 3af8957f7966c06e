"""
Counts
======

Poisson regression of the number of visits in the following year. The largest count is
public. Larger counts are clipped, and rates are relative to it.
"""

import matplotlib.pyplot as plt
import numpy as np

import skdp

data = skdp.make_hospital(30_000, target="visits")
model = skdp.PoissonRegressor(epsilon=1.0, schema=data.schema, random_state=0)
model.fit(data.columns)

# %%
# One patient at a time: the same stay with more prior admissions. This is computed from
# the released weights alone, so it is as private as they are.

admissions = np.arange(11)
patient = {
    "age": 70,
    "length_of_stay": 5,
    "prior_admissions": 0,
    "creatinine": 1.0,
    "medications": 10,
    "department": "Cardiology",
    "admission_type": "Emergency",
    "insurance": "Medicare",
    "discharged_to": "Home",
}
rows = {name: np.full(len(admissions), value) for name, value in patient.items()}
rows["prior_admissions"] = admissions
private = model.predict(rows)

weights = model.weights_
model.weights_ = data.weights  # the truth, known because the table is synthetic
true = model.predict(rows)
model.weights_ = weights
for n in (0, 5, 10):
    print(f"{n:2d} prior admissions: {private[n]:.2f} visits, truly {true[n]:.2f}")

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(admissions, private, "o-", label="private, ε = 1")
ax.plot(admissions, true, "k--", label="truth")
ax.set_xlabel("prior admissions")
ax.set_ylabel("expected visits")
ax.legend()
plt.show()
