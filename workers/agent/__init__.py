"""The agent, one process a node: claims runs, starts ranks, writes journals. Imports no torch."""
