"""What a comparison of single runs may borrow, in words."""

from collections.abc import Sequence

from ..findings.comparisons import Comparison
from .wording import columns, title_of

# Up to so many comparisons are told one by one.
_MOST = 8


def borrowed_notes(found: Sequence[Comparison]) -> list[str]:
    """Return what printed deviations say of comparisons that have too few seeds for a test."""
    names = columns(found)
    known = [(one, one.borrowed) for one in found if one.borrowed is not None]
    lines = []
    for one, theirs in known[:_MOST]:
        spread = (
            f"{theirs.low:g}" if theirs.low == theirs.high else f"{theirs.low:g} to {theirs.high:g}"
        )
        low, high = theirs.errors
        errors = f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"
        lines.append(
            f"{title_of(one, names)}: {one.n} and {one.n_baseline} seeds, no test. Printed standard"
            f" deviations over seeds on {one.dataset} are {spread} ({', '.join(theirs.tables)});"
            f" with these the difference is {errors} standard errors. Borrowed from other models:"
            " yours may spread otherwise."
        )
    if len(known) > _MOST:
        lines.append(f"The same holds for {len(known) - _MOST} more comparisons; --json has them.")
    return lines
