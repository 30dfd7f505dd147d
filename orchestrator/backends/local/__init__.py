"""This machine as a scheduler: a queue on disk and the process that serves it."""
