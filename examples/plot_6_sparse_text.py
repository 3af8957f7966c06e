"""
Sparse text
===========

Rows of a document-term matrix under one joint norm. The vocabulary must be public,
because a vocabulary that is read from the documents would show a rare word of one of
them. Hashing words to a fixed number of columns needs no vocabulary.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

import skdp

rng = np.random.default_rng(0)
words = np.array([f"word{i}" for i in range(400)])
often = 1.0 / np.arange(1, 401)
topics = [often * np.where(np.arange(400) % 2 == side, 1.3, 1.0) for side in (0, 1)]
topics = [topic / topic.sum() for topic in topics]
y = rng.integers(2, size=4_000)
texts = [" ".join(rng.choice(words, size=40, p=topics[side])) for side in y]

# %%
# Each row has norm one, whatever its length, so no document can change a sum by more
# than another. For a sparse matrix ``bounds`` gives that norm.

hashing = HashingVectorizer(n_features=256, alternate_sign=False, norm="l2")
X = hashing.transform(texts)
fitted, fresh = slice(0, 3_000), slice(3_000, None)

budgets = [0.5, 1.0, 2.0, 4.0, 8.0, np.inf]
right = []
for epsilon in budgets:
    clf = skdp.LogisticRegression(
        epsilon=epsilon, bounds=(0, 1), classes=[0, 1], random_state=0
    )
    clf.fit(X[fitted], y[fitted])
    right.append(np.mean(clf.predict(X[fresh]) == y[fresh]))
    print(f"ε = {epsilon:g}: {right[-1]:.3f} of fresh documents right")

fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.semilogx(budgets[:-1], right[:-1], "o-", label="private")
ax.axhline(right[-1], color="k", linestyle="--", label="no privacy")
ax.axhline(0.5, color="C7", linestyle=":", label="guessing")
ax.set_xticks(budgets[:-1], budgets[:-1])
ax.minorticks_off()
ax.set_xlabel("ε (3,000 documents, 256 columns)")
ax.set_ylabel("share that is right")
ax.legend()
plt.show()
