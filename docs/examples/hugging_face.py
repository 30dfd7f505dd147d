"""A dataset of your own: a folder that Hugging Face's `save_to_disk` wrote.

Use it with `datasets: [{"hugging_face.py:HuggingFace": {path: beans, classes: 3, …}}]`.
It needs `pip install datasets` where runs train.
"""


class HuggingFace:
    def __init__(self, root: str, split: str, image: str = "image", label: str = "label"):
        from datasets import load_from_disk

        self.data = load_from_disk(root)[split]
        self.image = image
        self.targets = list(self.data[label])

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int):
        return self.data[index][self.image], self.targets[index]
