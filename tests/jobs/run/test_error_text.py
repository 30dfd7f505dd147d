"""What a stored traceback says to people."""

from typing import get_args

import pytest

from vtjobs.jobs.run.error_text import Part, Place, is_traceback, message_of, own_file, place_of

RANK = """\
Traceback (most recent call last):
  File "/opt/vtjobs/workers/ranks/rank.py", line 32, in run_rank
    completed = _train(order, writer, StopFlag(control), listener)
                ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""
LIBRARY = """\
  File "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1783, in _call_impl
    return forward_call(*args, **kwargs)
  File "/usr/lib/python3.12/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError
  File "<frozen importlib._bootstrap>", line 1204, in _gcd_import
  File "/opt/vtjobs/workers/training/trainee.py", line 58, in forward
    loss = self.head(grids)
"""
HEAD = """\
  File "<head Boom>", line 11, in forward
    raise ValueError("3 of 17")
"""
HELPER = '  File "/home/me/lab/helper.py", line 7, in f\n    x = y\n'


@pytest.mark.parametrize(
    ("error", "signature", "message"),
    [
        (f"{RANK}{HEAD}ValueError: 3 of 17\n", "ValueError: # of # at x:f", "ValueError: 3 of 17"),
        (f"{RANK}torch.OutOfMemoryError: 2.5 GiB\n", "OutOfMemoryError: #", "torch.OutOfMemoryError: 2.5 GiB"),
        (f"{RANK}ValueError: 3 of 17\nand\n  more 4\n", "ValueError: #", "ValueError: 3 of 17"),
        (f"{RANK}AssertionError\n", "AssertionError: ", "AssertionError"),
        (f"{RANK}A: 1\n\nDuring handling\n\n{RANK}B: 2\n", "B: #", "B: 2"),
        ("OSError: [Errno 28] /a/b/c\nmore", "OSError: [Errno #] …/c", "OSError: [Errno 28] /a/b/c"),
        (f"{RANK}vtjobs.workers.training.evaluate.Diverged: the loss is nan\n", "Diverged: #", "the loss is nan"),
        ("", "rank killed by SIGKILL", "rank killed by SIGKILL"),
        (f"{RANK}ConnectionError: 10.0.0.7\n", "node 3 disappeared: ConnectionError: #",
         "node 3 disappeared: ConnectionError: 10.0.0.7"),
        ("no progress for 300 s", "no progress", "no progress for 300 s"),
    ],
)  # fmt: skip
def test_the_message_is_the_exceptions_own_line(error: str, signature: str, message: str) -> None:
    assert message_of(error, signature) == message


@pytest.mark.parametrize(
    ("frames", "place"),
    [
        (HEAD, Place("", 11, "head", "Boom")),
        (HEAD + LIBRARY, Place("", 11, "head", "Boom")),
        (LIBRARY + HEAD + HELPER, Place("helper.py", 7)),
        (LIBRARY, None),
        ("", None),
    ],
)
def test_the_place_is_the_innermost_line_of_the_users_code(
    frames: str, place: Place | None
) -> None:
    assert place_of(f"{RANK}{frames}ValueError: no\n") == place


def test_a_place_is_written_as_file_and_line() -> None:
    assert str(Place("boom.py", 11, "head", "Boom")) == "boom.py:11"
    assert str(Place("", 11, "head", "Boom")) == "head Boom, line 11"


@pytest.mark.parametrize("part", get_args(Part))
def test_the_line_of_a_labs_own_part_is_known_by_the_parts_name(part: Part) -> None:
    place = place_of(f'  File "{own_file(part, "boom")}", line 3\n')
    assert place == Place("", 3, part, "boom")


def test_a_text_without_frames_was_not_raised_by_a_rank() -> None:
    assert is_traceback(RANK)
    assert not is_traceback("rank 0: killed by the kernel: out of host memory")
