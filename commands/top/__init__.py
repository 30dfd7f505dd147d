"""`vtjobs top`: cells, runs, curves, logs and failures on one screen, live."""
