"""skdp: differentially private linear models, exact down to the last bit."""

__version__ = "0.1.0.dev0"
