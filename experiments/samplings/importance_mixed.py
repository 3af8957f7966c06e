"""Half importance, half uniform: 1/p_min, which the bound pays, is at most twice b."""

from experiments.samplings import Facts
from skdp.descent.samplings import Blocks, Sampling

NAME = "half importance, half uniform"


def make(facts: Facts) -> Sampling:
    return Blocks.importance(facts.blocks, facts.smoothness, floor=0.5)
