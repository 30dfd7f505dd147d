"""The vocabulary both sides share. Pure: standard library, pydantic and pyyaml alone."""
