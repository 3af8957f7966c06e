"""Poisson batches: who is drawn is private, and so is how many.

A whole run of batches is charged first, as one event; its releases then go to a record
that is thrown away, because each of them alone would be charged as if its batch were
known. Their values are kept in the transcript of the real one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from skdp.privacy import subsampling
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.encoding import Chunk, Records
from skdp.privacy.randomness import Randomness
from skdp.schema import check
from skdp.solvers.problem import Run, charged

#: Rates are multiples of 2⁻³², so that a record is drawn with exactly the rate charged.
RATE_BITS = 32
#: The part of δ that batches cost beside μ.
DELTA_SHARE = 0.1


def rounded_rate(rate: float) -> float:
    """Return the rate on its grid, rounded up."""
    check(0 < rate <= 1, f"rate must be in (0, 1]. Got {rate}: 1 takes every record.")
    return math.ldexp(math.ceil(math.ldexp(rate, RATE_BITS)), -RATE_BITS)


def drawn(records: Records, rate: float, noise: Randomness) -> Records:
    """Draw each record by itself with probability `rate`, from the source of noise."""
    if rate == 1.0:
        return records
    below = np.uint64(int(math.ldexp(rate, 64)))
    chunks = []
    for chunk in records.chunks:
        at = np.flatnonzero(noise.words(len(chunk.target)) < below)
        parts = tuple(part[at] for part in chunk.parts)
        chunks.append(Chunk(parts, chunk.target[at], chunk.weight[at]))
    return Records(records.layout, tuple(chunks), records.max_weight)


@dataclass(frozen=True, kw_only=True)
class Batches:
    """T batches of one rate and one noise multiplier, and what they cost.

    Attributes
    ----------
    rate : float
        q, the chance of a record to be in a batch.
    n_steps : int
        T.
    noise_multiplier : float
        z, noise over what one record can add to a batch's sum.
    mu, delta : float
        What is charged for all of them, under the run's relation.
    """

    rate: float
    n_steps: int
    noise_multiplier: float
    mu: float
    delta: float

    @classmethod
    def calibrated(cls, run: Run, rate: float, n_steps: int) -> Batches:
        """Return batches that spend what the run has: the smallest noise that fits."""
        rate = rounded_rate(rate)
        if run.mu == math.inf:
            return cls(
                rate=rate, n_steps=n_steps, noise_multiplier=0.0, mu=math.inf, delta=0.0
            )
        neighbours = run.record.neighbours
        mu, delta = subsampling.to_add_remove(run.mu, run.delta, neighbours)
        if rate == 1.0:  # exact: no batch, no δ
            z, delta = math.sqrt(n_steps) / mu * (1 + 2.0**-50), 0.0
        else:
            z, delta = subsampling.calibrate_noise(mu, delta, rate, n_steps), run.delta
        return cls(
            rate=rate, n_steps=n_steps, noise_multiplier=z, mu=run.mu, delta=delta
        )

    @classmethod
    def costing(
        cls, run: Run, rate: float, n_steps: int, noise_multiplier: float
    ) -> Batches:
        """Return batches of a given noise, with what they truly cost."""
        rate, neighbours = rounded_rate(rate), run.record.neighbours
        mu, delta = math.inf, 0.0
        if noise_multiplier and rate == 1.0:
            mu = math.sqrt(n_steps) / noise_multiplier
            mu *= 2 if neighbours == "replace-one" else 1
        elif noise_multiplier:
            # The δ that is right for the whole budget is enough for less than it.
            _, least = subsampling.to_add_remove(run.mu, run.delta, neighbours)
            curve = subsampling.compute_profile(noise_multiplier, rate, n_steps)
            mu = subsampling.smallest_mu(curve, least)
            mu, delta = subsampling.from_add_remove(mu, least, neighbours)
        return cls(
            rate=rate,
            n_steps=n_steps,
            noise_multiplier=noise_multiplier,
            mu=mu,
            delta=delta,
        )

    def charged(self, run: Run, sensitivity: float, n_draws: int) -> PrivacyRecord:
        """Charge all batches, and return the record that their releases go to.

        Notes
        -----
        **Guarantee.** For all tables that are neighbours under the run's relation, all
        that at most T releases show, each of a sum over a fresh batch to which a record
        adds at most its sensitivity, with noise of z times that, is what was charged.
        """
        query = (
            f"gradients of {self.n_steps} Poisson batches, rate {self.rate:.6g}, "
            f"noise {self.noise_multiplier:.6g} of one record's part, together"
        )
        z = 1.0 / self.mu * (1 + 2.0**-50) if self.mu < math.inf else 0.0
        return charged(run, Event(query, sensitivity, z, n_draws, self.delta))
