"""What a run is.

Its description and id, its states, its retries, and the grammar that selects it.
"""
