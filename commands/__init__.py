"""The commands, by what they are for: they parse, call and print. `cli.py` puts them together."""
