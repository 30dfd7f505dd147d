"""`python -m vtjobs.workers.agent`: the name that job scripts and stored allocations use."""

import sys

from .agent import main

if __name__ == "__main__":
    sys.exit(main())
