"""Write a run's final weights for other programs.

`python -m vtjobs.workers.tools.export --workspace DIR --format F RUN OUT`.

What the ledger knows of the run comes as JSON on standard input and goes into the model card.
"""

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from ...jobs.atomic_files import read_json
from ...jobs.documents import from_plain
from ...jobs.errors import BadInput, VtjobsError
from ...jobs.grid.model_names import OWN
from ...jobs.run.card_facts import CardFacts
from ...jobs.run.design import seed_text
from ...jobs.run.settings import ModelShape
from ...jobs.run.spec import RunSpec, seed_label
from ...jobs.workspace.paths import Workspace
from ..checkpoints.final_weights import Final, final_of
from ..errors import BackboneError

WEIGHTS = "model.safetensors"
TIMM = "timm"
WHOLE = "safetensors"
FEATURES = "torchvision-backbone"
_MAPS = "from vtjobs.workers.models.maps import FeatureMaps"
_WIDEN = "from vtjobs.workers.models.projector import widen_classifier"
_READ = f'model.load_state_dict(load_file("{WEIGHTS}"))'


def export(workspace: Workspace, run_id: str, out: Path, form: str, *, facts: CardFacts) -> None:
    """Write a folder with weights, configuration and a model card; all of it, or nothing.

    Args:
        workspace: where the run lies.
        run_id: a completed run.
        out: a folder that does not exist yet.
        form: timm, safetensors or torchvision-backbone.
        facts: what the ledger knows: labels, results, the cell's other seeds.

    Raises:
        BadInput: the folder is there already, or the format does not fit the model.
        NoWeights: the run has no final weights.
    """
    if out.exists():
        raise BadInput(f"{out} exists already")
    final = final_of(workspace, run_id)
    if not final.spec.dataset.has_classes and form != WHOLE:
        what = "masks" if final.spec.dataset.has_masks else "objects"
        message = f"run {run_id} was trained on {what}: its model is none of timm's"
        raise BadInput(f"{message}. Set --format {WHOLE}")
    if form == TIMM and _is_widened(final.spec):
        message = f"run {run_id} has a classifier with a hidden layer, which timm does not make"
        raise BadInput(f"{message}. Set --format {WHOLE}")
    staged = out.with_name(f".{out.name}.part")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        config = configuration(final)
        of_timm = _write_features(final, staged / WEIGHTS) if form == FEATURES else None
        if of_timm is None:
            _write_whole(final, staged / WEIGHTS)
        if form == FEATURES:
            config["features_only"] = of_timm or _maps_of(final)
        if (source := final.spec.backbone.source) is not None:
            (staged / f"{final.spec.backbone.model}.py").write_text(source, encoding="utf-8")
        (staged / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        environment = read_json(workspace.run(run_id).attempt(final.attempt) / "environment.json")
        (staged / "README.md").write_text(
            card(final, config, facts, environment, has_features=of_timm is not None),
            encoding="utf-8",
        )
        staged.rename(out)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise


def configuration(final: Final) -> dict[str, Any]:
    """Return timm's own description of a model folder.

    Architecture, arguments and what the images must look like.
    """
    from ..models.backbones import create_arguments

    spec = final.spec
    arguments = create_arguments(spec.backbone, spec.shape)
    classes = arguments.pop("num_classes") if spec.head.shared.labels else 0
    arguments.pop("num_classes", None)
    if not spec.head.shared.positions and spec.backbone.source is None:
        arguments["pos_embed"] = "none"
    return {
        "architecture": spec.backbone.model,
        "num_classes": classes,
        "model_args": arguments,
        "pretrained_cfg": {
            "num_classes": classes,
            "input_size": [spec.dataset.channels, spec.recipe.image_size, spec.recipe.image_size],
            "mean": spec.dataset.mean,
            "std": spec.dataset.std,
            "interpolation": spec.recipe.interpolation,
            "crop_pct": spec.recipe.eval_crop_pct,
        },
    }


def _is_widened(spec: RunSpec) -> bool:
    """Return whether the classifier has a hidden layer."""
    return spec.recipe.classifier == "mlp" and spec.head.shared.labels


def _write_whole(final: Final, path: Path) -> None:
    """Write the weights of the backbone; those of a projector in its classifier's place are not its
    own.
    """
    grafit = final.spec.head.grafit
    if grafit is None or grafit.projector == "none":
        shutil.copyfile(final.weights, path)
        return
    from safetensors.torch import load_file, save_file

    from ..checkpoints.weights import PROJECTOR

    state = load_file(str(final.weights))
    save_file({name: one for name, one in state.items() if PROJECTOR not in name}, str(path))


def _write_features(final: Final, path: Path) -> dict[str, Any] | None:
    """Write the weights under the names of timm's features_only model.

    A ResNet's names are torchvision's, too.

    Returns:
        Its channels and reductions; None, and nothing written: timm has none of this model.
    """
    import timm
    from safetensors.torch import load_file, save_file

    from .. import models  # noqa: F401  registers ours with timm
    from ..models.backbones import create_arguments

    spec = final.spec
    arguments = create_arguments(spec.backbone, spec.shape)
    arguments.pop("num_classes")
    name = spec.backbone.model
    if spec.backbone.source is not None:
        return None
    try:
        model = timm.create_model(name, features_only=True, pretrained=False, **arguments)
    except (RuntimeError, TypeError, AttributeError, ValueError):
        return None
    state = load_file(str(final.weights))
    found = {}
    for key, value in model.state_dict().items():
        source = next((known for known in _names(key) if known in state), None)
        if source is None or state[source].shape != value.shape:
            return None
        found[key] = state[source].contiguous().clone()
    save_file(found, str(path))
    return {"channels": model.feature_info.channels(), "reduction": model.feature_info.reduction()}


def _maps_of(final: Final) -> dict[str, Any]:
    """Return the channels and reductions of the maps that vtjobs takes out of the whole model.

    Raises:
        BadInput: its tokens form no grid.
    """
    from ..models.backbones import build
    from ..models.maps import FeatureMaps

    spec = final.spec
    model = build(spec.backbone, spec.shape, spec.head)
    try:
        maps = FeatureMaps(model, channels=spec.dataset.channels, size=spec.recipe.image_size)
    except BackboneError as error:
        raise BadInput(f"backbone {spec.backbone.model} has no feature maps: {error}") from None
    return {"channels": maps.channels, "reduction": maps.reduction}


def _names(key: str) -> list[str]:
    """Return what a weight of a features_only model may be called in the whole one."""
    return [key, key.removeprefix("model."), re.sub(r"^([a-z]+)_([0-9]+)\.", r"\1.\2.", key)]


def card(
    final: Final,
    config: dict[str, Any],
    facts: CardFacts,
    environment: dict[str, Any] | None,
    *,
    has_features: bool,
) -> str:
    """Return the model card: what this is, how it was made, what it scores, how to load it.

    Args:
        final: the weights.
        config: of the model, as it was exported.
        facts: what the ledger knows.
        environment: of the attempt that wrote the weights.
        has_features: whether the weights are those of timm's features_only model.
    """
    spec, labels = final.spec, facts.labels
    seed = seed_label(spec.seeds)
    seeds = str(seed) if seed is not None else seed_text(0, spec.seeds)
    head = {name: value for name, value in spec.head.params.items() if value is not None}
    lines = [
        f"# {labels.backbone} on {labels.dataset}, {labels.head}",
        "",
        f"- run `{final.manifest.run_id}` of grid `{facts.grid_id}`, seed {seeds}",
        (
            f"- final weights: epoch {final.manifest.epoch}, step {final.manifest.step}; not"
            " selected by a score"
        ),
        f"- recipe `{labels.recipe}`, fidelity {spec.recipe.fidelity}",
        f"- head {spec.head.name} {json.dumps(head)}; {_left(final)}",
        f"- dataset fingerprint `{spec.dataset.fingerprint}`",
    ]
    if spec.init_from:
        lines.append(
            f"- {'distilled from' if spec.learns_from_parent else 'initialised from'} run"
            f" `{spec.init_from}`"
        )
    lines += ["", "| set | metric | last epoch |", "|---|---|---|"]
    lines += [
        f"| {score.set_name} | {score.metric} | {score.last:.4g} |" for score in facts.results
    ]
    cell = facts.cell
    if cell.mean is not None and cell.std is not None:
        what = f"{cell.metric} {cell.mean:.2f} ± {cell.std:.2f} over all of them"
        lines += ["", f"One of {cell.n} seeds; {what}."]
    if spec.backbone.source is None:
        code = _loading(config, has_features=has_features)
    else:
        code = _loading_of_own(config, has_positions=spec.head.shared.positions)
    if not spec.dataset.has_classes:
        code += _around(spec.shape)
    if _is_widened(spec) and not has_features:
        code += ["", _WIDEN, "", f"widen_classifier(model, {config['architecture']!r})"]
    code.append(_READ)
    if "features_only" in config and not has_features:
        size = f"channels={spec.dataset.channels}, size={spec.recipe.image_size}"
        code += ["", _MAPS, "", f"model = FeatureMaps(model, {size})"]
    lines += ["", "```python", *code, "```", "", "## Recipe", "", "```json"]
    lines += [json.dumps(spec.recipe.in_full(), indent=1), "```"]
    if environment and environment.get("software"):
        lines += [
            "",
            "Made with " + ", ".join(f"{k} {v}" for k, v in environment["software"].items()) + ".",
        ]
    return "\n".join(lines) + "\n"


def _left(final: Final) -> str:
    grafit = final.spec.head.grafit
    if grafit is not None and grafit.projector != "none":
        return "its projector, whose outputs the scores by neighbours compare, is not exported"
    params = final.spec.head.distillation
    if params is None:
        return "it is not part of these weights"
    if "distilled" in final.spec.backbone.model and params.fusion == "softmax":
        return "the scores below sum both tokens' softmax outputs; timm's model averages the logits"
    return "the teacher is not part of these weights"


def _loading_of_own(config: dict[str, Any], *, has_positions: bool) -> list[str]:
    """Return the lines of Python that load a lab's own backbone, started in the exported folder."""
    name, classes = config["architecture"], config["num_classes"]
    # Its function may refuse a model without classes, as none was trained here.
    given = {"num_classes": classes or 1, **config["model_args"]}
    named = ", ".join(f"{key}={value!r}" for key, value in given.items())
    return [
        "from safetensors.torch import load_file",
        "",
        f"from {name} import {name}",
        "",
        f"model = {name}({named})",
        *([] if classes else ["model.reset_classifier(0)"]),
        *([] if has_positions else ["model.pos_embed = None"]),
    ]


def _around(shape: ModelShape) -> list[str]:
    """Return the lines that put a segmenter or detector around the backbone, before weights are
    read.
    """
    module, kind = "detector", "Detector"
    if shape.task == "segmentation":
        module, kind = "segmenter", "Segmenter"
    width = {} if shape.decoder_width is None else {"width": shape.decoder_width}
    named = {
        "classes": shape.classes,
        "channels": shape.channels,
        "size": shape.image_size,
        **width,
    }
    arguments = ", ".join(f"{key}={value}" for key, value in named.items())
    return [
        "",
        f"from vtjobs.workers.models.{module} import {kind}",
        "",
        f"model = {kind}(model, {arguments})",
    ]


def _loading(config: dict[str, Any], *, has_features: bool) -> list[str]:
    """Return the lines of Python that load the weights, started in the exported folder."""
    name, classes = config["architecture"], config["num_classes"]
    named = [f"{key}={value!r}" for key, value in config["model_args"].items()]
    last = "features_only=True" if has_features else f"num_classes={classes}"
    arguments = ", ".join([repr(name), *named, last])
    # timm has no such model by itself: importing ours registers it.
    ours = ["import vtjobs.workers.models"] if name in OWN else []
    return [
        "import timm",
        "from safetensors.torch import load_file",
        *(["", *ours] if ours else []),
        "",
        f"model = timm.create_model({arguments})",
    ]


def main() -> int:
    """Export one run."""
    parser = argparse.ArgumentParser(prog="vtjobs.workers.tools.export")
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--format", required=True)
    parser.add_argument("run_id")
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    try:
        export(
            Workspace(options.workspace),
            options.run_id,
            options.out,
            options.format,
            facts=from_plain(json.load(sys.stdin), CardFacts),
        )
    except VtjobsError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
