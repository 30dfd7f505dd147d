"""A transform of your own: some images of the training set lose their colours.

Use it with `train: {pipeline: pil, transform: "random_grey.py:RandomGrey"}`.
"""

import random


class RandomGrey:
    def __init__(self, probability: float = 0.2):
        self.probability = probability

    def __call__(self, image):
        # `random`, NumPy's and torch's global generators are seeded for each image and epoch.
        return image.convert("L") if random.random() < self.probability else image
