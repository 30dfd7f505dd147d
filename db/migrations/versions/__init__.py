"""One file per ledger schema version."""
