"""Settings: where they come from, what a site asks of a job, and what this machine has."""
