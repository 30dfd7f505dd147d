"""Checkpoints and weights: written, verified, read."""
