"""Which builds of torch train on which GPUs."""

from collections.abc import Sequence

# The newest release whose usual wheel has kernels for Volta and older: it is built with CUDA 12.6,
# later ones with a CUDA that starts at Turing.
VOLTA_WHEELS = "pip install 'torch==2.7.1' 'torchvision==0.22.1'"
TURING = (7, 5)


def is_built_for(capability: str, architectures: Sequence[str]) -> bool:
    """Whether a wheel has kernels for a GPU.

    Args:
        capability: of the GPU, such as 7.0.
        architectures: of the wheel, such as `sm_70`, whose kernels run on later GPUs of the same
            generation too, or `compute_90`, which every later GPU can translate. Empty: unknown.
    """
    wanted = _numbers(capability)
    for architecture in architectures:
        kind, _, digits = architecture.partition("_")
        built = (int(digits.rstrip("af")[:-1]), int(digits.rstrip("af")[-1]))
        if built <= wanted and (kind == "compute" or built[0] == wanted[0]):
            return True
    return not architectures


def remedy(capability: str) -> str:
    """Return what to do where a wheel has no kernels for a GPU."""
    if _numbers(capability) < TURING:
        return f"Run in the environment of vtjobs: {VOLTA_WHEELS}"
    return f"Install a torch wheel built for sm_{capability.replace('.', '')}"


def _numbers(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return int(major), int(minor)
