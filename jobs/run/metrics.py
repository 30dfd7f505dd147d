"""The metrics that vtjobs has itself."""

import re

from .settings import Task

# Average precision as COCO defines it, of boxes and of masks: over ten thresholds, at 0.5, at 0.75,
# and over ten of small, medium and large objects.
PRECISIONS = ("ap", "ap50", "ap75", "ap_small", "ap_medium", "ap_large")
OF_TASK: dict[Task, tuple[str, ...]] = {
    "classification": ("top1", "top5", "loss", "n"),
    "segmentation": ("miou", "macc", "pixel_acc", "loss", "n"),
    "detection": (
        *(f"{name}_{of}" for of in ("box", "mask") for name in PRECISIONS),
        "n",
    ),
}
"""By task; the first one is compared, unless a grid declares another."""
METRICS = tuple(dict.fromkeys(name for names in OF_TASK.values() for name in names))
"""All of them."""
MAIN: dict[Task, str] = {task: names[0] for task, names in OF_TASK.items()}
"""The one that is compared, by task."""
NEIGHBOURS = re.compile(r"knn\d+|map|map_conditioned|map_oracle")
"""Those of `vtjobs evaluate --knn`, in percent."""
