"""What the processes of a node owe each other."""

import subprocess
import sys


def test_a_hidden_package_is_not_imported_and_can_be_afterwards() -> None:
    code = """
import sys
from vtjobs.workers.process import hidden

with hidden("colorsys"):
    try:
        import colorsys
    except ImportError:
        print("hidden")
import colorsys
with hidden("colorsys"):
    import colorsys
print(colorsys.__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hidden", "colorsys"]
