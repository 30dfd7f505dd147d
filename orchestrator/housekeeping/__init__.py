"""Disk space, the ledger, exports and later evaluations."""
