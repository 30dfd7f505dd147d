"""A dataset of your own: WebDataset shards, `train-000.tar` with `0001.jpg` and `0001.cls`.

Use it with `datasets: [{"shards.py:Shards": {path: shards, classes: 10, …}}]`.
Large shards are read where they lie: only the places of their files are kept in memory.
"""

import io
import tarfile
from pathlib import Path

from PIL import Image

PICTURES = (".jpg", ".jpeg", ".png", ".webp")


class Shards:
    def __init__(self, root: str, split: str):
        self.places = []
        self.targets = []
        for shard in sorted(Path(root).glob(f"{split}-*.tar")):
            pictures, classes = {}, {}
            with tarfile.open(shard) as files:
                for file in files:
                    key, _, ending = file.name.rpartition(".")
                    if f".{ending.lower()}" in PICTURES:
                        pictures[key] = (shard, file.offset_data, file.size)
                    elif ending == "cls":
                        classes[key] = int(files.extractfile(file).read())
            self.places += [pictures[key] for key in sorted(pictures)]
            self.targets += [classes[key] for key in sorted(pictures)]

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int):
        shard, start, size = self.places[index]
        with open(shard, "rb") as file:
            file.seek(start)
            return Image.open(io.BytesIO(file.read(size))), self.targets[index]
