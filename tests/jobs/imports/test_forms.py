"""Files of other programs, written by these programs where they can be had."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.imports.forms import FORMS, form_of, read
from vtjobs.jobs.imports.record import Record


def records(path: Path, form: str | None = None) -> list[Record]:
    return list(read(path, form or form_of(path)))


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# CSV and JSON -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table_has_a_record_for_each_line(tmp_path: Path, mark: str) -> None:
    lines = ["backbone,seed,top1", "vit,0,71.5", ",,", "swin,1,"]
    path = write(tmp_path / "r.csv", "\n".join(lines).replace(",", mark))
    first, second = records(path)
    assert first.values == {"backbone": "vit", "seed": "0", "top1": "71.5"}
    assert first.where == f"{path}:2"
    assert second.values == {"backbone": "swin", "seed": "1"}


def test_a_table_saved_by_a_spreadsheet_has_no_odd_first_column(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes("﻿backbone,seed\r\nvit,0\r\n".encode())
    assert [record.values for record in records(path)] == [{"backbone": "vit", "seed": "0"}]


def test_a_line_ends_where_the_file_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", 'backbone,seed\n"vi\nt\u2028x",0\n')
    assert [record.values for record in records(path)] == [
        {"backbone": "vi\nt\u2028x", "seed": "0"}
    ]
    path = write(tmp_path / "r.jsonl", '{"a": "x\u2028y"}\n{"a": ""}\n')
    assert [record.values for record in records(path)] == [{"a": "x\u2028y"}, {}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "r.csv:1: the file is empty"),
        ("a,a\n1,2\n", "r.csv:1: two columns are named 'a'"),
        ("a,b\n1,2,3\n", "r.csv:2: 3 values, and 2 columns"),
        ('a,b\n"1,2\n', "r.csv:2: no CSV"),
    ],
)
def test_a_mistake_in_a_table_is_named_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        records(write(tmp_path / "r.csv", text))


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_bytes(b"a,b\n\xff\xfe\n")
    with pytest.raises(BadInput, match="not UTF-8"):
        records(path)


RUNS = [{"config": {"model": "vit", "ema": True}, "top1": 71.5, "tags": [1], "note": None}]


@pytest.mark.parametrize(
    "text", [json.dumps(RUNS), json.dumps(RUNS[0]), json.dumps(RUNS[0]) + "\n"]
)
def test_objects_in_objects_become_columns_with_a_dot(tmp_path: Path, text: str) -> None:
    (one,) = records(write(tmp_path / "r.json", text))
    assert one.values == {"config.model": "vit", "config.ema": "true", "top1": 71.5}


def test_a_log_has_an_object_in_each_line(tmp_path: Path) -> None:
    write(
        tmp_path / "vit-0/log.txt", '{"epoch": 0, "test_acc1": 10}\n{"epoch": 1, "test_acc1": 20}\n'
    )
    assert form_of(tmp_path) == "json"
    assert [record.values["test_acc1"] for record in records(tmp_path)] == [10, 20]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing", "r.json:1: no JSON"),
        ('[{"a": 1}, 2]', "r.json:2: an object is expected"),
        ("5", "r.json:1: a list of objects is expected"),
        ("[" * 100_000, "r.json: no JSON that can be read"),
        ("[" + "9" * 5000 + "]", "r.json: no JSON that can be read"),
        ('{"a": 1}\n{"a": \n', "r.json:2: no JSON"),
    ],
)
def test_a_mistake_in_json_is_named_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        records(write(tmp_path / "r.json", text))


# Programs -----------------------------------------------------------------------------------------


def test_timm_s_own_script_is_read_with_its_arguments(tmp_path: Path) -> None:
    from timm.utils import update_summary

    folder = tmp_path / "20260101-vit"
    write(folder / "args.yaml", yaml.safe_dump({"model": "vit_tiny", "seed": 3, "lr_k": [1, 2]}))
    for epoch, top1 in enumerate((10.0, 20.0)):
        scores: Any = {"loss": 1.0, "top1": top1}
        update_summary(
            epoch, {"loss": 2.0}, scores, filename=folder / "summary.csv", write_header=not epoch
        )
    assert form_of(tmp_path) == "timm"
    first, last = records(tmp_path)
    assert (first.values["model"], first.values["seed"]) == ("vit_tiny", 3)
    assert (last.values["epoch"], last.values["eval_top1"]) == ("1", "20.0")
    assert first.source == folder


@pytest.mark.parametrize("store", ["sqlite", "files"])
def test_mlflow_s_runs_are_read_step_by_step(
    tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    # Newer versions write no files any more unless they are told to.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    folder = tmp_path / "mlruns"
    folder.mkdir()
    uri = f"sqlite:///{folder}/mlflow.db" if store == "sqlite" else folder.as_uri()
    client = MlflowClient(tracking_uri=uri)
    experiment = client.create_experiment("lab", artifact_location=tmp_path.as_uri())
    run = client.create_run(experiment, run_name="first").info.run_id
    client.log_param(run, "model", "vit")
    for step, value in enumerate((10.0, float("nan"))):
        client.log_metric(run, "val/top1", value, step=step)
    gone = client.create_run(experiment, run_name="gone").info.run_id
    client.log_metric(gone, "val/top1", 1.0)
    client.delete_run(gone)
    # As those of logged models, which have metrics too.
    write(folder / "models/m-1/meta.yaml", "model_id: m-1\nsource_run_id: 1\n")
    write(folder / "models/m-1/metrics/val/top1", "1 99.0 0\n")
    assert form_of(tmp_path) == "mlflow"
    first, last = records(tmp_path)
    assert first.values == {"model": "vit", "val/top1": 10.0}
    assert (first.epoch, last.epoch) == (0, 1)
    assert last.values["val/top1"] != last.values["val/top1"]


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no database of MLflow's"):
        records(write(tmp_path / "x.db", "not a database"))


def test_wandb_s_offline_runs_are_read_with_their_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    run = wandb.init(
        mode="offline",
        dir=tmp_path,
        project="lab",
        config={"model": "vit", "optimizer": {"lr": 0.1}},
        settings=wandb.Settings(console="off", silent=True, disable_git=True, x_disable_stats=True),
        reinit="create_new",
    )
    for epoch, top1 in enumerate((10.0, 20.0)):
        run.log({"val/top1": top1, "epoch": epoch})
    run.summary["best"] = 20.0
    run.finish()
    assert form_of(tmp_path) == "wandb"
    first, last = records(tmp_path)
    assert first.values == {"model": "vit", "optimizer.lr": 0.1, "val/top1": 10, "epoch": 0}
    assert last.values["val/top1"] == 20 and last.values["best"] == 20


def test_without_wandb_s_program_its_installation_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(BadInput, match=r"Install it: pip install 'vtjobs\[wandb\]'"):
        records(write(tmp_path / "run-1.wandb", ""))


def test_tensorboard_s_scalars_are_read_by_folder(tmp_path: Path) -> None:
    import numpy
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    folder = tmp_path / "vit" / "seed0"
    writer = EventFileWriter(str(folder))
    for step, top1 in enumerate((10.0, 20.0)):
        # PyTorch writes plain numbers, TensorFlow 2 tensors.
        plain = Summary.Value(tag="val/top1", simple_value=top1)
        tensor: Any = Summary.Value(tag="val/loss", tensor=make_tensor_proto(numpy.float32(1.5)))
        tensor.metadata.plugin_data.plugin_name = "scalars"
        writer.add_event(Event(step=step, summary=Summary(value=[plain, tensor])))
    writer.close()
    assert form_of(tmp_path) == "tensorboard"
    first, last = records(tmp_path)
    assert first.values == {"val/top1": 10.0, "val/loss": 1.5}
    assert (last.epoch, last.source) == (1, folder)
    (file,) = folder.iterdir()
    assert [one.values for one in records(file)] == [first.values, last.values]


def test_a_form_is_known_by_its_path_or_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file or folder"):
        form_of(tmp_path / "absent")
    with pytest.raises(BadInput, match=f"Name it with --as: {', '.join(sorted(FORMS))}"):
        form_of(tmp_path)
    with pytest.raises(BadInput, match="--as excel: unknown"):
        records(tmp_path, "excel")
