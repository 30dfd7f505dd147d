"""One scheduler per module behind one small protocol."""
