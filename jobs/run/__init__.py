"""What a run is: its description and id, its states, its retries, and the grammar that selects it."""
