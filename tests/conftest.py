"""For all tests: a machine that is busy is no defect, so property tests have no deadline of their own."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
