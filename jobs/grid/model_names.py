"""The names of the models that timm can make here."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from ..atomic_files import read_cache, to_json, write_over
from ..config.tools import NoAnswer, ask_tool
from .image_folder import cache_folder

# Those that vtjobs brings itself: `workers/models` registers them with timm.
OWN = frozenset(
    (
        "cvt_13",
        "cvt_13_drloc",
        "deit3_huge_26x2",
        "deit_small_late_class",
        "deit_small_scaled",
        "vit_b16_drloc",
        "patchconvnet_b120",
        "patchconvnet_b36",
        "patchconvnet_b60",
        "patchconvnet_s120",
        "patchconvnet_s20",
        "patchconvnet_s36",
        "patchconvnet_s60",
        "resmlp_b24",
        "resmlp_s12",
        "resmlp_s24",
        "resnet18_cifar",
        "resnet50_attention",
        "resnet50_cifar",
        "t2t_vit_14",
    )
)
TIMEOUT_S = 120


@cache
def model_names() -> frozenset[str]:
    """Return the names of timm's models and of ours.

    timm is asked in a process of its own, which takes seconds; its answer is remembered for this
    version. Empty where timm cannot be imported here.
    """
    try:
        installed = version("timm")
    except PackageNotFoundError:
        return frozenset()
    path = cache_folder() / f"timm-models-{installed}.json"
    names = read_cache(path).get("names")
    if not names:
        names = _ask()
        if not names:
            return frozenset()
        write_over(path, to_json({"names": names}))
    return OWN.union(names)


def _ask() -> list[str]:
    try:
        found: list[str] = ask_tool("model_names", None, timeout_s=TIMEOUT_S)
    except NoAnswer:
        # Submission asks timm about each backbone later, and says what is wrong with it.
        return []
    return found
