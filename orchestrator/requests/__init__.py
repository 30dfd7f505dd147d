"""What a user asks for: submit, cancel, retry, more seeds, one run in the foreground."""
