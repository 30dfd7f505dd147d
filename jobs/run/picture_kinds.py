"""What finished weights can be made to show; the command line knows these words."""

from typing import Literal

Kind = Literal[
    "attention", "cam", "relations", "filters", "features", "neighbours", "depth", "masks"
]
