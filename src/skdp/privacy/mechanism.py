"""Define `release`, the only function that adds noise to a sum over records."""

import math
from dataclasses import dataclass

import numpy as np

from skdp.privacy.budget import Event, PrivacyRecord
from skdp.privacy.queries import BoundedSum, Kind
from skdp.privacy.randomness import Randomness
from skdp.schema import FloatArray, check

#: Noisy sums are rounded to cells. The standard deviation of the noise is between 2¹⁰
#: and 2¹¹ cell widths.
CELL_BITS = 10


@dataclass(frozen=True, eq=False)
class Released:
    """A released value, which may be shown, stored and used freely.

    Only `release` creates such values.

    Attributes
    ----------
    values : float64
        The noisy sum.
    noise_std : float64, broadcastable to values
        The standard deviation of the noise in each value.
    kind : Kind
        What the sum is.
    query : str
        A description of the sum, for people.
    """

    values: FloatArray
    noise_std: FloatArray
    kind: Kind
    query: str


def release(
    total: BoundedSum,
    noise_multiplier: float,
    noise: Randomness,
    record: PrivacyRecord,
    presence: float = 1.0,
) -> Released:
    """Charge the privacy record, then add Gaussian noise to a sum and round the result.

    Each entry k of the sum becomes floor((k + σξ)/G + 1/2)·G, where ξ is an exact
    standard normal, σ is at least ``noise_multiplier · sensitivity · shape``, and the
    cell width G is the power of two near σ·2⁻¹⁰. The result is computed in integers. A
    `noise_multiplier` of 0 releases the exact sum and costs an infinite μ². `presence`
    is the part of this cost that is charged, for steps of a run that was paid in
    advance (`PrivacyRecord.prepay`).

    Notes
    -----
    **Guarantee.** For all pairs of neighbouring tables, the result is a rounded
    Gaussian mechanism with this `noise_multiplier`. It is therefore
    (1/noise_multiplier)-GDP (Dong, Roth, Su 2022, Theorem 2.7, and post-processing),
    up to the small error of the sampler (see `skdp.privacy.randomness`). A presence
    below 1 is right only for all steps of a run together (`skdp.privacy.visits`).
    """
    check(
        0 <= noise_multiplier < math.inf,
        f"noise_multiplier must be finite and at least 0, got {noise_multiplier}.",
    )
    shape = np.broadcast_to(total.shape, total.value.shape)
    std = noise_multiplier * total.sensitivity * shape
    drawn = total.value.size if noise_multiplier else 0
    record.seeded |= noise.seeded
    event = Event.of(total, noise_multiplier, drawn, presence=presence)
    record.charge(event)
    noisy = exact = total.value.ravel().tolist()
    if noise_multiplier:
        scales = (std / total.unit).ravel().tolist()
        entries = zip(exact, scales, noise.normals(drawn), strict=True)
        noisy = [_round_to_cell(k, scale, v, noise) for k, scale, v in entries]
    values = np.reshape(np.array(noisy, dtype=np.float64), std.shape) * total.unit
    values.flags.writeable = std.flags.writeable = False  # the transcript shares them
    released = Released(values, std, total.kind, total.query)
    record.transcript.append(released)
    return released


def _round_to_cell(k: int, std: float, drawn: int, source: Randomness) -> float:
    """Return floor((k + std·ξ)/G + 1/2)·G, computed in integers.

    Here ξ is a standard normal, and G is the width of a cell. The first digits of ξ are
    known: ξ lies in [drawn, drawn + 1]·2⁻⁶⁴. Further digits are drawn until they
    determine the result.
    """
    mantissa, exponent = math.frexp(std)
    cell = exponent - 1 - CELL_BITS  # G = 2^cell
    scale = math.ceil(math.ldexp(mantissa, CELL_BITS + 21)) + 1  # std < scale·G·2⁻²⁰
    digits = 64
    while True:
        point = max(0, digits + 20 - cell)  # binary places common to all terms
        shift = point + cell - 20 - digits
        least = (k << point) + (1 << (cell + point - 1)) + (drawn * scale << shift)
        low = least >> (cell + point)
        if low == (least + (scale << shift)) >> (cell + point):
            return math.ldexp(low, cell)
        drawn, digits = (drawn << 64) + int(source.words(1)[0]), digits + 64
