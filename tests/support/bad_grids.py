"""Grid files with one mistake each."""

GOOD = """\
name: small
backbones: [vit_mini]
datasets: [digits]
heads: [supervised]
seeds: 2
recipe: quickstart
train: {epochs: 10}
resources: {gpus_per_node: 0}
"""


def with_line(key: str, value: str) -> str:
    """Return the good grid with another value for one of its keys, or with a further key."""
    lines = [line for line in GOOD.splitlines() if not line.startswith(f"{key}:")]
    return "\n".join([*lines, f"{key}: {value}"]) + "\n"
