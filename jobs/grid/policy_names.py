"""Names of augmentation policies, timm's and torchvision's TrivialAugment, checked without loading
either.

timm reads its own at the start of training, and stops there at one that it does not know.
"""

import re
from collections.abc import Iterator

# Of `timm.data.auto_augment`: which sections each policy takes, and which of them with a fraction.
_AUTO = frozenset(("mstd",))
_FRACTIONS = frozenset(("mstd", "p", "a"))
_SECTIONS = {
    "rand": frozenset(("m", "n", "p", "mstd", "mmax", "inc")),
    "augmix": frozenset(("mstd", "m", "w", "d", "a", "b")),
    **dict.fromkeys(("v0", "v0r", "original", "originalr", "3a"), _AUTO),
}
_RAND_SETS = frozenset(("tweights", "t3a", "t3aw"))
# Of 3-Augment, which draws one operation for an image: what vtjobs lets it draw from, if not all.
THREE = {"grayscale": "Desaturate", "blur": "GaussianBlurRand", "solarize": "Solarize"}
# torchvision's TrivialAugment (Müller and Hutter 2021), which has nothing to set.
TRIVIAL = "trivial"
_SECTIONS[TRIVIAL] = frozenset()
# What only Pillow's operations on single images can do: `pipeline: pil`.
OF_PILLOW = ("augmix", TRIVIAL)
# Sections without a number.
_WORDS = {"rand": _RAND_SETS, "3a": frozenset(THREE)}
_NUMBER = re.compile(r"([a-z]+)(\d+)(\.\d+)?")
# Of a weighted set each operation is drawn once.
_WEIGHTED = frozenset(("tweights", "t3aw"))
_MOST_DRAWN = 14


def drawn_from(policy: str) -> frozenset[str]:
    """Return the operations of timm's that a 3-Augment names; empty: it draws from all three, or
    the policy is another one.

    `3a-grayscale-blur` draws from two.
    """
    name, *sections = policy.split("-")
    return frozenset(THREE[one] for one in sections if name == "3a" and one in THREE)


def policy_problem(text: str) -> str | None:
    """Return what is wrong with a policy such as `rand-m9-mstd0.5-inc1`, or None."""
    name, *sections = text.split("-")
    if name not in _SECTIONS:
        return f"unknown policy {name!r}. Allowed: {', '.join(_SECTIONS)}"
    return next(_problems(name, sections), None)


def _problems(name: str, sections: list[str]) -> Iterator[str]:
    for section in sections:
        if section in _WORDS.get(name, ()):
            continue
        found = _NUMBER.fullmatch(section)
        if found is None or found[1] not in _SECTIONS[name]:
            allowed = ", ".join(sorted(_SECTIONS[name]))
            words = ", ".join(sorted(_WORDS.get(name, ())))
            if not allowed:
                yield f"{section!r}: {name} has no settings"
                continue
            others = f"; or without one: {words}" if words else ""
            yield (
                f"{section!r} is no setting of {name}. Allowed, each with a number:"
                f" {allowed}{others}"
            )
        elif found[3] and found[1] not in _FRACTIONS:
            yield f"{section!r}: {found[1]} takes a whole number"
        elif found[1] == "n" and int(found[2]) > _MOST_DRAWN and _WEIGHTED & set(sections):
            yield f"{section!r}: a weighted set has {_MOST_DRAWN} operations to draw from"
