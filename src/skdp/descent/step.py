"""What a callback is handed after each step."""

from dataclasses import dataclass

from skdp.privacy.mechanism import Released
from skdp.schema import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Step:
    """What a callback may see: public or released, all of it.

    Attributes
    ----------
    restart, index : int
        t and k of the paper.
    at : array of int
        The set S.
    released : Released
        The noisy sum on it.
    weights : float64 (d, k)
        θ after the step.
    """

    restart: int
    index: int
    at: IntArray
    released: Released
    weights: FloatArray
