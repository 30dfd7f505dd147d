"""A backend that another package would bring: the example of docs/developing.md.

It starts an agent at once for each allocation, as `nohup … &` would, up to a limit.
"""
