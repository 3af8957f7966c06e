"""
One budget for several processes
================================

A ledger is a file with the total budget of a table. Every fit with the ledger is
charged before it reads a record, in every clone, search and process. Here
scikit-learn's cross-validation fits in two processes. Each fold is entered, and a fit
that the remaining budget does not cover is refused.

Fits with a ledger are never seeded, so the models differ from run to run, but the
spending does not.
"""

import tempfile
import warnings

import matplotlib.pyplot as plt
import pandas as pd
from sklearn.model_selection import KFold, cross_validate

import skdp

data = skdp.make_hospital(10_000)
X = pd.DataFrame(data.columns)
y = X.pop("readmitted")
folder = tempfile.TemporaryDirectory()
ledger = skdp.Ledger(
    f"{folder.name}/budget.db",
    epsilon=3.0,
    delta=1e-5,
    table="hospital stays",
    purpose="cross-validation",
)

clf = skdp.LogisticRegression(epsilon=1.0, schema=data.schema, ledger=ledger)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of processes that are reused
    # KFold splits by position. The folds' scores are not private: this table is public.
    cross_validate(clf, X, y, cv=KFold(4), n_jobs=2)
print(f"spent by four folds: ε = {ledger.spent_epsilon:.2f} of 3")

try:
    clf.set_params(epsilon=2.5).fit(X, y)
except skdp.BudgetError as refused:
    print(f"refused: {str(refused).replace(folder.name, '...')}")

# %%
# Budgets add up by μ², the square of the Gaussian-DP parameter: four fits of ε = 1 cost
# less than ε = 4 together.

spent = [entry.mu_squared for entry in ledger.entries() if entry.kind == "commit"]
fig, ax = plt.subplots(figsize=(6, 2.2), layout="constrained")
for i, share in enumerate(spent):
    ax.barh(0, share, left=sum(spent[:i]), edgecolor="white", color="C0")
ax.axvline(ledger.terms.mu_squared, color="k", label="ceiling, ε = 3")
ax.set_yticks([])
ax.set_xlabel("μ² spent, one block a fold")
ax.legend()
plt.show()
folder.cleanup()
