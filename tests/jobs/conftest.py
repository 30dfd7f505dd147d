"""Properties are tried on the same examples every time, however slow the machine is."""

from hypothesis import settings

settings.register_profile("calm", deadline=None, derandomize=True, database=None, max_examples=60)
settings.load_profile("calm")
