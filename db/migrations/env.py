"""Alembic's entry: migrate the connection that vtjobs hands over."""

from alembic import context

from vtjobs.db.models import metadata

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("run migrations with: vtjobs ledger upgrade")
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
