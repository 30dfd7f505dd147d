"""A lab's own backbone: a function or class that makes a model, `file.py:make` in a grid."""

from . import catalogue
from .entries import Given
from .model_names import model_names
from .own_source import NotOwn, Source, Sources, find

# What vtjobs gives to it: the first always, each other one where the function takes it.
PROVIDED = ("num_classes", "in_chans", "img_size", "drop_rate", "drop_path_rate")


def find_backbone(name: str, settings: Given, *, sources: Sources) -> Source:
    """Read the source of an own backbone and check the arguments that a grid gives to it.

    Args:
        name: as the grid has it.
        settings: the arguments.
        sources: the files of the grid's own parts.

    Raises:
        NotOwn: there is no such function or class, or an argument is unknown, missing, or vtjobs'
            to give.
    """
    wanted = name.rpartition(":")[2]
    taken = {*catalogue.backbones(), *(one["model"] for one in catalogue.backbones().values())}
    if wanted in taken | model_names():
        raise NotOwn(f"{wanted} is the name of a backbone of timm or vtjobs. Rename the function")
    source = find(name, sources=sources, what="backbone")
    if not source.takes(PROVIDED[0]):
        raise NotOwn(f"it must take {PROVIDED[0]}, the number of classes")
    source.check(frozenset(settings), provided=frozenset(PROVIDED))
    return source
