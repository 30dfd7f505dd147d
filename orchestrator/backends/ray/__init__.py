"""Ray as a scheduler.

Asked over its job API, so that neither Ray's version here nor its import time matters.
"""

from .backend import RayBackend

__all__ = ["RayBackend"]
