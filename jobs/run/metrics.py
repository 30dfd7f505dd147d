"""The metrics that vtjobs has itself."""

from .settings import Task

OF_TASK: dict[Task, tuple[str, ...]] = {
    "classification": ("top1", "top5", "loss", "n"),
    "segmentation": ("miou", "macc", "pixel_acc", "loss", "n"),
}
"""By task; the first one is compared, unless a grid declares another."""
METRICS = tuple(dict.fromkeys(name for names in OF_TASK.values() for name in names))
"""All of them."""
MAIN: dict[Task, str] = {task: names[0] for task, names in OF_TASK.items()}
"""The one that is compared, by task."""
