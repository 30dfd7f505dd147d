"""vtjobs: from a grid of vision trainings to a table that says what the seeds allow.

Import nothing here.
"""
