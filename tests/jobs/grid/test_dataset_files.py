"""Whether a known dataset is there, in a word."""

from pathlib import Path

from vtjobs.jobs.atomic_files import to_json
from vtjobs.jobs.documents import to_plain
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.dataset_files import whereabouts
from vtjobs.jobs.grid.pack_places import FORMAT, Contents, pack_folder


def test_a_dataset_is_here_in_part_or_not_at_all(tmp_path: Path) -> None:
    seen = [whereabouts("svhn", tmp_path)]
    for relative, size in catalogue.datasets()["svhn"]["files"].items():
        path = tmp_path / relative
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as stream:
            stream.truncate(size)
        seen.append(whereabouts("svhn", tmp_path))
    assert seen == ["no", "part", "yes"]


def test_what_vtjobs_brings_along_is_always_here(tmp_path: Path) -> None:
    assert whereabouts("digits", tmp_path / "nowhere") == "yes"


def test_a_packed_dataset_needs_no_other_files(tmp_path: Path) -> None:
    folder = pack_folder(tmp_path, "svhn")
    folder.mkdir(parents=True)
    for split in ("train", "test"):
        assert whereabouts("svhn", tmp_path) == "no"
        (folder / f"{split}.npz").write_bytes(b"abc")
        contents = Contents(format=FORMAT, index=f"{split}.npz", sizes={f"{split}.npz": 3})
        (folder / f"{split}.json").write_bytes(to_json(to_plain(contents)))
    assert whereabouts("svhn", tmp_path) == "packed"
