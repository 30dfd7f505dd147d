"""How documents look on a terminal."""
