"""From an exception to its class: real failures, raised by what raises them in a training."""

import errno
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.run.states import ExitCode, FailureClass
from vtjobs.workers.data.datasets import load
from vtjobs.workers.errors import DataError
from vtjobs.workers.models import backbones
from vtjobs.workers.ranks.failure import classify, describe, exit_code, signature

from ...support.ranks import Ranks
from ...support.training import VIT, make_backbone, run_spec, training


def _import_error() -> None:
    import a_module_that_nobody_installed  # type: ignore[import-not-found]  # noqa: F401


def _bad_image() -> None:
    import io

    Image.open(io.BytesIO(b"not an image"))


def _foreign_pickle() -> None:
    import io

    torch.load(io.BytesIO(pickle.dumps(os.system)), weights_only=True)


def _user_error() -> None:
    spec = run_spec(VIT)
    model = backbones.build(spec.backbone, spec.shape)
    model(torch.zeros(1, 3, 16, 16))


REAL: dict[str, tuple[Callable[[], object], FailureClass]] = {
    "torch cannot allocate": (lambda: torch.empty(1 << 50), FailureClass.OUT_OF_MEMORY),
    "numpy cannot allocate": (lambda: numpy.empty(1 << 58), FailureClass.OUT_OF_MEMORY),
    "a write to a full disk": (lambda: Path("/dev/full").write_bytes(b"x"), FailureClass.STORAGE),
    "torch saves to a full disk": (lambda: torch.save(torch.zeros(1 << 20), "/dev/full"), FailureClass.STORAGE),
    "a dataset is missing": (
        lambda: load(catalogue.dataset("svhn"), "train", data_root=Path("/nowhere"), paths={}), FailureClass.DATA_MISSING,
    ),
    "a file is missing": (lambda: Path("/nowhere").read_bytes(), FailureClass.DATA_MISSING),
    "an image is damaged": (_bad_image, FailureClass.DATA),
    "a module is missing": (_import_error, FailureClass.SETUP_ERROR),
    "a backbone that timm refuses": (
        lambda: backbones.build(make_backbone("resnet18", nonsense=1), run_spec().shape),
        FailureClass.SETUP_ERROR,
    ),
    "a checkpoint that holds code": (_foreign_pickle, FailureClass.NO_CHECKPOINT),
    "shapes that do not fit": (_user_error, FailureClass.USER_ERROR),
    "an assertion": (lambda: [][0], FailureClass.USER_ERROR),
}  # fmt: skip


def _caught(action: Callable[[], object]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        action()
    return caught.value


@pytest.mark.parametrize("name", REAL)
def test_a_real_failure_has_its_class(name: str) -> None:
    action, expected = REAL[name]
    assert classify(_caught(action)) is expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
            FailureClass.OUT_OF_MEMORY,
        ),
        (RuntimeError("CUDA error: out of memory"), FailureClass.OUT_OF_MEMORY),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling it"),
            FailureClass.OUT_OF_MEMORY,
        ),
        (RuntimeError("unexpected pos 512 vs 400"), FailureClass.STORAGE),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), FailureClass.STORAGE),
        (OSError(errno.ESTALE, "Stale file handle"), FailureClass.STORAGE),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), FailureClass.HARDWARE),
        (RuntimeError("No CUDA GPUs are available"), FailureClass.HARDWARE),
        (RuntimeError("CUDA error: invalid device ordinal"), FailureClass.HARDWARE),
        (
            RuntimeError("CUDA unknown error - this may be due to the set up"),
            FailureClass.HARDWARE,
        ),
        (RuntimeError("Error 802: system not yet initialized"), FailureClass.HARDWARE),
        (
            RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable"),
            FailureClass.HARDWARE,
        ),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling it"),
            FailureClass.OUT_OF_MEMORY,
        ),
        (
            RuntimeError("cuDNN error: CUDNN_STATUS_NOT_INITIALIZED"),
            FailureClass.OUT_OF_MEMORY,
        ),
        (
            RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. "),
            FailureClass.OUT_OF_MEMORY,
        ),
        (
            RuntimeError(
                "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that"
                " dataloader's workers are out of shared memory."
            ),
            FailureClass.SETUP_ERROR,
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), FailureClass.HARDWARE),
        (RuntimeError("CUDA error: device-side assert triggered"), FailureClass.USER_ERROR),
        (
            RuntimeError("CUDA error: no kernel image is available for execution"),
            FailureClass.SETUP_ERROR,
        ),
        (RuntimeError("The NVIDIA driver on your system is too old"), FailureClass.SETUP_ERROR),
        (
            torch.distributed.DistBackendError(
                "NCCL error: unhandled cuda error, Cuda failure 2 'out of memory'"
            ),
            FailureClass.OUT_OF_MEMORY,
        ),
        (RuntimeError("NCCL communicator was aborted on rank 1"), FailureClass.COMMUNICATION),
        (
            ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
            FailureClass.COMMUNICATION,
        ),
    ],
)
def test_what_cannot_be_had_here_is_known_by_its_words(
    error: Exception, expected: FailureClass
) -> None:
    assert classify(error) is expected


def test_the_peer_of_a_killed_rank_has_a_communication_failure(
    ranks: Ranks, tmp_path: Path
) -> None:
    spec = run_spec(VIT, virtual_ranks=2)
    ended = ranks.train(spec, tmp_path / "run", world_size=2, die_at=2, die_rank=1)
    assert ended.statuses[1] == -9
    assert "class: communication" in ended.text, ended


def test_a_training_that_diverges_is_classed_so(tmp_path: Path) -> None:
    run = training(run_spec(VIT, lr=1e30, optimizer="sgd", warmup_epochs=0.0), tmp_path)
    assert classify(_caught(run.run)) is FailureClass.DIVERGED


def test_the_cause_of_an_error_counts_more_than_the_error() -> None:
    def load_batch() -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError("the loader worker failed") from error

    assert classify(_caught(load_batch)) is FailureClass.STORAGE


def test_every_class_has_an_exit_code_below_128() -> None:
    for name, code in (
        ("data", 72),
        ("out_of_memory", 73),
        ("diverged", 74),
        ("storage", 76),
        ("communication", 77),
    ):
        assert exit_code(FailureClass(name)) == ExitCode(code)
        assert code < 128


@given(
    st.integers(0, 10**9),
    st.floats(0, 1e9),
    st.integers(1 << 48, (1 << 64) - 1),
    st.integers(0, 9999),
)
def test_a_signature_does_not_depend_on_numbers_places_and_run_ids(
    number: int, real: float, run: int, attempt: int
) -> None:
    def fail(text: str) -> None:
        raise DataError(text)

    text = (
        "run {run:016x}: /scratch/{n}/runs/{run:016x}/attempts/{k:04d}/train.pt at {n} of {r},"
        " 0x{n:x}"
    )
    one = signature(_caught(lambda: fail(text.format(run=run, n=number, k=attempt, r=real))))
    other = signature(_caught(lambda: fail(text.format(run=0x123456789ABCDEF0, n=7, k=1, r=0.5))))
    assert one == other
    assert one.startswith("DataError: run #: …/train.pt at # of #, #") and one.endswith(
        "at test_failure.py:fail"
    )


def test_a_signature_is_one_line_and_tells_places_apart() -> None:
    def here() -> None:
        raise ValueError("wrong\nand more")

    def there() -> None:
        raise ValueError("wrong\nand more")

    lines = [signature(_caught(action)) for action in (here, there)]
    assert all("\n" not in line for line in lines) and lines[0] != lines[1]


def test_a_description_is_the_end_of_the_traceback() -> None:
    text = describe(_caught(lambda: [][0]), most=200)
    assert len(text) == 200 and text.endswith("IndexError: list index out of range\n")


def test_a_long_message_leaves_room_for_where_it_was_raised() -> None:
    def here() -> None:
        raise ValueError("9" * 10_000)

    text = describe(_caught(here))
    assert len(text) <= 4000 and "in here" in text
    assert text.endswith("9…\n") and "ValueError: 999" in text


def test_an_invalid_ordinal_among_slices_of_a_gpu_is_a_mistake_in_the_setup(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = RuntimeError("CUDA error: invalid device ordinal")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-7f,MIG-8a")
    assert classify(error) is FailureClass.SETUP_ERROR
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert classify(error) is FailureClass.HARDWARE
