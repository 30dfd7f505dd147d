"""From ledger rows to tables, statistics and reports."""
