"""What people and programs type by mistake: values, and grids with something wrong in them."""

import json
import random
from typing import Any

VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2**31, 2**63, 10**40, 0.1, -0.0, 1e308, "", " ", "0", "-1", "1e999", "nan", "inf",
    "9" * 400 + "d", "9" * 40, "9" * 400, "1:99:99", "99999999-23:59:59", "x" * 300, "x" * 5000, "../../etc/passwd", "/", "~", "~nobody/x",
    "a:b", ":", "::", "a.py:", ":A", "{}", "[", "é", "\u202e", "\x1b[31m", "%s", "{0}", "$(id)", "a=b", "range",
    [], [[]], [None], ["a", "a"], {}, {"a": {}}, {"": ""}, {"range": [0, 10**12]}, {"range": [5, 0]}, [0, 0], [-1],
    [10**40], {"vit_mini": {"depth": 10**9}}, {"drloc": {"weight": "nan"}}, {"drloc": None}, ["supervised", "drloc"],
    "drloc", "relvit", "digits", "vit_mini",
)  # fmt: skip
WORDS: tuple[str, ...] = (
    "all", "=", "!=", "a=", "=a", "seed=", "seed=9999999999", "seed=" + "9" * 400, "seed!=1", "state=x",
    "state=failed", "train.lr=nan", "train.lr=1e999", "head=drloc(", "head=[", "a=" + "(" * 2000, "backbone=" + "x" * 3000,
    "\udcff\udcfe", "a=\udcff", "x" * 300, "x" * 5000, "é", "\u202e", "\x1b]0;x\x07", "-", "--", "--limit", "0000", "ffff",
    "' OR 1=1 --", "%", "_", "user=\x00"[:5], "grid=" + "," * 3000, "run=0", "cell=zz", "..", "/", "a/b", "2" * 20,
)  # fmt: skip
NUMBERS: tuple[str, ...] = (
    "0", "-1", "1", "99999999999", "9" * 30, "9" * 5000, "1e9", "nan", "inf", "-inf", "", " ", "0x10", "1_000", "½",
)  # fmt: skip


def spoiled_grid(draw: random.Random, data: Any) -> str:
    """Return a grid with one to three things wrong in it, as the text of a file."""
    made = json.loads(json.dumps(data))
    for _ in range(draw.randint(1, 3)):
        _spoil(draw, made)
    text = json.dumps(made)
    if draw.random() < 0.2:
        place = draw.randrange(len(text))
        text = text[:place] + draw.choice("{}[],:\"'\t\n#&*!|>%@`\x00\x85é") + text[place:]
    return text


def _spoil(draw: random.Random, data: Any) -> None:
    """Change something somewhere in the data."""
    places = list(_places(data))
    if not places:
        return
    owner, key = draw.choice(places)
    action = draw.random()
    if action < 0.7:
        owner[key] = draw.choice(VALUES)
    elif action < 0.85 and isinstance(owner, dict):
        owner[f"{key}x"] = owner.pop(key)
    else:
        del owner[key]


def _places(data: Any) -> Any:
    pairs = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in list(pairs):
        yield data, key
        if isinstance(value, dict | list):
            yield from _places(value)
