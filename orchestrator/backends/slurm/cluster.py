"""What the controller says of its configuration."""

from .shell import ask

# What a site allows changes seldom.
FRESH_S = 60.0


def settings(*, deadline_s: float) -> dict[str, str]:
    """Return the controller's configuration."""
    found: dict[str, str] = {}
    for line in ask(["scontrol", "show", "config"], deadline_s=deadline_s).splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found
