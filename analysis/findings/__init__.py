"""From ledger rows to cells, comparisons, studies and seed counts."""
