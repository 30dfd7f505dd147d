"""Print the names of timm's models as JSON: `python -m vtjobs.workers.tools.model_names`."""

import json
import sys


def main() -> int:
    """Print what the installed timm registers, ours left out."""
    import timm

    json.dump(timm.list_models(), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
