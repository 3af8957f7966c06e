"""Draw and charge Poisson batches, whose members and sizes are private.

All batches of a run are charged together, as one event, before the first is drawn.
Separate charges for each release would be too high, because they would treat the
batches as known. The releases therefore use a second privacy record, whose charges do
not count. The transcript of the run's own record keeps the released values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from skdp.privacy import queries, subsampling
from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.encoding import Chunk, Records
from skdp.privacy.queries import Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import check, count_in_words
from skdp.solvers.problem import Run, charge_run

#: Rates are multiples of 2⁻³², so a record is drawn with exactly the charged rate.
RATE_BITS = 32
#: Number of rows for which random words are drawn at a time.
DRAWN_ROWS = 1 << 20
#: The share of δ that batches cost in addition to μ.
DELTA_SHARE = 0.1


def round_rate(rate: float) -> float:
    """Return the rate rounded up to a multiple of 2⁻³²."""
    check(0 < rate <= 1, f"rate must be in (0, 1], got {rate}.")
    return math.ldexp(math.ceil(math.ldexp(rate, RATE_BITS)), -RATE_BITS)


def draw_batch(records: Records, rate: float, noise: Randomness) -> Records:
    """Draw each record independently with probability `rate`."""
    check(records.layout.unit is None, "Batches of persons are not supported.")
    if rate == 1.0:
        return records
    below = np.uint64(int(math.ldexp(rate, 64)))
    sizes = [len(chunk.target) for chunk in records.chunks]
    # Words are drawn for a fixed number of rows at a time, so a seed draws the same
    # rows however the table is cut into chunks.
    blocks = range(0, sum(sizes), DRAWN_ROWS)
    words = (noise.words(min(DRAWN_ROWS, sum(sizes) - start)) for start in blocks)
    drawn = np.concatenate([np.zeros(0, bool), *(word < below for word in words)])
    *by_chunk, _ = np.split(drawn, np.cumsum(sizes, dtype=int))
    chunks = []
    for chunk, own in zip(records.chunks, by_chunk, strict=True):
        at = np.flatnonzero(own)
        parts = tuple(part[at] for part in chunk.parts)
        chunks.append(Chunk(parts, chunk.target[at], chunk.weight[at]))
    return replace(records, chunks=tuple(chunks))


@dataclass(frozen=True, kw_only=True)
class Batches:
    """T batches with the same rate and noise multiplier, and the cost of all of them.

    Attributes
    ----------
    rate : float
        q, the probability that a record is in a batch.
    n_steps : int
        T, the number of batches.
    noise_multiplier : float
        z, the standard deviation of the noise divided by the sensitivity of a batch's
        sum.
    mu, delta : float
        The charge for all batches together, under the neighbour relation of the run.
    """

    rate: float
    n_steps: int
    noise_multiplier: float
    mu: float
    delta: float

    @classmethod
    def calibrate(cls, run: Run, rate: float, n_steps: int) -> Batches:
        """Return batches with the smallest noise that the run's budget allows."""
        rate = round_rate(rate)
        if run.mu == math.inf:
            return cls(
                rate=rate, n_steps=n_steps, noise_multiplier=0.0, mu=math.inf, delta=0.0
            )
        neighbours = run.record.neighbours
        mu, delta = subsampling.to_add_remove(run.mu, run.delta, neighbours)
        if rate == 1.0:  # whole table: exact accounting, no δ
            z, delta = math.sqrt(n_steps) / mu * (1 + 2.0**-50), 0.0
        else:
            z, delta = subsampling.calibrate_noise(mu, delta, rate, n_steps), run.delta
        return cls(
            rate=rate, n_steps=n_steps, noise_multiplier=z, mu=run.mu, delta=delta
        )

    @classmethod
    def price(
        cls, run: Run, rate: float, n_steps: int, noise_multiplier: float
    ) -> Batches:
        """Return batches with a given noise multiplier, charged at their true cost."""
        rate, neighbours = round_rate(rate), run.record.neighbours
        mu, delta = math.inf, 0.0
        if noise_multiplier and rate == 1.0:
            mu = math.sqrt(n_steps) / noise_multiplier
            mu *= queries.count_changes(neighbours)
        elif noise_multiplier:
            # This δ is chosen for the whole budget. It is also valid for a smaller
            # cost.
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

    def charge_all(self, run: Run, sensitivity: float, n_draws: int) -> PrivacyRecord:
        """Charge all batches, and return a second record for their releases.

        Notes
        -----
        **Guarantee.** For all tables that are neighbours as the run defines them, at
        most T releases together cost at most the charge. Each release must be a sum
        over a fresh batch, to which one record adds at most the sensitivity, with noise
        of standard deviation z times the sensitivity.
        """
        many = count_in_words(self.n_steps, "Poisson batch", "Poisson batches")
        query = (
            f"gradients of {many}, rate {self.rate:.6g}, "
            f"noise {self.noise_multiplier:.6g} of one record's part, together"
        )
        z = 1.0 / self.mu * (1 + 2.0**-50) if self.mu < math.inf else 0.0
        event = Event(Kind.BATCHES, query, sensitivity, z, n_draws, self.delta)
        return charge_run(run, event)
