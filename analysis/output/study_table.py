"""A study of streams as a table: a line per stream, always with its interval."""

from ..findings.study import AnyStudy, design_of
from ..stats.components import Arm, Arms, Components, Part
from .layout import Table
from .wording import Labelled, as_range, columns, labels, p_value


def of_study(cell: Labelled, study: AnyStudy) -> Table:
    """Return what one cell's study says of where the spread comes from."""
    names = columns([cell])
    mine = labels(cell, names)
    if study.parts is None:
        heading, body = ["runs"], [[f"{study.n}/{study.planned}"]]
        said = [f"{study.why_not}. Missing: {_missing(study)}."]
    elif isinstance(study.parts, Arms):
        heading, body, said = _of_arms(study.parts)
    else:
        heading, body, said = _of_components(study.parts)
    if study.parts is not None and study.missing:
        without = "; ".join(
            f"{name} {', '.join(map(str, values))}" for name, values in study.left_out.items()
        )
        rest = f", without {without}" if without else ""
        said.insert(
            0, f"Only a complete part of the design was analysed{rest}. Missing: {_missing(study)}."
        )
    notes = [_headline(study), *said, *_wiring(study)]
    return Table(
        heading=[*names, *heading],
        body=[[*mine, *line] for line in body],
        notes=notes,
        labels=len(names) + 1,
    )


def _missing(study: AnyStudy) -> str:
    return "; ".join(study.missing[:12]) + ("; …" if len(study.missing) > 12 else "")


def _headline(study: AnyStudy) -> str:
    used = "" if study.used == study.n else f"{study.used} of "
    riders = (
        f"; {', '.join(study.ride)} new in each combination, so counted with the interactions"
        if study.ride
        else ""
    )
    vary = ", ".join(f"{stream} ({count})" for stream, count in study.vary.items())
    return (
        f"{study.metric} at the last epoch of {used}{study.n} runs, {design_of(study)}:"
        f" {vary}{riders}."
    )


def _of_components(parts: Components) -> tuple[list[str], list[list[str]], list[str]]:
    level = f"{100 * parts.level:g}% CI"
    heading = ["stream", "p", "variance", "own share", level, "with interactions", level]
    body = [
        [
            one.stream,
            p_value(one.p),
            *_own(one),
            _share(one.total_share),
            _shares(one.total_share_interval),
        ]
        for one in parts.streams
    ]
    body += [[name, "", *_own(one), "", ""] for name, one in others(parts)]
    notes = [
        (
            "Variance components of random factors (ANOVA), with generalised confidence intervals"
            " for the shares. A wide interval means that the share is poorly determined: few values"
            " give few degrees of freedom."
        ),
    ]
    if len(parts.terms) > 1:
        notes.append(
            "With interactions: the stream's own share plus all its interactions (total effect). "
            "p is a generalised p value from the same simulation."
        )
    else:
        notes.append(
            "With interactions: upper bound of the stream's own share plus its interactions. These"
            " shares overlap."
        )
    if any(one.variance < 0 for one in (*parts.streams, *parts.terms)):
        notes.append(
            "A negative variance is an estimate of a variance close to 0. It counts as 0 in the"
            " shares."
        )
    return heading, body, notes


def _own(part: Part) -> list[str]:
    return [_number(part.variance), _share(part.share), _shares(part.share_interval)]


def others(parts: Components) -> list[tuple[str, Part]]:
    """Return what is no stream's own, by name.

    Each interaction where they can be separated, and the hardware.
    """
    found: list[tuple[str, Part]] = []
    for term in parts.terms:
        name = " × ".join(term.streams) if len(parts.terms) > 1 else "interactions"
        is_last = term is parts.terms[-1]
        found.append((name + (" and hardware" if is_last and not parts.hardware else ""), term))
    return found + ([("hardware", parts.hardware)] if parts.hardware is not None else [])


def arms_of(parts: Arms) -> list[Arm]:
    """Return every arm: of each stream, of all together, and of none."""
    return [*parts.streams, *(arm for arm in (parts.all, parts.repeat) if arm is not None)]


def _of_arms(parts: Arms) -> tuple[list[str], list[list[str]], list[str]]:
    level = f"{100 * parts.level:g}% CI"
    heading = ["stream", "n", "std", level, "variance / all", level]
    body = [
        [
            arm.stream,
            str(arm.n),
            f"{arm.std:.2f}",
            as_range(arm.std_interval),
            "" if arm.ratio is None else f"{arm.ratio:.2f}",
            as_range(arm.ratio_interval),
        ]
        for arm in arms_of(parts)
    ]
    said = (
        "Each stream varied alone from one base point, then all together. With interactions, the "
        "variances of the single streams add up to more than that of all together."
    )
    return heading, body, [said]


def _wiring(study: AnyStudy) -> list[str]:
    """Say where values and what they decided do not go together."""
    found = []
    for one in study.wiring:
        if one.wired is False:
            found.append(
                f"WARNING: {one.stream} has {one.values} value(s) and {one.fingerprints}"
                " fingerprint(s) in these runs. Each value should have one fingerprint of its own."
            )
        elif one.wired is None and one.stream in study.vary and one.values:
            found.append(f"{one.stream} has no effect in these runs; its share is noise.")
    return found


def _number(value: float) -> str:
    return f"{value:.4g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _shares(bounds: tuple[float, float] | None) -> str:
    return "" if bounds is None else f"{100 * bounds[0]:.0f} … {100 * bounds[1]:.0f} %"
