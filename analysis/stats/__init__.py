"""Statistics: pure functions of numbers. No ledger, no files, no printing."""
