"""The ledger: tables, transitions, migrations, ingestion, queries."""
