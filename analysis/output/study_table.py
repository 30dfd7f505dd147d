"""A study of streams as a table: a line per stream, always with its interval."""

from typing import Any

from ...jobs.grid.design import REPEAT, Design
from .layout import Table
from .wording import Labelled, as_range, columns, labels, p_value


def of_study(cell: Labelled, study: dict[str, Any]) -> Table:
    """Return what one cell's study says of where the spread comes from."""
    names = columns([cell])
    mine = labels(cell, names)
    parts = study["parts"]
    if parts is None:
        heading, body, said = ["runs"], [[f"{study['n']}/{study['planned']}"]], []
        said = [f"{study['why_not']}. Missing: {_missing(study)}."]
    elif study["design"] == Design.ONE_AT_A_TIME:
        heading, body, said = _of_arms(parts)
    else:
        heading, body, said = _of_components(parts)
    if parts is not None and study["missing"]:
        without = "; ".join(
            f"{name} {', '.join(map(str, values))}" for name, values in study["left_out"].items()
        )
        rest = f", without {without}" if without else ""
        said.insert(
            0, f"Only a complete part of the design was analysed{rest}. Missing: {_missing(study)}."
        )
    notes = [_told(study), *said, *_wiring(study)]
    return Table(
        heading=[*names, *heading],
        body=[[*mine, *line] for line in body],
        notes=notes,
        labels=len(names) + 1,
    )


def _missing(study: dict[str, Any]) -> str:
    return "; ".join(study["missing"][:12]) + ("; …" if len(study["missing"]) > 12 else "")


def _told(study: dict[str, Any]) -> str:
    used = "" if study["used"] == study["n"] else f"{study['used']} of "
    riders = (
        f"; {', '.join(study['ride'])} new in each combination, so counted with the interactions"
        if study["ride"]
        else ""
    )
    vary = ", ".join(f"{stream} ({count})" for stream, count in study["vary"].items())
    return (
        f"{study['metric']} at the last epoch of {used}{study['n']} runs, {study['design']}:"
        f" {vary}{riders}."
    )


def _of_components(parts: dict[str, Any]) -> tuple[list[str], list[list[str]], list[str]]:
    level = f"{100 * parts['level']:g}% CI"
    heading = ["stream", "p", "variance", "own share", level, "with interactions", level]
    body = [
        [
            one["stream"],
            p_value(one["p"]),
            _number(one["variance"]),
            _share(one["share"]),
            _shares(one["share_interval"]),
            _share(one["total_share"]),
            _shares(one["total_share_interval"]),
        ]
        for one in parts["streams"]
    ]
    for name, one in others(parts):
        if one is not None:
            shown = [
                _number(one["variance"]),
                _share(one["share"]),
                _shares(one["share_interval"]),
                "",
                "",
            ]
            body.append([name, "", *shown])
    notes = [
        (
            "Variance components of random factors (ANOVA), with generalised confidence intervals"
            " for the shares. A wide interval means that the share is poorly determined: few values"
            " give few degrees of freedom."
        ),
    ]
    if len(parts["terms"]) > 1:
        notes.append(
            "With interactions: the stream's own share plus all its interactions (total effect). "
            "p is a generalised p value from the same simulation."
        )
    else:
        notes.append(
            "With interactions: upper bound of the stream's own share plus its interactions. These"
            " shares overlap."
        )
    if any(one["variance"] < 0 for one in (*parts["streams"], *parts["terms"])):
        notes.append(
            "A negative variance is an estimate of a variance close to 0. It counts as 0 in the"
            " shares."
        )
    return heading, body, notes


def others(parts: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return what is no stream's own, by name.

    Each interaction where they can be told apart, and the hardware.
    """
    *_, last = parts["terms"]
    found = []
    for one in parts["terms"]:
        name = " × ".join(one["streams"]) if len(parts["terms"]) > 1 else "interactions"
        found.append(
            (name + (" and hardware" if one is last and parts["hardware"] is None else ""), one)
        )
    return found + ([("hardware", parts["hardware"])] if parts["hardware"] is not None else [])


def _of_arms(parts: dict[str, Any]) -> tuple[list[str], list[list[str]], list[str]]:
    level = f"{100 * parts['level']:g}% CI"
    heading = ["stream", "n", "std", level, "variance / all", level]
    arms = [
        *parts["streams"],
        *(parts[name] for name in ("all", REPEAT) if parts[name] is not None),
    ]
    body = [
        [
            one["stream"],
            str(one["n"]),
            f"{one['std']:.2f}",
            as_range(one["std_interval"]),
            "" if one["ratio"] is None else f"{one['ratio']:.2f}",
            as_range(one["ratio_interval"]),
        ]
        for one in arms
    ]
    said = (
        "Each stream varied alone from one base point, then all together. With interactions, the "
        "variances of the single streams add up to more than that of all together."
    )
    return heading, body, [said]


def _wiring(study: dict[str, Any]) -> list[str]:
    """Say where values and what they decided do not go together."""
    found = []
    for one in study["wiring"]:
        if one["wired"] is False:
            values, prints = one["values"], one["fingerprints"]
            found.append(
                f"WARNING: {one['stream']} has {values} value(s) and {prints} fingerprint(s) in "
                "these runs. Each value should have one fingerprint of its own."
            )
        elif one["wired"] is None and one["stream"] in study["vary"] and one["values"]:
            found.append(f"{one['stream']} has no effect in these runs; its share is noise.")
    return found


def _number(value: float) -> str:
    return f"{value:.4g}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _shares(bounds: list[float] | None) -> str:
    return "" if bounds is None else f"{100 * bounds[0]:.0f} … {100 * bounds[1]:.0f} %"
