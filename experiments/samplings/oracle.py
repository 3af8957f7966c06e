"""The law that makes the bound least, from the true w*: how much a prior could gain."""

from experiments.samplings import Facts
from skdp.descent.samplings import Blocks, Sampling

NAME = "true distance to w* (not private)"


def make(facts: Facts) -> Sampling:
    return Blocks.prior(facts.blocks, facts.smoothness, facts.distance)
