"""A lab's own backbone and dataset: found, read and checked without being run."""

import json
from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import resolve_dataset
from vtjobs.jobs.grid.expansion import Expansion
from vtjobs.jobs.grid.image_folder import describe_files
from vtjobs.jobs.grid.load import take_in
from vtjobs.jobs.grid.own_source import is_own
from vtjobs.jobs.workspace.stored_grid import SOURCES

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
BACKBONE = '"tiny_net.py:tiny_net"'
DATASET = '{"spots.py:Spots": {classes: 4, train: 200, test: 100}}'
GRID = """\
name: own
backbones: [{backbone}]
datasets: [{dataset}]
heads: [supervised]
seeds: 1
recipe: quickstart
{more}
"""


def _expand(
    folder: Path, *, backbone: str = BACKBONE, dataset: str = DATASET, more: str = ""
) -> Expansion:
    for name in ("tiny_net.py", "spots.py"):
        if not (folder / name).exists():
            (folder / name).write_text((EXAMPLES / name).read_text())
    path = folder / "grid.yaml"
    text = GRID.replace("{backbone}", backbone).replace("{dataset}", dataset)
    path.write_text(text.replace("{more}", more))
    return take_in(str(path)).expansion


def _run(found: Expansion) -> str:
    return found.runs[0].run_id


def test_sources_arguments_and_sizes_are_what_a_run_is_made_of(tmp_path: Path) -> None:
    (cell,) = _expand(
        tmp_path,
        backbone='{"tiny_net.py:tiny_net": {width: 32}}',
        dataset='{"spots.py:Spots": {classes: 4, train: 200, test: 100, side: 12}}',
    ).cells
    assert cell.labels["backbone"] == "tiny_net" and cell.labels["dataset"] == "Spots"
    settings = cell.spec.settings
    assert settings.backbone.source == (EXAMPLES / "tiny_net.py").read_text()
    assert (settings.backbone.model, settings.backbone.args) == ("tiny_net", {"width": 32})
    assert settings.dataset.source == (EXAMPLES / "spots.py").read_text()
    assert (settings.dataset.classes, settings.dataset.train) == (4, 200)
    assert settings.dataset.args == {"side": 12}


@pytest.mark.parametrize("name", ["tiny_net.py", "spots.py"])
def test_another_source_is_another_run(tmp_path: Path, name: str) -> None:
    before = _run(_expand(tmp_path))
    assert before == _run(_expand(tmp_path))
    (tmp_path / name).write_text((EXAMPLES / name).read_text() + "# changed\n")
    assert _run(_expand(tmp_path)) != before


def test_their_arguments_may_be_varied_by_the_name_behind_the_colon(tmp_path: Path) -> None:
    found = _expand(tmp_path, more="axes: {backbone.tiny_net.width: [16, 32]}")
    assert [cell.spec.settings.backbone.args for cell in found.cells] == [
        {"width": 16},
        {"width": 32},
    ]


def test_files_that_change_make_new_runs(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.bin").write_bytes(b"1")
    dataset = f'{{"spots.py:Spots": {{classes: 4, train: 200, test: 100, path: {files}}}}}'
    first = _expand(tmp_path, dataset=dataset)
    fingerprint = first.cells[0].spec.settings.dataset.fingerprint
    assert first.paths == {fingerprint: str(files)}
    (files / "a.bin").write_bytes(b"22")
    assert _run(_expand(tmp_path, dataset=dataset)) != _run(first)


def test_nothing_in_the_files_is_run(tmp_path: Path) -> None:
    for name in ("tiny_net.py", "spots.py"):
        (tmp_path / name).write_text("raise SystemExit\n" + (EXAMPLES / name).read_text())
    assert len(_expand(tmp_path).runs) == 1


@pytest.mark.parametrize(
    ("backbone", "says"),
    [
        ('"nowhere.py:net"', "nowhere.py: no such file"),
        ('"tiny_net.py:tiny"', "no class or function 'tiny'. Did you mean 'tiny_net'?"),
        ('{"tiny_net.py:tiny_net": {widht: 3}}', "unknown key 'widht'. Did you mean 'width'?"),
        ('{"tiny_net.py:tiny_net": {num_classes: 3}}', "num_classes is set by vtjobs"),
        ('{"tiny_net.py:tiny_net": {width: .nan}}', "arguments must be finite numbers"),
        ('{"tiny_net.py:tiny_net": {weights: nowhere.pth}}', "no such file"),
        ('"tiny_net.py:TinyNet"', "it requires width"),
        ('"mine.py:resnet18"', "resnet18 is the name of a backbone of timm or vtjobs"),
        ('"mine.py:net"', "it must take num_classes"),
        ('"hf-hub:timm/x"', "remote and local-dir model sources are not allowed"),
    ],
)
def test_what_can_be_no_backbone_is_told_with_the_place_in_the_grid(
    tmp_path: Path, backbone: str, says: str
) -> None:
    (tmp_path / "mine.py").write_text("def net(): pass\ndef resnet18(num_classes): pass\n")
    with pytest.raises(BadInput) as caught:
        _expand(tmp_path, backbone=backbone)
    (problem,) = caught.value.problems
    assert says in str(problem) and problem.line == 2


SIZES = "classes: 4, train: 200, test: 100"


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        (f'{{"nowhere.py:Data": {{{SIZES}}}}}', "nowhere.py: no such file"),
        ('"spots.py:Spots"', "classes: is required"),
        (f'{{"spots.py:Spots": {{{SIZES}, sied: 3}}}}', "unknown key 'sied'. Did you mean 'side'?"),
        ('{"spots.py:Spots": {classes: 1, train: 9, test: 9}}', "greater than or equal to 2"),
        (f'{{"spots.py:Spots": {{{SIZES}, mean: [1]}}}}', "expected 3 numbers"),
        (f'{{"spots.py:Spots": {{{SIZES}, path: nowhere}}}}', "nowhere: no such file or folder"),
        (f'{{"mine.py:cifar10": {{{SIZES}}}}}', "cifar10 is the name of a dataset of vtjobs"),
        (f'{{"mine.py:short": {{{SIZES}}}}}', "short must take 2 arguments by place"),
        (f'{{"mine.py:long": {{{SIZES}}}}}', "it requires more"),
        (f'{{"mine.py:taken": {{{SIZES}}}}}', "classes is a key of vtjobs"),
        (f'{{"~nobody-here/x.py:Data": {{{SIZES}}}}}', "no such file"),
    ],
)
def test_what_can_be_no_dataset_is_told_with_the_place_in_the_grid(
    tmp_path: Path, dataset: str, says: str
) -> None:
    (tmp_path / "mine.py").write_text(
        "def cifar10(root, split): pass\ndef short(root): pass\ndef long(root, split, more): pass\n"
        "def taken(root, split, classes): pass\n"
    )
    with pytest.raises(BadInput) as caught:
        _expand(tmp_path, dataset=dataset)
    assert says in str(caught.value) and caught.value.problems[0].line == 3


def test_a_recipe_that_asks_for_more_than_the_backbone_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"takes no drop_path_rate, but drop_path is set to 0\.1"):
        _expand(tmp_path, more="train: {drop_path: 0.1}")
    assert _expand(tmp_path, more="train: {dropout: 0.1}").runs


def test_a_backbone_for_colour_images_alone_is_refused_on_grey_ones(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def net(num_classes): pass\n")
    with pytest.raises(BadInput, match="takes no in_chans, but digits has 1 channels"):
        _expand(tmp_path, backbone='"mine.py:net"', dataset="digits")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nets/mine.py:make", True),
        ("package.module:Class", True),
        ("hf-hub:timm/x", False),
        ("data/with:colon", False),
        ("vit_s", False),
    ],
)
def test_a_part_of_ones_own_is_a_file_or_module_and_a_name(name: str, expected: bool) -> None:
    assert is_own(name) is expected


def test_a_held_out_part_is_drawn_from_an_own_dataset_as_from_any(tmp_path: Path) -> None:
    (cell,) = _expand(tmp_path, more="data: {val: 0.1}").cells
    assert json.loads(cell.spec.dataset)["val"] == 0.1
    assert cell.spec.settings.dataset.trained_on == 180


def test_a_submitted_grid_is_read_with_the_sources_that_it_had(tmp_path: Path) -> None:
    found = _expand(tmp_path)
    stored = tmp_path / "stored"
    stored.mkdir()
    (stored / "grid.yaml").write_text((tmp_path / "grid.yaml").read_text())
    for name in ("grid.json", "runs.json"):
        (stored / name).write_text("{}")
    (stored / SOURCES).write_text(json.dumps(found.sources))
    (tmp_path / "tiny_net.py").write_text("nothing of before")
    again = take_in(str(stored / "grid.yaml")).expansion
    assert _run(again) == _run(found)
    assert found.sources.keys() == {"tiny_net.py", "spots.py"}


def test_a_file_of_that_name_beside_a_users_own_grid_is_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / SOURCES).write_text("no JSON at all")
    assert _expand(tmp_path).runs


def test_a_byte_order_mark_is_no_part_of_the_source(tmp_path: Path) -> None:
    before = _run(_expand(tmp_path))
    path = tmp_path / "tiny_net.py"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert _run(_expand(tmp_path)) == before


def test_the_files_of_a_dataset_are_read_once_however_many_cells_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = tmp_path / "files.bin"
    files.write_bytes(b"1")
    read: list[Path] = []

    def counted(path: Path) -> str:
        read.append(path)
        return describe_files(path)

    monkeypatch.setattr(resolve_dataset, "describe_files", counted)
    dataset = f'{{"spots.py:Spots": {{classes: 4, train: 200, test: 100, path: {files}}}}}'
    found = _expand(tmp_path, dataset=dataset, more="axes: {train.image_size: [16, 32, 48]}")
    assert (len(found.cells), len(read)) == (3, 1)
