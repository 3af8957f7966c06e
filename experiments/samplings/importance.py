"""q ∝ M: the paper's importance sampling, whatever is left for flat blocks."""

from experiments.samplings import Facts
from skdp.descent.samplings import Blocks, Sampling

NAME = "importance, q ∝ M"


def make(facts: Facts) -> Sampling:
    return Blocks.importance(facts.blocks, facts.smoothness)
