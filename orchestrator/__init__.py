"""Plan, submit, reconcile, retry; what runs where the user types."""
