"""Play histories from a shell.

Python -m tests.simulation.run --seed 7 --runs 200 [--count 10] [--verbose].
"""

import argparse
import sys
import time
from collections import Counter

from .history import play
from .profile import draw
from .watch import Violation


def main() -> int:
    """Parse the command line and play."""
    parser = argparse.ArgumentParser(prog="tests.simulation.run")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--count", type=int, default=1, help="how many seeds, from this one on")
    parser.add_argument(
        "--verbose", action="store_true", help="show what happened last, and the settings"
    )
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.count):
        begun = time.process_time()
        if options.verbose:
            print(draw(seed, options.runs))
        try:
            told = play(seed, options.runs)
        except Violation as error:
            failed += 1
            print(f"seed {seed}: {error}")
            if options.verbose:
                print("\n".join(error.history))
            continue
        facts = f"{told.attempts} attempts, {told.jobs} jobs, {told.simulated_s / 3600:.1f} h"
        print(
            f"seed {seed}: {told.runs} runs, {facts}, {time.process_time() - begun:.1f} s,"
            f" {dict(Counter(told.states))}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
