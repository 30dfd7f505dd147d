"""Telling people: what has happened, the outbox, and what sends it."""
