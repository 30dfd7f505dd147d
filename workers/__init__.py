"""What runs on a node: agent, template, ranks, training."""
