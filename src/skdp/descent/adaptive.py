"""Draw sets of coordinates with probabilities that depend on released gradients.

Every step of Algorithm 1 costs the same, whichever set it draws, because the noise is a
fixed multiple of the sensitivity of that set. So the sets may depend on earlier
releases at no cost. docs/guide/sketches.md has the proofs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from skdp.descent.samplings import Sampling
from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray, check

Law = Literal["fixed", "norms", "largest"]
LAWS: tuple[Law, ...] = ("fixed", "norms", "largest")


class FollowingLaw:
    """Set probabilities that depend on the last released gradient of each set.

    A step draws the set S with probability
    p(S) = explore · p̄(S) + (1 - explore) · a(S). Here p̄(S) is the probability of S
    under the sampling, and a(S) is computed from released values only. While some sets
    have never been drawn, a(S) is positive for these sets alone. After that, a(S)
    depends on a score s(S). The score is the squared norm of the value that the last
    step on S released, minus the expected squared norm of its noise. If this difference
    is negative, s(S) is 0. Up to a factor that all sets share, s(S) estimates by how
    much a step on S lowers the objective. ``"norms"`` makes a(S) proportional to √s(S)
    (adaptive importance sampling). ``"largest"`` makes a(S) positive only for the set
    with the largest score (the rule of Gauss and Southwell, with gradients of earlier
    steps). If all scores are 0, a(S) is p̄(S).

    Parameters
    ----------
    sampling : Sampling
        The sampling that lists the sets and has the probabilities p̄.
    law : {"norms", "largest"}
        How a(S) depends on the scores.
    explore : float
        In (0, 1]. No set becomes much rarer than under p̄, because p ≥ explore · p̄.
    """

    def __init__(self, sampling: Sampling, law: Law, explore: float) -> None:
        support, own = sampling.support, sampling.set_probabilities
        check(
            support is not None,
            f"law={law!r} requires a sampling that lists its sets, got {sampling!r}.",
        )
        assert support is not None
        assert own is not None
        self._sets, self._own = support, own
        self._law, self._explore = law, explore
        self._index = {chosen.tobytes(): i for i, chosen in enumerate(support)}
        self.forget()

    def forget(self) -> None:
        """Forget all releases. Call this before another run."""
        self._scores = np.full(len(self._sets), np.nan)

    def probabilities(self) -> FloatArray:
        """Return the probability with which the next step draws each set."""
        return self._explore * self._own + (1.0 - self._explore) * self._follow()

    def _follow(self) -> FloatArray:
        new = np.isnan(self._scores)
        if new.any():
            share = np.where(new, self._own, 0.0)
        elif self._law == "norms":
            share = np.sqrt(self._scores)
        else:
            share = (self._scores == self._scores.max()) * self._own
        total = float(share.sum())
        followed = total > 0 and (new.any() or self._scores.max() > 0)
        return share / total if followed else self._own

    def sets(self, n_steps: int, rng: np.random.Generator) -> Iterator[IntArray]:
        """Draw the sets of ``n_steps`` steps, each after the previous step's release.

        Notes
        -----
        **Guarantee.** For all tables, each set is a function of public randomness and
        of the values passed to `learn`, all of which were released.
        """
        for _ in range(n_steps):
            cumulative = np.cumsum(self.probabilities())
            place = rng.random() * cumulative[-1]
            yield self._sets[int(np.searchsorted(cumulative, place, side="right"))]

    def find_probability(self, at: IntArray) -> float:
        """Return the probability with which the next step draws the set `at`."""
        return float(self.probabilities()[self._index[at.tobytes()]])

    def weigh(self, at: IntArray) -> float:
        """Return explore · p̄(S)/p(S) ≤ 1 for the set S = `at` that was drawn.

        The step drew S with probability p(S), and the sampling has probability p̄(S).
        """
        own = float(self._own[self._index[at.tobytes()]])
        return self._explore * own / self.find_probability(at)

    def learn(self, at: IntArray, released: Released) -> None:
        """Update the score s(S) of the set S = `at` from the release of a step on S."""
        if not isinstance(released, Released):
            raise TypeError(
                "Probabilities may depend only on released values, got "
                f"{type(released).__name__}."
            )
        noise = np.broadcast_to(released.noise_std, released.values.shape)
        score = float((released.values**2).sum() - (noise**2).sum())
        self._scores[self._index[at.tobytes()]] = max(score, 0.0)
