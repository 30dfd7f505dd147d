"""What a study asks of its finished runs on the command line.

Variance, published numbers, how many more seeds.
"""

import json
import os
from collections.abc import Iterator
from math import sqrt
from pathlib import Path
from statistics import fmean

import pytest
from scipy.stats import t

from .conftest import finished
from .support.cli import Cli
from .support.grids import tiny_grid

pytestmark = pytest.mark.training

GRID = tiny_grid(heads="[supervised, relvit]", seeds="3", epochs=2)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Cli]:
    """A workspace with one finished grid."""
    yield from finished(tmp_path_factory.mktemp("study"), cache, GRID)


def test_variance_splits_the_spread_into_what_carries_and_what_the_test_set_makes(
    study: Cli,
) -> None:
    cells = study.json("report", "tiny")
    parts = study.json("variance", "tiny")
    assert [part["std"] for part in parts] == pytest.approx([cell["std"] for cell in cells])
    for part in parts:
        assert part["n"] == 3 and part["images"] == 898
        whole = part["std_carries"] ** 2 + part["std_test_set"] ** 2
        assert whole == pytest.approx(part["std"] ** 2) or part["std_carries"] == 0
        assert f"{part['std_test_set']:.2f}" in study.ok("variance", "tiny")
    assert r"\toprule" in study.ok("variance", "tiny", "--format", "latex")
    lines = study.ok("variance", "tiny", "--format", "csv").splitlines()
    assert len(lines) == 3 and lines[0].startswith(
        "backbone,dataset,head,of,stream,n,std,std_carries"
    )


def test_published_numbers_of_other_cells_are_not_compared_and_say_why(study: Cli) -> None:
    done = study("against", "drloc:4", "tiny")
    assert done.returncode == 0 and "not comparable: no matching cell among ours" in done.stdout
    rows = study.json("against", "drloc:4", "tiny")["rows"]
    assert {row["word"] for row in rows} == {"not comparable"}
    assert len(study.ok("against", "drloc:4", "tiny", "--format", "csv").splitlines()) == 1 + len(
        rows
    )
    assert study("against", "drloc:99", "tiny").returncode == 3
    assert study("against", "drlok:4", "tiny").returncode == 2


def test_a_goal_must_be_one(study: Cli) -> None:
    for words in ([], ["--half-width", "1", "--effect", "1"], ["--half-width", "0"]):
        assert study("power", "tiny", *words).returncode == 2
        assert study("topup", "grid.yaml", *words).returncode == 2


def test_topup_submits_just_the_seeds_that_power_finds_missing(study: Cli) -> None:
    stds = [cell["std"] for cell in study.json("report", "tiny")]
    # By Stein's rule, for which the wider of the two needs a fourth seed.
    half_width = str(t.ppf(0.975, 2) * max(stds) / sqrt(3.5))
    needs = study.json("power", "tiny", "--half-width", half_width)["cells"]
    assert sorted(need["more"] for need in needs)[-1] == 1
    more = sum(need["more"] for need in needs)
    planned = study("topup", "grid.yaml", "--half-width", half_width, "--dry-run")
    assert planned.returncode == 0 and f"{more} new" in planned.stderr + planned.stdout
    assert len(study.json("runs", "tiny")) == 6
    checked = study("power", "tiny", "--half-width", half_width, "--check")
    assert (
        checked.returncode == 8 and "Submit them: vtjobs topup tiny --half-width" in checked.stderr
    )
    # By its name the grid's text is that of the workspace.
    done = study("topup", "tiny", "--half-width", half_width, "--wait")
    assert done.returncode == 0, done.stderr
    for source in ("tiny", "grid.yaml"):
        again = study("topup", source, "--half-width", "1000", "--dry-run")
        assert again.returncode == 0 and "0 new" in again.stdout + again.stderr, again
    found = {cell["head"]: cell["n"] for cell in study.json("report", "tiny")}
    assert found == {need["head"]: 3 + need["more"] for need in needs}
    assert json.loads(study.ok("status", "--json"))["runs"]["completed"] == 6 + more


APART = GRID.replace("name: tiny", "name: apart").replace(
    "heads: [supervised, relvit]", "heads: [supervised]"
)
APART = APART.replace(
    "seeds: 3", "variance: {design: crossed, vary: {init: 2, order: 2}, ride: [augment]}"
)


def test_a_study_of_streams_says_which_of_them_the_spread_comes_from(study: Cli) -> None:
    study.write("apart.yaml", APART)
    study.ok("submit", "apart.yaml", "--wait")
    (cell,) = study.json("variance", "apart")
    (found,) = cell["studies"]
    assert (found["n"], found["planned"], found["design"]) == (4, 4, "crossed")
    wired = {one["stream"]: (one["values"], one["fingerprints"]) for one in found["wiring"]}
    assert (wired["init"], wired["order"], wired["augment"], wired["mix"]) == (
        (2, 2),
        (2, 2),
        (4, 4),
        (1, 0),
    )
    shares = [one["share"] for one in (*found["parts"]["streams"], found["parts"]["interactions"])]
    assert sum(shares) == pytest.approx(1)
    shown = study("variance", "apart")
    assert (
        "interactions and hardware" in shown.stdout
        and "crossed: init (2), order (2)" in shown.stderr
    )
    labels = {run["run_id"]: run["streams"] for run in study.json("runs", "apart")}
    assert sum(streams is None for streams in labels.values()) == 1, (
        "where all streams are 0 it is seed 0"
    )
    assert "init 1, order 1" in study("runs", "apart").stdout


def test_a_report_takes_no_mean_over_runs_whose_streams_vary_apart(study: Cli) -> None:
    study.write("apart.yaml", APART)
    study.ok("submit", "apart.yaml", "--wait")
    (cell,) = study.json("report", "apart")
    assert (cell["n"], cell["std"], cell["apart"]) == (1, None, 3)
    assert "3 runs belong to a variance study" in study("report", "apart").stderr
    together = study.json("report", "head=supervised")
    assert sum(cell["apart"] for cell in together) == 3
    assert all(cell["n"] == cell["planned"] == len(cell["values"]) for cell in together)


def test_a_study_of_streams_is_not_topped_up(study: Cli) -> None:
    study.write("apart.yaml", APART)
    refused = study("topup", "apart.yaml", "--half-width", "1")
    assert refused.returncode == 2
    assert "the design of `variance` sets the number of runs per cell" in refused.stderr


def test_a_report_is_written_as_one_page_with_figures_and_data_beside_it(study: Cli) -> None:
    out = study.folder / "out" / "page"
    done = study("report", "tiny", "--html", str(out))
    assert (
        done.returncode == 0 and f"{out}/report.html written" in done.stderr and done.stdout == ""
    )
    text = (out / "report.html").read_text()
    assert text.count("<svg") == len(list((out / "figures").glob("*.svg"))) >= 5
    assert "vit_small_patch16_224" in text and "relvit" in text and "n=3" in text
    assert "http" not in text.replace("http://www.w3.org", "").replace(
        "http://purl.org", ""
    ).replace("http://creativecommons.org", "")
    document = json.loads((out / "report.json").read_text())
    assert document["schema_version"] == 1 and len(document["cells"]) == 2
    before = {path.name: path.read_bytes() for path in (out / "figures").iterdir()}
    assert study.json("report", "tiny", "--html", str(out))["page"] == str(out / "report.html")
    assert {path.name: path.read_bytes() for path in (out / "figures").iterdir()} == before


def test_a_report_can_be_read_by_those_whom_the_users_umask_allows(study: Cli) -> None:
    out = study.folder / "shared"
    mask = os.umask(0o027)
    try:
        done = study.process("report", "tiny", "--html", str(out))
    finally:
        os.umask(mask)
    assert done.returncode == 0, done.stderr
    modes = {path.stat().st_mode & 0o777 for path in (out, *out.rglob("*"))}
    assert modes == {0o750, 0o640}


def test_a_page_goes_into_a_folder(study: Cli) -> None:
    study.write("taken", "")
    refused = study("report", "tiny", "--html", "taken")
    assert refused.returncode == 2 and "--html taken is a file" in refused.stderr


def test_e_values_hold_however_often_one_looks(study: Cli) -> None:
    (plain,), (anytime,) = (
        study.json("compare", "tiny", *words)["comparisons"] for words in ((), ("--anytime",))
    )
    assert (
        anytime["p"] == pytest.approx(min(1, 1 / anytime["e_value"])) and plain["p"] != anytime["p"]
    )
    assert plain["ranks"]["pairs"] == plain["n"] * plain["n_baseline"] and plain["ranks"]["p"] <= 1
    assert "however often it is looked at" in study("compare", "tiny", "--anytime").stderr


def test_two_checkpoints_are_compared_on_the_same_images(study: Cli) -> None:
    first, other = study("runs", "tiny", "seed=0", "--quiet").stdout.split()
    found = study.json("mcnemar", first[:10], other)
    assert (
        found["images"]
        == found["both"] + found["only_first"] + found["only_second"] + found["neither"]
        == 898
    )
    scores = {run["run_id"]: run["top1"] for run in study.json("runs", "tiny")}
    assert found["difference"] == pytest.approx(scores[first] - scores[other])
    assert "not two methods" in study("mcnemar", first, other).stderr
    missing = study("mcnemar", first, other, "--set", "val")
    assert missing.returncode == 3 and "has no per-image results on val" in missing.stderr


def test_methods_and_seeds_are_told_by_how_often_they_choose_another_class(study: Cli) -> None:
    (table,) = study.json("disagreement", "tiny")["tables"]
    assert [one["head"] for one in table["classifiers"]] == ["supervised", "relvit"]
    (own, between), (again, other) = table["rates"]
    assert between == again and min(own, between, other) > 0
    scores = {run["run_id"]: run["top1"] for run in study.json("runs", "tiny")}
    for one in table["classifiers"]:
        mean = fmean(scores[run_id] for run_id in one["run_ids"])
        assert one["error"] == pytest.approx(100 - mean)
    assert "choose different classes" in study("disagreement", "tiny", "--runs").stderr
    runs = sum(len(one["run_ids"]) for one in table["classifiers"])
    lines = study.ok("disagreement", "tiny", "--runs", "--format", "csv").splitlines()
    assert len(lines) == 1 + runs**2
    missing = study("disagreement", "tiny", "--set", "val")
    assert missing.returncode == 3 and "no selected run has stored predictions" in missing.stderr


def test_images_that_every_seed_holds_out_anew_are_not_compared(study: Cli) -> None:
    held = GRID.replace("name: tiny", "name: held").replace(
        "heads: [supervised, relvit]", "heads: [supervised]"
    )
    study.write("held.yaml", held + "data: {val: 0.1}\n")
    study.ok("submit", "held.yaml", "--wait")
    first, other, _ = study("runs", "held", "--quiet").stdout.split()
    refused = study("mcnemar", first, other, "--set", "val")
    assert refused.returncode == 2 and "val has different images in the two runs" in refused.stderr
    apart = study("disagreement", "held", "--set", "val")
    assert apart.returncode == 3 and "seeds have no images in common; see --runs" in apart.stderr
    tables = study.json("disagreement", "held", "--set", "val", "--runs")["tables"]
    assert [len(table["classifiers"]) for table in tables] == [1, 1, 1]
    (cell,) = study.json("variance", "held", "--set", "val")
    assert (
        cell["why_not"] == "each seed holds out different images" and cell["disagreement"] is None
    )


def test_cells_that_differ_in_a_setting_alone_are_told_apart(study: Cli) -> None:
    longer = (
        GRID.replace("name: tiny", "name: longer")
        .replace("epochs: 2", "epochs: 3")
        .replace("seeds: 3", "seeds: 1")
    )
    study.write("longer.yaml", longer)
    study.ok("submit", "longer.yaml", "--wait")
    cells = study.json("report", "tiny", "longer")
    assert len(cells) == 4 and all(cell["axes"]["cell"] == cell["cell_id"][:8] for cell in cells)
    assert all("cell" not in cell["axes"] for cell in study.json("report", "tiny"))


def test_a_tie_cannot_be_looked_for_at_any_time(study: Cli) -> None:
    refused = study("compare", "tiny", "--anytime", "--margin", "1")
    assert refused.returncode == 2 and "ties are tested only once" in refused.stderr


def test_power_and_topup_go_from_look_to_look_until_all_is_decided_or_looked_at(study: Cli) -> None:
    # A difference between the two that no three seeds can show.
    declared = GRID.replace("name: tiny", "name: looked") + "compare: {looks: [3, 4]}\n"
    study.write("looked.yaml", declared)
    study.ok("submit", "looked.yaml", "--wait")
    (one,) = study.json("compare", "looked")["comparisons"]
    needs = study.json("power", "looked")
    wanted = 4 if one["next_look"] else None
    assert one["look"] == 3 and [cell["needed"] for cell in needs["cells"]] == [wanted, wanted]
    assert (needs["looks"], needs["effect"], needs["half_width"]) == ([3, 4], None, None)
    codes = []
    while (code := study("power", "looked", "--check", "--json").returncode) == 8 and len(
        codes
    ) < 3:
        codes.append(code)
        assert study("topup", "looked", "--wait").returncode == 0
    assert code == 0 and len(codes) == (wanted is not None)
    (last,) = study.json("compare", "looked")["comparisons"]
    assert last["look"] == (wanted or 3) and last["next_look"] is None and last["m"] == 1


def test_a_stored_grid_goes_on_as_it_was_submitted_last_and_of_one_seed_nothing_is_known(
    study: Cli,
) -> None:
    again = GRID.replace("name: tiny", "name: again").replace(
        "[supervised, relvit]", "[supervised]"
    )
    again = again.replace("seeds: 3", "seeds: 1")
    study.write("again.yaml", again)
    study.ok("submit", "again.yaml", "--wait", "--backend", "local")
    study.write("again.yaml", again + "compare: {min_effect: 1.0}\nretries: 1\n")
    study.ok("submit", "again.yaml")
    done = study("topup", "again", "--half-width", "1000", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["new"] == 0, done.stderr
    found = study("power", "again", "--half-width", "1", "--check")
    assert found.returncode == 1 and "needs two finished seeds first" in found.stdout


def test_tables_have_the_columns_the_decimals_and_the_pairs_that_are_asked_for(study: Cli) -> None:
    assert study.ok("report", "tiny", "--wide").splitlines()[0].split() == [
        "backbone",
        "head",
        "digits",
    ]
    cell, *_ = study.json("report", "tiny")
    assert f"{cell['mean']:.1f} ± {cell['std']:.1f}" in study.ok(
        "report", "tiny", "--wide", "--decimals", "1"
    )
    assert f"{cell['mean']:.3f} ± {cell['std']:.3f}" in study.ok(
        "report", "tiny", "--detail", "--decimals", "3"
    )
    (pair,) = study.json("compare", "tiny", "--baseline", "each")["comparisons"]
    assert (pair["head"], pair["baseline_head"]) == ("relvit", "supervised")
    assert "gain" not in study.ok("report", "tiny", "--baseline", "each")
    for words in (
        ["--wide", "--detail"],
        ["--wide", "-f", "csv"],
        ["--select", "best_val"],
        ["--select", "ema_last"],
    ):
        assert study("report", "tiny", *words).returncode == 2


def test_another_head_can_be_what_the_others_are_compared_with(study: Cli) -> None:
    (one,) = study.json("compare", "tiny", "--baseline", "relvit")["comparisons"]
    (usual,) = study.json("compare", "tiny")["comparisons"]
    assert (one["head"], one["baseline_head"]) == ("supervised", "relvit")
    assert one["difference"] == pytest.approx(-usual["difference"])
    assert "gain over relvit" in study("report", "tiny", "--baseline", "relvit").stdout
    refused = study("compare", "tiny", "--baseline", "relvitt")
    assert refused.returncode == 2 and "Did you mean 'relvit'?" in refused.stderr
    study.write("bad.yaml", GRID + "compare: {baseline: drloc}\n")
    wrong = study("plan", "bad.yaml")
    assert (
        wrong.returncode == 2 and "compare.baseline: no head 'drloc' in this grid" in wrong.stderr
    )
