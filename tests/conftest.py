"""Property tests have no deadline: machines that run them may be busy."""

from hypothesis import settings

settings.register_profile("skdp", deadline=None)
settings.load_profile("skdp")
