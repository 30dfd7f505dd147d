"""Randomness as a function.

Every draw follows from (seed, stream, consumer, position), never from what ran before.
"""

import hashlib
import random
from collections.abc import Mapping

import numpy
import torch

from ..jobs.run.spec import STREAMS


class Streams:
    """The seven streams of a run.

    Position is epoch, step, virtual rank or sample, as the consumer needs.
    """

    def __init__(self, seeds: Mapping[str, int]) -> None:
        self._seeds = {stream: int(seeds[stream]) for stream in STREAMS}

    def key(self, stream: str, consumer: str, *position: int) -> int:
        """Return 63 bits for one consumer of one stream at one position."""
        text = f"{self._seeds[stream]}/{stream}/{consumer}/{'/'.join(map(str, position))}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

    def generator(self, stream: str, consumer: str, *position: int) -> torch.Generator:
        """Return a fresh CPU generator; draws from it are the same whatever device trains."""
        return self.generator_on(torch.device("cpu"), stream, consumer, *position)

    def generator_on(
        self, device: torch.device, stream: str, consumer: str, *position: int
    ) -> torch.Generator:
        """Return a fresh generator of a device, for what is too much to draw elsewhere."""
        return torch.Generator(device).manual_seed(self.key(stream, consumer, *position))

    def seed_torch(self, stream: str, consumer: str, *position: int) -> None:
        """Seed torch's default generators, which dropout, drop path and initialisers draw from."""
        key = self.key(stream, consumer, *position)
        torch.default_generator.manual_seed(key)
        if torch.cuda.is_available():
            torch.cuda.manual_seed(key)

    def seed_sample(self, epoch: int, index: int, copy: int) -> None:
        """Seed all global generators on the CPU for one copy of a training image in an epoch."""
        key = self.key("augment", "pil", epoch, index, *([copy] if copy else []))
        random.seed(key)
        numpy.random.seed(key & 0xFFFFFFFF)
        torch.default_generator.manual_seed(key)

    def seed_numpy(self, stream: str, consumer: str, *position: int) -> None:
        """Seed NumPy's global generator, which timm's Mixup draws from."""
        numpy.random.seed(self.key(stream, consumer, *position) & 0xFFFFFFFF)
