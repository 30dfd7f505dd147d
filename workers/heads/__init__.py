"""The auxiliary heads: what is trained beside the classifier, and never seen by it."""
