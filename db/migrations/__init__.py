"""Alembic environment of the ledger."""
