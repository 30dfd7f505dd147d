"""What its agents know of it."""

import os
import socket

from vtjobs.jobs.config.node import OnNode


class NohupNode(OnNode):
    """An agent without a scheduler."""

    def __init__(self) -> None:
        self.job = str(os.getpid())

    def host(self) -> str:
        return f"nohup-{socket.gethostname()}"


ON_NODE = NohupNode
