"""From an exception to its class and a one-line signature that tells causes apart."""

import os
import re
import traceback
from collections.abc import Callable
from pathlib import Path

from ...jobs.run.states import EXIT_OF_CLASS, ExitCode, FailureClass
from ..errors import STORAGE_ERRORS, BackboneError, WheelError, alike
from .gate import NotReached

_COMMUNICATION = re.compile(
    r"connection (reset|closed|refused)|gloo|nccl|timed out|broken pipe|socket|store->get|remote"
    r" process exited",
    re.I,
)
# What a GPU, its link or its driver says when the node is at fault. A "device-side assert" is the
# run's own.
_HARDWARE = re.compile(
    r"uncorrectable|ecc error|\bxid\b|no cuda-capable device|no cuda gpus are available|invalid"
    r" device ordinal"
    r"|cuda unknown error|system not yet initialized|busy or unavailable|cuda error: initialization"
    r" error|gpu is lost"
    r"|hardware stack error|misaligned address|illegal memory|unspecified launch|nvlink"
    r"|cublas_status_(?:execution_failed|internal_error)|cudnn_status_(?:execution_failed|internal_error)",
    re.I,
)
_MISFIT = re.compile(
    r"no kernel image is available|driver version is insufficient|driver on your system is too old",
    re.I,
)
# A loader hands batches over in shared memory, which containers often limit to 64 MiB.
_SHARED_MEMORY = re.compile(r"dataloader worker .* bus error|out of shared memory", re.I)
_ORDINAL = re.compile(r"invalid device ordinal", re.I)
_NO_SPACE = re.compile(r"no space left|unexpected pos|file write failed|disk quota", re.I)
_NO_MEMORY = re.compile(
    r"can't allocate memory|cuda error: out of memory|cuda failure.*out of"
    r" memory|cu\w+_status_alloc_failed"
    # A library's handle is made at its first call, when a run has filled the GPU.
    r"|cu(?:blas|dnn)_status_not_initialized"
    r"|dataloader worker .* killed by signal: killed",
    re.I,
)


def classify(error: BaseException) -> FailureClass:
    """Return the class of an exception that ended a rank.

    A cause anywhere in the chain of exceptions comes before what the last one looks like.
    """
    for link in _chain(error):
        if found := _cause(link):
            return found
    return next((failure for failure, fits in _LOOKS if fits(error)), FailureClass.USER_ERROR)


def _cause(link: BaseException) -> FailureClass | None:
    """Return the class of an exception that is a cause wherever it stands in a chain."""
    import torch

    from ..errors import DataError, DataMissing
    from ..training.evaluate import Diverged

    is_runtime, text = isinstance(link, RuntimeError), str(link)
    if isinstance(link, Diverged):
        return FailureClass.DIVERGED
    if isinstance(link, DataError):
        is_missing = isinstance(link, DataMissing)
        return FailureClass.DATA_MISSING if is_missing else FailureClass.DATA
    if isinstance(link, torch.OutOfMemoryError | MemoryError):
        return FailureClass.OUT_OF_MEMORY
    if is_runtime and _NO_MEMORY.search(text):
        return FailureClass.OUT_OF_MEMORY
    if isinstance(link, OSError) and link.errno in STORAGE_ERRORS:
        return FailureClass.STORAGE
    return FailureClass.STORAGE if is_runtime and _NO_SPACE.search(text) else None


def _is_set_up(error: BaseException) -> bool:
    from ..own_parts import OwnPartError
    from ..training.trainee import PrecisionError

    if isinstance(error, ImportError | BackboneError | OwnPartError | PrecisionError | WheelError):
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    # A process sees one slice of a GPU at most, so a run of several ranks cannot use several.
    has_slices = "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return bool(
        _MISFIT.search(text)
        or _SHARED_MEMORY.search(text)
        or (has_slices and _ORDINAL.search(text))
    )


def _is_communication(error: BaseException) -> bool:
    from torch.distributed import DistError

    if isinstance(error, DistError | NotReached):
        return True
    is_vague = isinstance(error, RuntimeError | ConnectionError)
    return is_vague and bool(_COMMUNICATION.search(str(error)))


def _is_hardware(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and bool(_HARDWARE.search(str(error)))


def _is_bad_checkpoint(error: BaseException) -> bool:
    # One with the right checksums that holds something else than tensors and numbers.
    return type(error).__name__ in ("UnpicklingError", "SafetensorError")


def _is_bad_image(error: BaseException) -> bool:
    return type(error).__name__ == "UnidentifiedImageError"


def _is_missing(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError | IsADirectoryError)


# What an exception without a known cause looks like; the first that fits.
_LOOKS: tuple[tuple[FailureClass, Callable[[BaseException], bool]], ...] = (
    (FailureClass.SETUP_ERROR, _is_set_up),
    (FailureClass.COMMUNICATION, _is_communication),
    (FailureClass.HARDWARE, _is_hardware),
    (FailureClass.NO_CHECKPOINT, _is_bad_checkpoint),
    (FailureClass.DATA, _is_bad_image),
    (FailureClass.DATA_MISSING, _is_missing),
)


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def exit_code(failure: FailureClass) -> ExitCode:
    """Return the exit code that stands for a class."""
    return EXIT_OF_CLASS[failure]


def signature(error: BaseException) -> str:
    """Return one line.

    Type, message without numbers and paths, and the innermost place in the code.
    """
    message = str(error).strip().split("\n")[0][:200]
    message = alike(message)
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {Path(frames[-1].filename).name}:{frames[-1].name}" if frames else ""
    return f"{type(error).__name__}: {message}{where}"


def describe(error: BaseException, *, most: int = 4000) -> str:
    """Return the end of the traceback, for people.

    Of a long message the beginning is kept, so that the last frames are there as well.
    """
    text = "".join(traceback.format_exception(error))
    own = "".join(traceback.format_exception_only(error))
    if len(text) > most and len(own) > most // 2 and text.endswith(own):
        frames = text[: -len(own)]
        text = f"{frames}{own[: most // 2 - 2]}…\n"
    return text[-most:]
