"""Runs of TensorBoard: a folder with event files for each."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from ..errors import BadInput
from .record import Record, Scalar

EVENTS = "events.out.tfevents.*"


def read_tensorboard(path: Path) -> Iterator[Record]:
    """Yield the runs of an event file or below a folder, a record for each step that has scalars.

    Event files say nothing of settings: these are read from the names of the folders.

    Raises:
        BadInput: tensorboard is not installed.
    """
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise BadInput(
            f"{path}: TensorBoard reads it. Install it: pip install 'vtjobs[tensorboard]'"
        ) from None
    found = [path] if path.is_file() else sorted({file.parent for file in path.rglob(EVENTS)})
    for one in found:
        folder = one.parent if one.is_file() else one
        # 0: all points, not a sample of them.
        events = EventAccumulator(str(one), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        steps: dict[int, dict[str, Scalar]] = defaultdict(dict)
        for tag in events.Tags()["scalars"]:
            for point in events.Scalars(tag):
                steps[point.step][tag] = point.value
        for tag in events.Tags()["tensors"]:
            _add_tensors(steps, events, tag)
        for step, values in sorted(steps.items()):
            yield Record(where=str(folder), source=folder, values=values, epoch=step)


def _add_tensors(steps: dict[int, dict[str, Scalar]], events: object, tag: str) -> None:
    """Take in what TensorFlow 2 writes: scalars as tensors of one number."""
    from tensorboard.util import tensor_util

    for point in events.Tensors(tag):  # type: ignore[attr-defined]
        values = tensor_util.make_ndarray(point.tensor_proto)
        if values.size == 1 and values.dtype.kind in "fiu":
            steps[point.step][tag] = float(values.reshape(-1)[0])
