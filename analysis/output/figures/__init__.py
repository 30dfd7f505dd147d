"""Figures of a report.

Each from plain documents, with its data beside it and a text that stands for it.
"""
