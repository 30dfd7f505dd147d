"""What a loader process hands over at a time."""

from typing import Any

from vtjobs.jobs.grid.load import take_in, take_in_document
from vtjobs.jobs.run.loaders import share_bytes
from vtjobs.jobs.strict_yaml import Document

GRID: dict[str, Any] = {
    "name": "sizes",
    "backbones": ["vit_mini"],
    "heads": ["supervised"],
    "seeds": 1,
}


def test_every_view_of_an_image_counts() -> None:
    cells = take_in("thesis-table2-7").expansion.cells
    sizes = {cell.labels["head"]: share_bytes(cell.spec.settings) for cell in cells}
    assert sizes["supervised"] == 1024 // 8 * 3 * 32 * 32
    assert sizes["grafit(views=8)"] == 8 * sizes["supervised"]


def test_masks_go_with_the_images_of_a_share() -> None:
    recipe = {"image_size": 8, "batch_size": 4, "virtual_ranks": 2}
    sizes = []
    of_tasks: list[tuple[str, str, dict[str, Any]]] = [
        ("cifar10", "quickstart", {}),
        ("ade20k", "upernet", {}),
        ("coco2017", "mask-rcnn", {"longest_side": 16}),
    ]
    for dataset, name, more in of_tasks:
        given = {**GRID, "datasets": [dataset], "recipe": name, "train": {**recipe, **more}}
        (cell,) = take_in_document(Document(file="grid.yaml", data=given)).expansion.cells
        sizes.append(share_bytes(cell.spec.settings))
    # Of two images: three channels, then with 8 bytes for a pixel's class, then with 20 objects.
    assert sizes == [2 * 3 * 8 * 8, 2 * 11 * 8 * 8, 2 * 23 * 8 * 16]
