"""Data that is missing is found before anything is submitted."""

from pathlib import Path

import pytest

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.load import take_in
from vtjobs.orchestrator.requests import actions
from vtjobs.orchestrator.requests.data_check import DataCheck, look, require_data
from vtjobs.orchestrator.requests.submit import submit

from ...support.cli import Cli
from ...support.grids import tiny_grid
from ...support.lab import Lab


def grid_of(datasets: str, *, extra: str = "", recipe: str = "quickstart") -> str:
    grid = tiny_grid(extra=extra).replace("[digits]", datasets)
    return grid.replace("recipe: quickstart", f"recipe: {recipe}")


def looked(
    folder: Path,
    datasets: str,
    *,
    is_here: bool = True,
    sets: tuple[str, ...] = (),
    recipe: str = "quickstart",
) -> DataCheck:
    path = folder / "grid.yaml"
    path.write_text(grid_of(datasets, recipe=recipe))
    intake = take_in(str(path))
    return look(
        intake.expansion, intake.document, data_root=folder / "data", sets=sets, is_here=is_here
    )


def put(data_root: Path, files: dict[str, int]) -> None:
    """Make files and folders of these sizes; large files take no room on disk."""
    for relative, size in files.items():
        path = data_root / relative
        if relative.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            for number in range(size):
                (path / str(number)).touch()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            with path.open("r+b") as stream:
                stream.truncate(size)


@pytest.mark.parametrize(
    "name", [name for name, facts in catalogue.datasets().items() if not facts.get("embedded")]
)
def test_every_known_dataset_is_missed_if_any_part_of_it_is_missing(
    tmp_path: Path, name: str
) -> None:
    files = catalogue.datasets()[name]["files"]
    recipes = {"segmentation": "upernet", "detection": "mask-rcnn"}
    recipe = recipes.get(catalogue.dataset(name).task, "quickstart")
    # Some are folders of thousands of files: made once, and each moved away in turn.
    put(tmp_path / "data", files)
    for absent in files:
        part = tmp_path / "data" / absent
        part.rename(tmp_path / "elsewhere")
        assert absent in str(looked(tmp_path, f"[{name}]", recipe=recipe).absent[0])
        (tmp_path / "elsewhere").rename(part)
    assert looked(tmp_path, f"[{name}]", recipe=recipe).is_complete


def test_a_file_that_is_too_small_for_its_images_is_incomplete(tmp_path: Path) -> None:
    files = catalogue.datasets()["cifar10"]["files"]
    put(tmp_path / "data", {name: size - (name.endswith("_3")) for name, size in files.items()})
    problem = looked(tmp_path, "[cifar10]").absent[0]
    assert "(cifar10/cifar-10-batches-py/data_batch_3 is incomplete)" in problem.message


def test_the_error_names_dataset_folder_and_remedy_at_its_line(tmp_path: Path) -> None:
    found = looked(tmp_path, "[digits, svhn, imagenet1k]").absent
    data, file = tmp_path / "data", tmp_path / "grid.yaml"
    assert [str(problem) for problem in found.values()] == [
        f"{file}:4: datasets[1]: dataset svhn is not in {data} (no svhn/train_32x32.mat). "
        "Run: vtjobs data prepare svhn",
        f"{file}:4: datasets[2]: dataset imagenet1k is not in {data} (no imagenet1k/train/). "
        f"vtjobs cannot download it; expected {data}/imagenet1k/{{train,val}}/<wnid>/. Get "
        "ILSVRC2012_devkit_t12.tar.gz, ILSVRC2012_img_val.tar, ILSVRC2012_img_train.tar from "
        "https://image-net.org/download.php and run in their folder: vtjobs data prepare "
        "imagenet1k --from ./",
    ]


def test_a_further_set_that_the_grid_names_is_looked_for(tmp_path: Path) -> None:
    put(tmp_path / "data", catalogue.datasets()["imagenet1k"]["files"])
    assert looked(tmp_path, "[imagenet1k]").is_complete
    assert "imagenetv2" in str(looked(tmp_path, "[imagenet1k]", sets=("v2",)).absent[0])


def test_the_bundled_digits_need_no_folder(tmp_path: Path) -> None:
    assert looked(tmp_path, "[digits, digits300]").is_complete


def test_the_folder_of_other_machines_is_looked_into_only_where_it_is_seen(tmp_path: Path) -> None:
    away = looked(tmp_path, "[digits, svhn]", is_here=False)
    assert (away.absent, away.unseen) == ({}, {1})
    (tmp_path / "data").mkdir()
    shared = looked(tmp_path, "[digits, svhn]", is_here=False)
    assert str(shared.absent[1]).endswith("in a folder of their own: --no-data-check")


def test_only_runs_that_would_start_need_data(
    quiet_lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    prepared = quiet_lab.prepare(grid_of("[svhn]"))
    with pytest.raises(BadInput, match="vtjobs data prepare svhn"):
        require_data(quiet_lab.context, prepared)
    submit(quiet_lab.context, prepared)
    with pytest.raises(BadInput, match="vtjobs data prepare svhn"):
        require_data(quiet_lab.context, prepared)
    actions.cancel(quiet_lab.context, [run[0] for run in prepared.frozen.runs])
    assert require_data(quiet_lab.context, prepared) is None


@pytest.mark.parametrize("command", ["plan", "submit"])
def test_a_grid_without_its_data_is_refused_unless_the_check_is_off(cli: Cli, command: str) -> None:
    words = (command, cli.write("grid.yaml", grid_of("[svhn]")))
    data = {"VTJOBS_DATA": str(cli.folder / "data")}
    done = cli(*words, **data)
    assert done.returncode == 2
    assert done.stderr.startswith("error: grid.yaml:4: datasets[0]: dataset svhn is not in")
    assert not cli.workspace.exists()
    more = ["--hold"] if command == "submit" else []
    taken = cli(*words, "--no-data-check", *more, **data)
    assert taken.returncode == 0 and "2 new" in taken.stdout + taken.stderr


def test_missing_weights_are_refused_with_a_command_for_their_model(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(tiny_grid().replace("patch_size: 8,", "weights: gone.pth,"))
    with pytest.raises(BadInput) as caught:
        take_in(str(path))
    assert str(caught.value).endswith(
        "gone.pth: no such file. Download it once with: vtjobs data prepare "
        "weights:vit_small_patch16_224, and set weights: vit_small_patch16_224"
    )
