"""The notes below tables: what was done, what the marks mean, what is missing."""

from collections.abc import Sequence

from ...jobs.grid.scoring import evaluation
from ...jobs.run.comparing import Correction, OverDatasets
from ...jobs.units import plural, ranges
from ..findings import epochs, reversals
from ..findings.cell import Cell
from ..findings.comparisons import Comparison, Comparisons
from ..findings.declared import declaration_notes
from ..findings.pooled import PooledComparison
from ..findings.tallies import Tally
from . import tried
from .borrowed import borrowed_notes
from .wording import columns, title_of

# Up to so many cells are named in a sentence; more are counted.
FEW = 3
# Up to so many sets of missing seeds have a line of their own.
MOST = 8


def report_notes(cells: Sequence[Cell], decimals: int) -> list[str]:
    """Return what stands below a report, whichever way its cells are laid out."""
    return [
        *notes(cells),
        *_mark_notes(cells),
        *_unrounded(cells, decimals),
    ]


def interval_notes(cells: Sequence[Cell]) -> list[str]:
    """Return what the brackets behind gains are, if there are any."""
    if not any(cell.gain_interval for cell in cells):
        return []
    level = f"{100 * (1 - cells[0].marked.alpha):g} %"
    return [
        f"In brackets: {level} confidence interval of the gain, not corrected for their number."
    ]


def _mark_notes(cells: Sequence[Cell]) -> list[str]:
    """Return what the marks mean, those that occur."""
    marked = [cell.marked for cell in cells if cell.marked.like_best]
    if not marked:
        return []
    sizes = {one.m for one in marked}
    pairs = f"{max(sizes)} pair{'s' if max(sizes) > 1 else ''}"
    over = pairs if len(sizes) == 1 else "all pairs on its dataset"
    tops = [cell.marked for cell in cells if cell.marked.is_top]
    unmarked = "" if all(top.best for top in tops) else "the best mean on its dataset, or "
    return [
        f"† {unmarked}not significantly different from {'it' if unmarked else _BEST}, or not "
        f"testable (Welch, Holm-corrected over {over}, α = {marked[0].alpha:g})."
    ]


_BEST = "the best mean on its dataset"


def _unrounded(cells: Sequence[Cell], decimals: int) -> list[str]:
    """Say where a gain is not what the printed means give."""
    by_id = {cell.cell_id: cell for cell in cells}
    for cell in cells:
        baseline = by_id.get(cell.baseline or "")
        if cell.gain is None or cell.mean is None or baseline is None or baseline.mean is None:
            continue
        printed = round(cell.mean, decimals) - round(baseline.mean, decimals)
        if round(printed, decimals) != round(cell.gain, decimals):
            return ["Gains are computed from the unrounded means."]
    return []


_PRESETS = {"paper": "paper", "code": "published code"}


def notes(cells: Sequence[Cell]) -> list[str]:
    """Return what must be said beside the numbers."""
    cell = cells[0]
    epoch = sorted({epoch for cell in cells for epoch in cell.epochs})
    when = epochs.epoch_text(cell.select, epoch)
    sets = ", ".join(dict.fromkeys(cell.set for cell in cells))
    found = [
        f"{cell.metric} on {sets} at {when}; ± is the sample standard deviation over"
        " seeds (ddof 1)."
    ]
    presets = sorted({item for cell in cells for item in cell.fidelity.items()})
    if any(fidelity == "code" for _, fidelity in presets):
        found.append(
            "; ".join(f"{name} as in the {_PRESETS[fidelity]}" for name, fidelity in presets) + "."
        )
    found += _missing_notes(cells)
    if apart := sum(cell.apart for cell in cells):
        found.append(
            f"{apart} runs belong to a variance study (streams of randomness varied separately) "
            "and do not count as replicates. See: vtjobs variance"
        )
    resumed = sum(cell.resumed for cell in cells)
    if resumed:
        inexact = sum(cell.resumed_inexactly for cell in cells)
        how = "all bit for bit" if not inexact else f"{inexact} of them not bit for bit"
        found.append(f"{resumed} runs were interrupted and resumed, {how}.")
    by_id = {cell.cell_id: cell for cell in cells}
    mixed = any(
        cell.is_mixed_with(other)
        for cell in cells
        if cell.gain is not None and (other := by_id.get(cell.baseline or ""))
    )
    return [
        *found,
        *_cut_notes(sum(len(cell.cut_seeds) for cell in cells), "run"),
        *_imported_notes(sum(len(cell.imported_seeds) for cell in cells), "run", mixed=mixed),
    ]


def imported_text(count: int, what: str) -> str:
    """Return what is known of so many runs, or seeds, that were trained elsewhere."""
    were = "was" if count == 1 else "were"
    return (
        f"{plural(count, what)} {were} imported: trained elsewhere, and known only by the scores."
    )


def _imported_notes(count: int, what: str, *, mixed: bool) -> list[str]:
    """Say what is known of runs that were trained elsewhere.

    Args:
        count: of such runs, or of seeds.
        what: they are.
        mixed: whether the two sides of a gain have different shares of them.
    """
    if not count:
        return []
    found = [imported_text(count, what)]
    if mixed:
        found.append(
            "Some gains are between imported runs and runs that vtjobs trained: the two sides may"
            " differ in more than the head."
        )
    return found


def _cut_notes(count: int, what: str) -> list[str]:
    """Say what of a run depends on how its batches were cut.

    Args:
        count: of runs, or of seeds, that were cut.
        what: they are.
    """
    if not count:
        return []
    return [
        f"{plural(count, what)} {'was' if count == 1 else 'were'} cut into smaller micro-batches "
        "after running out of memory. The pairs of DRLoc are those of an uncut run; drop path, "
        "dropout, batch norm's statistics and a lab's own draws are not."
    ]


def _missing_notes(cells: Sequence[Cell]) -> list[str]:
    """Say which seeds are missing, once for all cells that lack the same ones."""
    lacking: dict[tuple[int, ...], list[Cell]] = {}
    never: list[Cell] = []
    for cell in cells:
        missing = sorted(set(cell.missing_seeds) - set(cell.unscored_seeds))
        # A head without a classifier has no top1.
        if missing == cell.missing_seeds and not cell.n and not cell.states:
            never += [cell] if missing else []
        elif missing:
            lacking.setdefault(tuple(missing), []).append(cell)
    most = sorted(lacking.items(), key=lambda item: -len(item[1]))
    names = columns(cells)
    found = [f"{_called(those, names)}: {_are_missing(seeds)}." for seeds, those in most[:MOST]]
    if never:
        score = f"{never[0].metric} on {never[0].set}"
        found.append(f"{_called(never, names)}: completed, without {score}.")
    found += _to_score([cell for cell in cells if cell.unscored_seeds], names)
    if rest := [cell for _, those in most[MOST:] for cell in those]:
        cells_have = "cell has" if len(rest) == 1 else "cells have"
        found.append(f"{len(rest)} more {cells_have} missing seeds.")
    return found


def _to_score(cells: Sequence[Cell], names: Sequence[str]) -> list[str]:
    """Say of completed runs what scores them."""
    if not cells:
        return []
    count = sum(len(cell.unscored_seeds) for cell in cells)
    score = f"{cells[0].metric} on {cells[0].set}"
    runs = f"{plural(count, 'completed run')} {'has' if count == 1 else 'have'}"
    them = f"scores {'it' if count == 1 else 'them'}"
    by = evaluation(cells[0].metric, cells[0].set)
    return [f"{_called(cells, names)}: {runs} no {score} yet; `{by}` {them}."]


def _called(cells: Sequence[Cell], names: Sequence[str]) -> str:
    """Name a few cells; count many."""
    if len(cells) > FEW:
        return f"{len(cells)} cells"
    return "; ".join(title_of(cell, names) for cell in cells)


def _are_missing(seeds: Sequence[int]) -> str:
    return f"{_named_seeds(seeds)} {_are(seeds)} missing"


def _are(seeds: Sequence[int]) -> str:
    return "are" if len(seeds) > 1 else "is"


def _named_seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {ranges(seeds)}"


_EFFECT = " g: Hedges' g, the difference in standard deviations."
_BESIDE = (
    " Fixed: the interval on these very datasets. Random: on datasets like these. τ: standard"
    " deviation of the true difference over datasets (REML). New: where it falls on one more."
)
_POOLED = {
    OverDatasets.EACH: "",
    OverDatasets.FIXED: " of the mean difference over these datasets, each with the same weight",
    OverDatasets.RANDOM: (
        " of the mean difference over datasets like these, which are a random factor, each with the"
        " same weight"
    ),
}


def comparison_notes(document: Comparisons) -> list[str]:
    """Return what was done, in the words of a caption."""
    one = (document.comparisons or document.pooled)[0]
    test = "Welch's t test" if document.test == "welch" else "t test paired by seed"
    if document.anytime:
        by_seed = " paired by seed" if document.test == "paired" else ""
        test = f"e-values of the t test{by_seed}"
    test += _POOLED[document.over_datasets]
    found = [
        f"{one.metric} on {one.set} at {epochs.epoch_text(document.select, ())}. "
        f"{test}, two-sided; p {_adjusted(document)}; α = {document.alpha:g}. "
        "Confidence intervals are not corrected." + (_EFFECT if document.comparisons else _BESIDE)
    ]
    if document.on_diverged == "chance":
        found.append(
            "In this comparison diverged runs count as chance level. No mean in a report includes"
            " them."
        )
    if document.looks:
        sizes = ", ".join(map(str, document.looks))
        found.append(
            f"Interim analyses at {sizes} seeds; α is divided among them 1 : 2 : 3 … A significant"
            " result is final."
        )
    if document.anytime:
        found.append(
            "p is the inverse of an e-value of the differences between the first, second, … seeds"
            " of the two sides. It is valid after any number of seeds and however often it is"
            " looked at. Confidence intervals are valid for a single analysis only."
        )
    if document.margin is not None:
        found.append(
            f"Tie: equivalent within ±{document.margin:g} (two one-sided tests, not corrected)."
        )
    every: list[Comparison | PooledComparison] = [*document.comparisons, *document.pooled]
    return [
        *found,
        *_tallied(document),
        *borrowed_notes(document.comparisons),
        *tried.of_comparisons(document.comparisons, document.pooled),
        *_without(document),
        *_unpaired(document),
        *_cut_notes(len({seed for one in every for seed in one.cut}), "seed"),
        *_imported_notes(
            len({seed for one in every for seed in one.imported}),
            "seed",
            mixed=any(one.is_mixed for one in every),
        ),
        *reversals.reversal_notes(document.reversals),
        *declaration_notes(document.declared, document.exploratory),
    ]


def _tallied(document: Comparisons) -> list[str]:
    """Say in how many of its comparisons each head is better. A screen has no significant ones."""
    screened = document.family == "screen"
    known = [one for one in document.tallies if one.comparisons]
    found = [_tally(one, screened=screened) for one in known[:MOST]]
    rest = len(known) - MOST
    return found + ([f"{rest} more pairs of heads have several comparisons."] if rest > 0 else [])


def _tally(one: Tally, *, screened: bool) -> str:
    better, worse = (
        "" if screened else f" ({number} significant)"
        for number in (one.significantly_better, one.significantly_worse)
    )
    over = f"{plural(one.backbones, 'backbone')} and {plural(one.datasets, 'dataset')}"
    waits = f"; {one.without_difference} have no difference yet" if one.without_difference else ""
    return (
        f"{one.head} is better than {one.baseline_head} in {one.better} of {one.comparisons}"
        f" comparisons{better} and worse in {one.worse}{worse}, over {over}{waits}. This is a count"
        " and no test."
    )


def _without(document: Comparisons) -> list[str]:
    """Name the seeds that failed, and those that were cancelled and are waited for."""
    names = columns(document.comparisons) if document.comparisons else []
    found = []
    for one in document.comparisons:
        said = (
            [f"{_named_seeds(one.lost)} failed and {_are(one.lost)} left out"] if one.lost else []
        )
        waits = bool(document.declared) or document.anytime
        if one.unscored:
            said.append(_unscored(one, one.unscored, waits=waits))
        if one.cancelled:
            seeds = one.cancelled
            what = "cancelled, and waited for" if waits else "cancelled"
            said.append(f"{_named_seeds(seeds)} {_are(seeds)} {what}")
        found += [f"{title_of(one, names)}: {'; '.join(said)}."] if said else []
    found += [
        f"{on.dataset}, {one.head}: {_unscored(one, on.unscored, waits=bool(document.declared))}."
        for one in document.pooled
        for on in one.datasets
        if on.unscored
    ]
    rest = len(found) - MOST
    return found[:MOST] + ([f"{rest} more comparisons lack seeds."] if rest > 0 else [])


def _unscored(one: Comparison | PooledComparison, seeds: Sequence[int], *, waits: bool) -> str:
    """Say which seeds lack a score that an evaluation gives, and what gives it."""
    what = "waited for" if waits else "left out"
    by = evaluation(one.metric, one.set)
    return f"{_named_seeds(seeds)} {_are(seeds)} not scored yet (by `{by}`), and {what}"


def _unpaired(document: Comparisons) -> list[str]:
    """Name the seeds that paired tests leave out, once for all comparisons that lack the same."""
    lacking: dict[tuple[int, ...], list[str]] = {}
    names = columns(document.comparisons)
    for one in document.comparisons:
        if one.unpaired:
            lacking.setdefault(tuple(one.unpaired), []).append(title_of(one, names))
    return [
        f"{'; '.join(those) if len(those) <= FEW else f'{len(those)} comparisons'}: "
        f"{_named_seeds(seeds)} {_are(seeds)} on one side alone and left out;"
        " the difference is not that of the means in the report."
        for seeds, those in lacking.items()
    ]


def _adjusted(document: Comparisons) -> str:
    found: Sequence[Comparison | PooledComparison] = document.comparisons or document.pooled
    m = len(found)
    if document.family == "screen":
        return (
            f"Benjamini-Hochberg-corrected over m={m}, a screen for candidates to confirm with new"
            " seeds"
        )
    how = "Holm-corrected"
    if document.correction is Correction.DUNNETT:
        how = "corrected by step-down Dunnett tests with Welch's t"
    sizes = sorted({one.m for one in found})
    if document.family == "dataset" and document.comparisons:
        more = f" (over all {m} the family-wise error rate may exceed α)" if m > sizes[-1] else ""
        return f"{how} per dataset over m={', '.join(map(str, sizes))}{more}"
    return f"{how} over m={sizes[-1]}"
