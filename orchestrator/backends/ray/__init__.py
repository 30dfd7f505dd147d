"""Ray as a scheduler.

Asked over its job API, so that neither Ray's version here nor its import time matters.
"""
