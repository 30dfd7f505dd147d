"""The grid's schema: every mistake with its line, its key and what is allowed."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtjobs.jobs.errors import BadInput
from vtjobs.jobs.grid import catalogue
from vtjobs.jobs.grid.checks import check_grid, grid_document
from vtjobs.jobs.grid.load import take_in, take_in_document
from vtjobs.jobs.grid.schema import Grid
from vtjobs.jobs.strict_yaml import Document, parse

from ...support.bad_grids import GOOD, with_line


def said(folder: Path, text: str) -> list[str]:
    """Return what is said about a grid that must be refused."""
    path = folder / "grid.yaml"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        take_in(str(path))
    assert caught.value.exit_code == 2
    return [str(problem).removeprefix(f"{folder}/") for problem in caught.value.problems]


def taken(folder: Path, text: str) -> Grid:
    path = folder / "grid.yaml"
    path.write_text(text)
    return take_in(str(path)).grid


@pytest.mark.paper("RV-08")
@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("name", "null", "name: expected text, got nothing"),
        ("name", "true", "name: expected text, got true (quote it if it is text)"),
        ("name", "12", "name: expected text, got 12"),
        ("name", '""', "name: use letters, digits and . _ -, and start with a letter or a digit"),
        ("name", "-rf", "name: use letters"),
        ("name", "/abs", "name: use letters"),
        ("name", "'%j'", "name: use letters"),
        ("name", "'[/red]'", "name: use letters"),
        ("name", "a" * 300, "name: longer than 64 characters"),
        ("name", "'😀'", "name: only ASCII"),
        ("backbone", "[vit_mini]", "backbone: unknown key 'backbone'. Did you mean 'backbones'?"),
        ("Seeds", "3", "Seeds: unknown key 'Seeds'. Did you mean 'seeds'?"),
        ("backbones", "vit_mini", "backbones: expected a list, got text 'vit_mini'"),
        ("backbones", "[]", "backbones: at least one is needed"),
        ("backbones", "[vit_mini, vit_mini]", "backbones[1]: vit_mini listed twice (would create duplicate runs)"),
        ("backbones", "[{a: {}, b: {}}]", "backbones[0]: expected a name, or one name with its settings"),
        ("backbones", "[3]", "backbones[0]: expected a name"),
        ("backbones", "[resnet5O]", "unknown backbone 'resnet5O'. Did you mean 'resnet50'?"),
        ("backbones", "['hf-hub:timm/x']", "remote and local-dir model sources are not allowed"),
        ("backbones", "['local-dir:/tmp/x']", "remote and local-dir model sources are not allowed"),
        ("backbones", "[{vit_mini: {pretrained: true}}]", "pretrained is set by vtjobs. Give weights: FILE"),
        ("backbones", "[{vit_mini: {img_size: 32}}]", "img_size is set by vtjobs. Set train.image_size"),
        ("backbones", "[{vit_mini: {weights: /none.pt}}]", "/none.pt: no such file"),
        ("backbones", "[{vit_mini: {allow_missing: [head]}}]", "vit_mini.allow_missing: is for weights: FILE alone"),
        ("backbones", "[{vit_mini: {allow_unused: head}}]", "expected a list of names, such as [norm.*]"),
        ("backbones", "[{vit_mini: {weights: '~nobody-here/x.pt'}}]", "no such file"),
        ("datasets", "['~nobody-here/x']", "folder does not exist"),
        ("recipes", "{mine: '~nobody-here/x.yaml'}", "x.yaml"),
        ("backbones", "[{vit_mini: 3}]", "vit_mini: expected a mapping of create_model arguments"),
        ("datasets", "[]", "datasets: at least one is needed"),
        ("datasets", "[cifar11]", "unknown dataset 'cifar11'. Did you mean 'cifar10'?"),
        ("datasets", "[/none/such]", "dataset /none/such: folder does not exist"),
        ("datasets", "[{digits: {mean: 3}}]", "datasets[0].digits.mean: expected 1 numbers"),
        ("datasets", "[{digits: {mean: [x]}}]", "datasets[0].digits.mean: expected 1 numbers"),
        ("datasets", "[{digits: {std: [0]}}]", "datasets[0].digits.std: must be greater than 0"),
        ("datasets", "[{digits: {path: 3}}]", "folder does not exist"),
        ("datasets", "[{digits: {men: [0.5]}}]", "unknown key 'men'. Did you mean 'mean'?"),
        ("heads", "[drlok]", "unknown head 'drlok'. Did you mean 'drloc'?"),
        ("heads", "[{drloc: {pair: 3}}]", "heads[0].drloc.pair: unknown key 'pair'. Did you mean 'pairs'?"),
        ("heads", "[{drloc: {weight: -1}}]", "heads[0].drloc.weight: must be greater than or equal to 0, got -1"),
        ("heads", "[{drloc: {weight: .nan}}]", "heads[0].drloc.weight: must be a finite number"),
        ("heads", "[{relvit: {tasks: []}}]", "heads[0].relvit.tasks: at least one is needed"),
        ("heads", "[{relvit: {tasks: [sprell]}}]", "heads[0].relvit.tasks[0]: must be 'sprel', 'dist', 'ang' or 'abs"),
        ("heads", "[{drloc: 3}]", "drloc: expected a mapping of settings"),
        ("heads", "[{relvit: {mega: 2}}]", "mega-patches only work in pre-training. Set labels: false"),
        ("heads", "[{relvit: {pooling: overlapping, shuffle: true}}]", "cannot be combined with mega"),
        ("heads", "[{relvit: {labels: false, weight: 0.0}}]", "relvit without labels and with weight 0 trains nothing"),
        ("heads", "[supervised, relvit]\noverrides: [{when: {}, set: {train.trainable: classifier}}]", "trainable: classifier leaves the features as they are: relvit has no effect. Use heads: [supervised]"),
        ("heads", "[supervised]\noverrides: [{when: {}, set: {train.init_only: [head.*]}}]", "init_only is for a stage with init_from"),
        ("heads", "[{grafit: {labels: true}}]", "labels: true needs projector: none, which leaves the classifier"),
        ("heads", "[{grafit: {views: 1}}]", "the instance loss needs at least two views"),
        ("heads", "[{grafit: {losses: [knn], views: 2}}]", "only the instance loss uses more than one view"),
        ("heads", "[{grafit: {losses: [instance], instance_weight: 0.0}}]", "the instance loss alone, with instance_weight 0, trains nothing"),
        ("heads", "[{grafit: {losses: [instance], temperature: 0.1}}]", "only the kNN loss uses temperature"),
        ("heads", "[{grafit: {losses: [knn], target_decay: 0.9}}]", "only the instance loss uses target_decay"),
        ("heads", "[{grafit: {projector: none, dim: 8}}]", "only a projector uses dim"),
        ("heads", "[{grafit: {losses: []}}]", "heads[0].grafit.losses: at least one is needed"),
        ("heads", "[grafit]\noverrides: [{when: {}, set: {train.repeats: 3}}]", "grafit makes its own views of each image; the recipe repeats them too. Set train: {repeats: 1}"),
        ("heads", "[{grafit: {losses: [instance], labels: true, projector: none}}]\noverrides: [{when: {}, set: {train.mixup: 0.8}}]", "the recipe mixes images; grafit has to know which image it sees. Set train: {mixup: 0.0, cutmix: 0.0}"),
        ("heads", "[drloc]", "no published weight of drloc for backbone vit_mini. Give one: drloc: {weight: 0.5}"),
        ("seeds", "012", "seeds: write plain decimal numbers, got 012"),
        ("seeds", '"3"', "seeds: remove the quotes, write 3"),
        ("compare", "{min_effect: 1,5}", "compare.5: unknown key '5'. Write decimal numbers with a point, such as 1.5"),
        ("heads", "supervised", "heads: expected a list, got text 'supervised'. Write [supervised]"),
        ("heads", "[drloc: 0.5]", "heads[0]: drloc: expected a mapping of settings. Write drloc: {weight: 0.5}"),
        ("train", '{epochs: "30"}', "train.epochs: expected a whole number, got text '30'. Remove the quotes"),
        ("seeds", "1_024", "seeds: write plain decimal numbers, got 1_024"),
        ("seeds", "0x1F", "seeds: write plain decimal numbers, got 0x1F"),
        ("seeds", "[0, 012]", "seeds: whole number 0…4294967295, write plain decimal numbers, got 012"),
        ("seeds", "0..4", "seeds: write [0, …, 4] or {range: [0, 5]}"),
        ("seeds", "-1", "seeds: a count of seeds is 1…1,000,000, got -1"),
        ("seeds", "0", "seeds: a count of seeds is 1…1,000,000, got 0"),
        ("seeds", "1.5", "seeds: a count of seeds is a whole number, got 1.5"),
        ("seeds", "true", "seeds: a count of seeds is a whole number, got true"),
        ("seeds", "null", "seeds: a count, a list of seeds, or {range: [first, end]}"),
        ("seeds", "[]", "seeds: a count, a list of seeds"),
        ("seeds", "[-1]", "seeds: whole number 0…4294967295, got -1"),
        ("seeds", "[18446744073709551616]", "seeds: whole number 0…4294967295, got 18446744073709551616"),
        ("seeds", "[1, 1]", "seeds: 1 listed twice (would create duplicate runs)"),
        ("seeds", "{range: [0, 4000000000]}", "seeds: at most 1,000,000 seeds, got 4,000,000,000"),
        ("seeds", "{range: [3]}", "seeds: write {range: [first, end]}; end is not included"),
        ("seeds", "{from: 3}", "seeds: write {range: [first, end]}"),
        ("recipe", "quickstar", "recipe: unknown recipe 'quickstar'. Did you mean 'quickstart'?"),
        ("recipe", "../secret", "recipe: unknown recipe '../secret'"),
        ("train", "{lr: 1e-3x}", "train.lr: expected a number, got text '1e-3x'"),
        ("train", "{lr: .nan}", "train.lr: must be a finite number"),
        ("train", "{lr: .inf}", "train.lr: must be a finite number"),
        ("train", "{lr: -1}", "train.lr: must be greater than 0, got -1"),
        ("train", "{lr: 0}", "train.lr: must be greater than 0, got 0"),
        ("train", "{lr: 012}", "train.lr: write plain decimal numbers, got 012"),
        ("train", "{learning_rate: 1}", "train.learning_rate: unknown key 'learning_rate'"),
        ("train", "{epoch: 1}", "train.epoch: unknown key 'epoch'. Did you mean 'epochs'?"),
        ("train", "{epochs: 0}", "train.epochs: must be greater than or equal to 1, got 0"),
        ("train", "{epochs: 1.5}", "train.epochs: expected a whole number, got 1.5"),
        ("train", "{epochs: true}", "train.epochs: expected a whole number, got true"),
        ("train", "{warmup_epochs: 50}", "warmup_epochs 50 must be less than epochs 50"),
        ("train", "{mixup: -1}", "train.mixup: must be greater than or equal to 0, got -1"),
        ("train", "{batch_size: 0}", "train.batch_size: must be greater than or equal to 1, got 0"),
        ("train", "{batch_size: 33, virtual_ranks: 2}", "batch_size 33 is not divisible by virtual_ranks 2"),
        ("train", "{precision: fp8}", "train.precision: must be 'fp32', 'fp16' or 'bf16', got text 'fp8'"),
        ("train", "{auto_augment: augmix-m3-w3}", "auto_augment: augmix needs `pipeline: pil`"),
        ("train", "{auto_augment: trivial}", "auto_augment: trivial needs `pipeline: pil`"),
        ("train", "{auto_augment: trivial, pipeline: hybrid}", "auto_augment: trivial needs `pipeline: pil`"),
        ("train", "{auto_augment: trivial-m9, pipeline: pil}", "'m9': trivial has no settings"),
        ("train", "{auto_augment: rnd-m9}", "train.auto_augment: unknown policy 'rnd'. Allowed: rand, augmix, v0"),
        ("train", "{auto_augment: rand-m9-mst0.5}", "train.auto_augment: 'mst0.5' is no setting of rand"),
        ("train", "{auto_augment: 3a-m9}", "train.auto_augment: 'm9' is no setting of 3a"),
        ("train", "{sync_bn: true, compile: true}", "sync_bn does not go with `compile: true`"),
        ("train", "{classifier: mlp, trainable: classifier}", "does not go with `trainable: classifier`"),
        ("train", "{crop_scale: [1.0, 0.1]}", "crop_scale is [smallest, largest]"),
        ("train", "{crop_scale: 3}", "train.crop_scale: expected a list, got 3"),
        ("train", "[1]", "train: expected a mapping, got a list"),
        ("axes", "{head.drlock.pairs: [1]}", "head.drlock.pairs: no such head in this grid"),
        ("axes", "{lr: [1]}", "axes.lr: cannot vary 'lr'. Write train.FIELD"),
        ("axes", "{train.lr: []}", "axes.train.lr: at least one is needed"),
        ("axes", "{train.lr: 1}", "axes.train.lr: expected a list, got 1"),
        ("axes", "{train.lr: [0.1, 0.1]}", "0.1 listed twice"),
        ("axes", "{train.lr: [0.1, x]}", "axes.train.lr: expected a number, got text 'x'"),
        ("exclude", "[{backbone: swin_t}]", "exclude[0].backbone: 'swin_t' is not among this grid's backbones"),
        ("exclude", "[{backbones: vit_mini}]", "unknown key 'backbones'. Did you mean 'backbone'?"),
        ("exclude", "[{backbone: {vit_mini: {}}}]", "exclude[0].backbone: expected a backbone, or a list of them"),
        ("exclude", "[{backbone: }]", "exclude[0].backbone: at least one value is needed"),
        ("variance", "{design: crossed, vary: {init: 2, order: 2}}", "seeds: the design of `variance` already sets"),
        ("exclude", "[{seed: 7}]", "exclude[0].seed: 7 is not among this grid's seeds"),
        ("exclude", "[{seed: true}]", "exclude[0].seed: expected a seed, or a list of them"),
        ("exclude", "{backbone: vit_mini}", "exclude: expected a list, got a mapping"),
        ("exclude", "[{head: supervised}]", "no run is left after the exclusions"),
        ("include", "[{backbone: vit_mini, dataset: digits}]", "include[0]: head is required"),
        ("include", "[{backbone: vit_mini, dataset: digits, head: supervised, seed: -1}]", "include[0].seed: expected"),
        ("include", "[{backbone: vit_mini, dataset: digits, head: supervised, seed: 4294967296}]", "seed: expected"),
        ("include", "[{backbone: nope, dataset: digits, head: supervised}]", "unknown backbone 'nope'"),
        ("overrides", "[{when: {head: drloc}, set: {train.lr: 1}}]", "'drloc' is not among this grid's heads"),
        ("overrides", "[{when: {}, set: {}}]", "overrides[0].set: at least one is needed"),
        ("overrides", "[{when: {}}]", "overrides[0].set: is required"),
        ("overrides", "[{when: {}, set: {train.lr: x}}]", "overrides[0].set.train.lr: expected a number, got text 'x'"),
        ("resources", "{gpus_per_node: '8'}", "resources.gpus_per_node: expected a whole number, got text '8'"),
        ("resources", "{gpus_per_node: 8.0}", "resources.gpus_per_node: expected a whole number, got 8.0"),
        ("resources", "{gpus_per_node: 2, per_gpu: 2}", "resources.per_gpu: runs that share a GPU train on one GPU of one node; gpus_per_node is 2. Set resources.gpus_per_node: 1"),
        ("resources", "{nodes: 2, per_gpu: 2}", "resources.per_gpu: runs that share a GPU train on one GPU of one node; nodes is 2. Set resources.nodes: 1"),
        ("resources", "{gpus_per_node: -1}", "resources.gpus_per_node: must be greater than or equal to 0, got -1"),
        ("resources", "{nodes: 0}", "resources.nodes: must be greater than or equal to 1, got 0"),
        ("resources", "{walltime: 86400}", "resources.walltime: 86400 is ambiguous"),
        ("resources", "{walltime: tomorrow}", "resources.walltime: cannot read 'tomorrow' as a duration"),
        ("resources", '{gpu: "v100\\n#SBATCH --wrap=x"}', "resources.gpu: use letters, digits"),
        ("resources", '{gpu: "$(reboot)"}', "resources.gpu: use letters, digits"),
        ("resources", '{gpu: "\\e[31m"}', "resources.gpu: use letters, digits"),
        ("resources", "{gpu: 'a;b'}", "resources.gpu: use letters, digits"),
        ("resources", "{gpus: 8}", "resources.gpus: unknown key 'gpus'"),
        ("checkpoint_every", "0s", "checkpoint_every: must be longer than 0 s"),
        ("checkpoint_every", "-5m", "checkpoint_every: cannot read '-5m'"),
        ("checkpoint_every", "-5", "checkpoint_every: -5 is ambiguous"),
        ("checkpoint_every", "0", "checkpoint_every: 0 is ambiguous"),
        ("checkpoint_every", "2h\nresources: {walltime: 1h}", "checkpoint_every: 2h00m is not shorter than"),
        ("evaluate_every", "0", "evaluate_every: must be greater than or equal to 1, got 0"),
        ("retries", "-1", "retries: must be greater than or equal to 0, got -1"),
        ("max_running", "0", "max_running: must be greater than or equal to 1, got 0"),
        ("backend", "slurmm", "backend: must be 'local', 'slurm' or 'ray', got text 'slurmm'"),
        ("backend", "3", "backend: expected a mapping, got 3"),
        ("backend", "{slurm: {extra: {output: x}}}", "backend.slurm.extra: 'output' is set by vtjobs"),
        ("backend", "{local: {slots: 0}}", "backend.local.slots: must be greater than or equal to 1, got 0"),
        ("stages", "[{name: a, init_from: b}]", "stages[0].init_from: no earlier stage 'b'"),
        ("stages", "[{name: a}, {name: a}]", "stages[1].name: duplicate stage name 'a'"),
        ("stages", "[{name: a, recipe: nope}]", "stages[0].recipe: unknown recipe 'nope'"),
        ("stages", "[{name: a, heads: [nope]}]", "unknown head 'nope'"),
        ("stages", "[{name: a, train: {epochs: 0}}]", "stages[0].train.epochs: must be greater than"),
        ("stages", "[3]", "stages[0]: expected a mapping, got 3"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_file_line_key_and_what_is_allowed(
    tmp_path: Path, key: str, value: str, says: str
) -> None:
    text = with_line(key, value)
    if "\nresources" in value:
        text = text.replace("resources: {gpus_per_node: 0}\n", "")
    found = said(tmp_path, text)
    assert len(found) == 1, found
    assert found[0].startswith("grid.yaml:")
    assert says in found[0]


@pytest.mark.parametrize("text", ["just text\n", "- a\n- b\n", "3\n"])
def test_a_file_that_is_no_mapping_is_told_what_a_grid_has(tmp_path: Path, text: str) -> None:
    assert "expected a mapping with keys backbones, datasets" in said(tmp_path, text)[0]


@pytest.mark.parametrize("key", ["name", "backbones", "datasets", "heads", "seeds", "recipe"])
def test_a_key_that_a_grid_needs_is_asked_for(tmp_path: Path, key: str) -> None:
    text = "".join(f"{line}\n" for line in GOOD.splitlines() if not line.startswith(key))
    assert any(f"{key}: is required" in line for line in said(tmp_path, text))


def test_mistakes_of_schema_and_of_names_are_told_together_sorted_and_once(tmp_path: Path) -> None:
    text = (
        "name: a/b\nbackbones: [swin_tt, {vit_mini: {pretrained: true}}]\ndatasets:"
        " [cifar11]\nheads: [drlok]\nseeds: [1, 1]\nrecipe: quickstart\ntrain: {lr: x, epoch:"
        " 3}\nretry: 3\n"
    )
    found = said(tmp_path, text)
    assert [line.split(":")[1] for line in found] == ["1", "2", "2", "3", "4", "5", "7", "7", "8"]
    assert len(set(found)) == len(found)


def test_names_and_rules_are_told_together(tmp_path: Path) -> None:
    text = with_line("backbones", "[swin_tt]") + "exclude: [{head: drlok}]\n"
    assert [line.split(":")[1] for line in said(tmp_path, text)] == ["8", "9"]


def test_names_and_what_only_the_expansion_sees_are_told_together(tmp_path: Path) -> None:
    text = with_line("heads", "[drloc]").replace("[digits]", "[digits, cifar11]")
    found = said(tmp_path, text)
    assert len(found) == 2
    assert "cifar11" in found[0] and "no published weight" in found[1]


def test_an_entry_that_axes_complete_is_judged_with_their_values(tmp_path: Path) -> None:
    text = with_line("train", "{warmup_epochs: 60}") + "axes: {train.epochs: [70, 80]}\n"
    path = tmp_path / "grid.yaml"
    path.write_text(text)
    assert len(take_in(str(path)).expansion.cells) == 2


@pytest.mark.parametrize("value", ["no", "2026-01-01", "'007'", "v1.0"])
def test_a_name_that_yaml_1_1_would_take_for_something_else_is_text(
    tmp_path: Path, value: str
) -> None:
    assert taken(tmp_path, with_line("name", value)).name == value.strip("'")


def test_seeds_are_a_count_a_list_or_a_range(tmp_path: Path) -> None:
    for text, seeds in (
        ("3", [0, 1, 2]),
        ("[7, 3]", [7, 3]),
        ("{range: [2, 5]}", [2, 3, 4]),
        ("[4294967295]", [2**32 - 1]),
    ):
        assert taken(tmp_path, with_line("seeds", text)).seeds == seeds


def test_a_walltime_may_be_written_as_a_clock(tmp_path: Path) -> None:
    assert (
        taken(tmp_path, with_line("resources", "{walltime: 24:00:00}")).resources.walltime == 86400
    )


def test_the_default_checkpoint_interval_does_not_forbid_a_short_walltime(tmp_path: Path) -> None:
    assert taken(tmp_path, with_line("resources", "{walltime: 5m}")).resources.walltime == 300


def test_too_many_runs_are_counted_before_they_are_made(tmp_path: Path) -> None:
    rates = ", ".join(f"{n}e-6" for n in range(1, 1201))
    text = with_line("seeds", "1000") + f"axes: {{train.lr: [{rates}]}}\n"
    assert said(tmp_path, text) == [
        "grid.yaml:1: 1,200,000 runs (limit 100,000; raise it with --max-runs)"
    ]


def test_every_built_in_grid_and_recipe_is_without_mistakes() -> None:
    for name in catalogue.grid_names():
        assert take_in(name).expansion.runs
    for name in catalogue.recipe_names():
        assert catalogue.recipe_data(name)["epochs"] > 0


def test_settings_from_the_command_line_go_over_the_files(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GOOD)
    grid = take_in(str(path), changes={"train.epochs": 7, "resources.threads": 2, "seeds": 5}).grid
    assert (grid.train["epochs"], grid.resources.threads, len(grid.seeds)) == (7, 2, 5)


def test_the_schema_for_editors_knows_every_key_that_the_reader_does() -> None:
    schema = Grid.model_json_schema()
    assert set(schema["properties"]) == set(Grid.model_fields)
    json.dumps(schema, allow_nan=False)


WORDS = st.sampled_from(["", "vit_mini", "drloc", "a.b", "é", "/x"])
SCRAPS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | WORDS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["vit_mini", "seed", "head", "set", "when", "range", "x"]),
            inner,
            max_size=2,
        )
    ),
    max_leaves=4,
)
FULL = parse(
    GOOD.encode()
    + b"axes: {train.lr: [1e-3], head.drloc.pairs: [2]}\nexclude: [{backbone: vit_mini, seed:"
    b" [1]}]\ninclude: [{backbone: swin_mini, dataset: digits, head: drloc, seed:"
    b" [0]}]\noverrides: [{when: {head: drloc}, set: {head.drloc.weight:"
    b" 0.5}}]\ncheckpoint_every: 1m\nretries: 2\nstages: [{name: a, heads: [supervised]}, {name:"
    b" b, init_from: a, train: {epochs: 9}}]\nbackend: {local: {slots: 2}}\n",
    file="f",
)


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(place for key, child in children for place in places(child, (*path, key)))]


PLACES = st.sampled_from([path for path in places(FULL.data) if path])


@settings(max_examples=300)
@given(st.lists(st.tuples(PLACES, SCRAPS), min_size=1, max_size=2))
def test_a_grid_with_anything_anywhere_is_expanded_or_bad_input(
    changes: list[tuple[tuple[str | int, ...], object]],
) -> None:
    data = json.loads(json.dumps(FULL.data))
    for path, value in changes:
        place = data
        try:
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue
    try:
        found = take_in_document(Document(file="f", data=data, lines=FULL.lines))
    except BadInput as error:
        assert error.problems
    else:
        assert found.expansion.runs


@pytest.mark.parametrize(
    ("compare", "says"),
    [
        ("{select: best_val}", "compare.select: best_val needs held-out validation images"),
        ("{select: best_val, set: val}", "select: best_val chooses the epoch on val. Compare on"),
        ("{select: best}", "compare.select"),
        ("{family: screen, looks: [3, 5]}", "family: screen cannot be combined with"),
        ("{family: all}", "compare.family"),
        ("{on_diverged: ignore}", "compare.on_diverged"),
        ("{baseline: drlok}", "compare.baseline: no head 'drlok' in this grid"),
    ],
)
def test_a_comparison_that_cannot_be_is_refused(tmp_path: Path, compare: str, says: str) -> None:
    assert says in said(tmp_path, f"{GOOD}\ncompare: {compare}")[0]


@pytest.mark.parametrize(
    "extra",
    ["compare: {select: best_val}\ndata: {val: 0.1}", "compare: {baseline: each, family: dataset}"],
)
def test_a_comparison_may_declare_its_epoch_and_every_pair(tmp_path: Path, extra: str) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(f"{GOOD}\n{extra}")
    assert check_grid(grid_document(str(path)))[1] == []


def test_a_document_is_checked_without_being_changed() -> None:
    document = grid_document("quickstart")
    before = json.dumps(document.data)
    assert check_grid(document)[1] == []
    assert json.dumps(document.data) == before


@pytest.mark.parametrize(
    ("variance", "says"),
    [
        ("{vary: {init: 2}}", "variance.design: is required"),
        (
            "{design: factorial}",
            "variance.design: must be 'together', 'crossed', 'orthogonal' or",
        ),
        ("{design: together}", "seeds: is required"),
        ("{design: together, vary: {init: 2}}", "variance: together: `seeds` sets every stream"),
        ("{design: crossed, vary: {init: 5}}", "variance: crossed: vary at least two streams"),
        ("{design: crossed, vary: {init: 5, weights: 5}}", "variance.vary.weights"),
        (
            "{design: crossed, vary: {init: 5, order: 1}}",
            "variance: vary order: needs at least two values, got one",
        ),
        (
            "{design: crossed, vary: {init: 2, order: 2}, hold: {init: 3}}",
            "init: list a stream once, under",
        ),
        (
            "{design: crossed, vary: {init: 2, order: 2}, ride: [drop, drop]}",
            "drop: list a stream once, under",
        ),
        ("{design: crossed, vary: {init: 2, order: 2}, hold: {mix: -1}}", "variance.hold.mix"),
        ("{design: crossed, vary: {init: 2, order: 2}, repeat: 0}", "variance.repeat"),
        (
            "{design: crossed, vary: {init: 1000, order: 1000}}",
            "1,000,000 runs per cell, at most 10,000",
        ),
        ("{design: one-at-a-time}", "variance: one-at-a-time: vary at least one stream"),
        ("{design: one-at-a-time, vary: {init: 3}, ride: [mix]}", "Remove ride"),
        (
            "{design: orthogonal, vary: {init: 4, order: 4}}",
            "prime number of values, got 4. Give each stream 5",
        ),
        (
            "{design: orthogonal, vary: {init: 3, order: 5}}",
            "orthogonal: every stream needs the same number of values",
        ),
        (
            "{design: orthogonal, vary: {init: 3, order: 3, mix: 3, drop: 3}}",
            "3 values allow up to 3 streams",
        ),
    ],
)
def test_a_study_that_cannot_be_is_refused(tmp_path: Path, variance: str, says: str) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith("seeds:")]
    found = said(tmp_path, "\n".join([*lines, f"variance: {variance}"]))
    assert any(says in problem for problem in found), found


def test_the_runs_of_a_study_follow_from_its_design_alone(tmp_path: Path) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith("seeds:")]
    study = "variance: {design: crossed, vary: {init: 2, order: [4, 7]}}"
    for rule, where in (
        ("include: [{backbone: vit_mini, seed: 9}]", "include[0]"),
        ("exclude: [{seed: 1}]", "exclude[0]"),
        ("overrides: [{when: {seed: 1}, set: {train.lr: 0.1}}]", "overrides[0].when"),
    ):
        found = said(tmp_path, "\n".join([*lines, study, rule]))
        why = "rules cannot name seeds here: the design of `variance` sets them. Remove it"
        assert found == [f"grid.yaml:9: {where}.seed: {why}"]
