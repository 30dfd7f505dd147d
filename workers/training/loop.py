"""The training loop.

One optimizer step from the shares of all virtual ranks, whatever number of real ranks.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...jobs.documents import to_plain
from ...jobs.run.spec import RunSpec
from ...jobs.workspace.events import LoadedWeights
from ..checkpoints import checkpoint
from ..checkpoints.weights import load_weights, start_from
from ..data.batches import EvalSource, Finish, Order, Position, TensorSource, TrainSource
from ..data.datasets import ImageSet, load_part, scored_sets
from ..data.decoded import Decoder
from ..data.patches import patch_work
from ..data.timm_pipeline import PilSource, PilTransform
from ..heads.base import weight_at
from ..models.backbones import input_side
from ..own_functions import own_metrics
from ..own_parts import OwnPartError
from ..randomness import Streams
from .compiled import compiled
from .distill import make_distillation
from .evaluate import Diverged, Examiner
from .fingerprint import fingerprints, of_weights
from .group import BUFFERS_STAY, Group, StopVote
from .mixup import make_mixup
from .objective import Objective
from .pace import Pace
from .plan import TrainingPlan
from .run_log import EpochFacts, RunLog, Scores
from .sums import OWN_SUMS, EpochSums
from .trainee import (
    frozen_statistics,
    layers_with_statistics,
    make_ema,
    make_numerics,
    make_optimizer,
    make_schedule,
    make_trainee,
    schedule_epochs,
    schedule_position,
)

Report = Callable[..., None]

# How often the loss is looked at on a GPU, where looking waits for the device.
CHECK_EVERY_STEPS = 50
MARK_EVERY_S = 1.0


class Training:
    """One run on one rank: set up, train, evaluate, save."""

    def __init__(
        self,
        spec: RunSpec,
        plan: TrainingPlan,
        group: Group,
        *,
        report: Report,
        wants_stop: Callable[[], bool],
        log: RunLog | None = None,
    ) -> None:
        self.spec, self.plan, self.group, self.report = spec, plan, group, report
        self.log, self.pace = log, Pace(group.device)
        self.recipe = spec.recipe
        self.streams = Streams(spec.seeds)
        self.vote = StopVote(group, wants_stop, self._checkpoint_due)
        self.epoch = 0
        # Steps done in this epoch; equal to `order.steps` while the epoch waits for its evaluation.
        self.step = 0
        self.sums = EpochSums(group, clips=spec.recipe.clip_grad is not None)
        self._saved_at = self._marked_at = time.monotonic()
        self._compiled_before: set[str] = set()
        self._set_up()

    # Set-up ---------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        spec, recipe, group = self.spec, self.recipe, self.group
        self.mark("data")
        train = self._split("train")
        share = recipe.virtual_ranks // group.world_size
        self.virtual_ranks = list(range(group.rank * share, (group.rank + 1) * share))
        self.order = Order(
            len(train),
            recipe.batch_size,
            recipe.virtual_ranks,
            drop_last=recipe.drop_last,
            streams=self.streams,
            repeats=recipe.repeats,
        )
        self.source = self._source(train)
        rank_of = {"rank": group.rank, "world_size": group.world_size}
        scored = {
            name: EvalSource(
                self._split(name),
                spec.dataset,
                recipe,
                group.device,
                decoder=self._decoder(),
                **rank_of,
            )
            for name in scored_sets(spec.dataset, self.plan.sets)
        }
        self.mark("model")
        self.numerics = make_numerics(
            group.device,
            precision=recipe.precision,
            tf32=recipe.tf32,
            deterministic=recipe.deterministic,
        )
        trainee = make_trainee(spec, self.streams)
        self.drawn_weights = of_weights(trainee) if self.plan.resume is None else ""
        self.loaded = self._start_weights(trainee.backbone)
        memory_format = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self.trainee = trainee.to(device=group.device, memory_format=memory_format)
        distillation = make_distillation(spec, self.plan, group.device, self.numerics)
        self.statistics = layers_with_statistics(trainee)
        self.optimizer = make_optimizer(trainee, recipe)
        self.schedule = make_schedule(self.optimizer, recipe, self.order.steps)
        self.mixup = make_mixup(recipe, spec.dataset.classes)
        self.objective = Objective(recipe, mixed=self.mixup is not None, distillation=distillation)
        self.patches = patch_work(spec.head, spec.dataset, trainee.patch, group.device)
        self.ema = make_ema(trainee, recipe)
        self.examiner = Examiner(
            trainee,
            self.ema,
            scored,
            group,
            self.numerics,
            self.patches,
            self.streams,
            metrics=own_metrics(self.plan.metrics),
            compiles=recipe.compile,
        )
        if self.plan.resume is None:
            # Every rank takes part: a head of somebody's own may remember a forward pass.
            found = fingerprints(self, train)
            if group.is_primary:
                weights = {} if self.loaded is None else {"weights": to_plain(self.loaded)}
                self.report("fingerprints", streams=found, **weights)
        self._resume()
        self.source.begin(self.global_step)
        self.model = self._wrapped()
        self.forward = self._compiled() if recipe.compile else self.model

    def _split(self, name: str) -> ImageSet:
        plan = self.plan
        return load_part(
            self.spec.dataset, name, self.streams, data_root=plan.data_root, paths=plan.paths
        )

    def _decoder(self) -> Decoder:
        """Return what decodes whole sets; a large one takes minutes, which is no hang."""
        return Decoder(
            folder=self.plan.decoded,
            workers=self.plan.decoders,
            limit_bytes=self.plan.decoded_bytes,
            on_progress=lambda: self.mark("decode"),
        )

    def _source(self, train: ImageSet) -> TrainSource:
        if self.recipe.pipeline == "tensor":
            return TensorSource(
                train,
                self.spec.dataset,
                self.recipe,
                self.streams,
                self.group.device,
                self._decoder(),
            )
        dataset, recipe, streams = self.spec.dataset, self.recipe, self.streams
        return PilSource(
            PilTransform(train, dataset, recipe, streams),
            self.order,
            Finish(dataset, recipe, streams, self.group.device),
            virtual_ranks=self.virtual_ranks,
            epochs=recipe.epochs,
            workers=self.plan.workers,
        )

    def _start_weights(self, backbone: torch.nn.Module) -> LoadedWeights | None:
        """Load what the run starts from; None where its weights are drawn or a checkpoint's."""
        weights = self.spec.backbone.weights
        if self.plan.resume is not None:
            return None
        if self.plan.init is not None and not self.spec.learns_from_parent:
            left = load_weights(backbone, self.plan.init)
            taken = len(backbone.state_dict()) - len(left)
            return LoadedWeights(loaded=taken, drawn=left, unused=[])
        if weights is None:
            return None
        return start_from(backbone, weights, Path(self.plan.paths[weights.fingerprint]))

    def _wrapped(self) -> torch.nn.Module:
        if self.group.world_size == 1:
            return self.trainee
        on_gpu = [self.group.device] if self.group.device.type == "cuda" else None
        model = torch.nn.parallel.DistributedDataParallel(
            self.trainee, device_ids=on_gpu, gradient_as_bucket_view=True, **BUFFERS_STAY
        )
        # DDP orders its gradient buckets after its first backward pass; in a resumed run that would
        # come at another step than in an uninterrupted one, and with three ranks or more the order
        # of summation would differ.
        self._backward_nothing(model)
        self.optimizer.zero_grad(set_to_none=True)
        return model

    def _compiled(self) -> Callable[..., Any]:
        """Compile for the parts that the shares of a whole batch are cut into.

        DDP is compiled as well, so that gradients are reduced while others are still computed.
        """
        batch = torch.arange(self.recipe.batch_size)
        parts = [
            part
            for share in batch.tensor_split(self.recipe.virtual_ranks)
            for part in share.chunk(self.plan.micro_split)
        ]
        return compiled(self.model, {len(part) for part in parts})

    # The loop -------------------------------------------------------------------------------------

    @property
    def global_step(self) -> int:
        return self.epoch * self.order.steps + self.step

    @property
    def total_steps(self) -> int:
        return self.recipe.epochs * self.order.steps

    def run(self) -> bool:
        """Train to the end; False where training was stopped, saved and can go on."""
        while self.epoch < self.recipe.epochs:
            if not self._train_epoch() or not self._evaluate_epoch():
                self.vote.settle()
                self.save()
                return False
            self.epoch, self.step = self.epoch + 1, 0
            self.sums.clear()
            if self.epoch == self.recipe.epochs or self.vote.save_due:
                self.save()
        self.vote.settle()
        return True

    def _train_epoch(self) -> bool:
        self.trainee.train()
        self._epoch_began = time.monotonic()
        self.pace.begin_epoch()
        self._mark_compilation("step")
        while self.step < self.order.steps:
            self._one_step()
            self.step += 1
            self.mark("train")
            if self.vote.agreed():
                return False
            if self.step < self.order.steps and self.vote.save_due:
                self.save()
        # Looking at the loss waits for the device, so that the epoch's steps are really done then.
        self._check_finite()
        self.pace.end_steps()
        return True

    def _one_step(self) -> None:
        shares = self.order.step(self.epoch, self.step)
        examples = sum(len(share) for share in shares)
        self.schedule.step_update(
            schedule_position(self.recipe, epoch=self.epoch, step=self.step, steps=self.order.steps)
        )
        for virtual_rank in self.virtual_ranks:
            last = virtual_rank == self.virtual_ranks[-1]
            with self._sync(last):
                self._accumulate(shares[virtual_rank], virtual_rank, examples, last)
        self._update()
        self.pace.step(examples)
        if self.group.device.type == "cpu" or self.step % CHECK_EVERY_STEPS == 0:
            self._check_finite()

    @property
    def head_weight(self) -> float:
        """The factor of the head's loss in this epoch."""
        return weight_at(self.spec.head, self.epoch, schedule_epochs(self.recipe))

    def _sync(self, last: bool) -> Any:
        """Reduce gradients once, with the last share's backward pass."""
        if last or self.group.world_size == 1:
            return contextlib.nullcontext()
        return self.model.no_sync()

    def _accumulate(self, indices: Tensor, virtual_rank: int, examples: int, last: bool) -> None:
        """Add one virtual rank's gradients; an example weighs 1 / examples of the whole batch."""
        position = Position(epoch=self.epoch, step=self.step, virtual_rank=virtual_rank)
        images, labels = self.pace.waiting(self.source.batch, indices, position)
        if not len(labels):
            if last and self.group.world_size > 1:
                self._backward_nothing(self.model)
            return
        where = (self.epoch, self.step, virtual_rank)
        targets: Tensor = labels
        if self.mixup is not None:
            self.streams.seed_numpy("mix", "mixup", *where)
            images, targets = self.mixup(images, labels)
        places = None
        if self.patches is not None:
            images, places = self.patches.train(
                images, self.streams.generator("augment", "patches", *where)
            )
        if self.recipe.channels_last:
            images = images.contiguous(memory_format=torch.channels_last)
        split = self.plan.micro_split
        with frozen_statistics(self.statistics, virtual_rank != 0):
            # Of a short batch there are fewer parts.
            moved = [None] * split if places is None else places.chunk(split)
            parts = list(zip(images.chunk(split), targets.chunk(split), moved, strict=False))
            draws = self.trainee.draw_parts(
                [len(part[0]) for part in parts],
                lambda part: self.streams.generator("pair", "head", *where, part),
            )
            for part, batch in enumerate(parts):
                whole = part == len(parts) - 1
                with (
                    contextlib.nullcontext()
                    if whole or self.group.world_size == 1
                    else self.model.no_sync()
                ):
                    self._backward(*batch, draws[part], (*where, part), examples)

    def _backward(
        self,
        images: Tensor,
        targets: Tensor,
        places: Tensor | None,
        draws: Any,
        where: tuple[int, ...],
        examples: int,
    ) -> None:
        count = len(images)
        self.streams.seed_torch("drop", "backbone", *where)
        with self.numerics.autocast():
            logits, head_loss, metrics = self.forward(images, draws, places)
        total, parts = self.objective(images, logits, targets, head_loss, self.head_weight)
        for name, value in parts.items():
            self.sums.add(name, value)
        # DDP averages over ranks; the factor turns that into the sum over all examples.
        self.numerics.scaler.scale(total * (self.group.world_size / examples)).backward()
        self.sums.add("loss", total.detach())
        # Made on the device: a copy to it would wait for the backward pass.
        self.sums.add("examples", torch.full((), float(count), device=self.group.device))
        for name, value in metrics.items():
            if name in OWN_SUMS:
                raise OwnPartError(
                    f"head {self.spec.head.name}: {name!r} is a reserved metric name"
                )
            self.sums.add(name, torch.as_tensor(value, device=self.group.device).detach() * count)

    def _backward_nothing(self, model: torch.nn.Module) -> None:
        """Take part in a reduction with gradients of zero."""
        channels = self.spec.dataset.channels
        size = input_side(self.spec.head, self.trainee.backbone, self.recipe.image_size)
        images = torch.zeros(2, channels, size, size, device=self.group.device)
        draws = self.trainee.draw(len(images), torch.Generator().manual_seed(0))
        with frozen_statistics(self.statistics, True):
            with self.numerics.autocast():
                logits, head_loss, metrics = model(images, draws)
            all_logits = logits if isinstance(logits, tuple) else (logits,)
            given = [part for part in (*all_logits, head_loss) if part is not None]
            torch.stack([part.float().sum() * 0.0 for part in given]).sum().backward()
        for name in (
            "loss",
            *(self.objective.names if self.trainee.labels else ()),
            "examples",
            *metrics,
        ):
            # Every rank must hold the same sums, or they cannot be added up.
            self.sums.add(name, torch.zeros(()))

    def _update(self) -> None:
        scaler = self.numerics.scaler
        scaler.unscale_(self.optimizer)
        if self.recipe.clip_grad is not None:
            norm = torch.nn.utils.clip_grad_norm_(self.trainee.parameters(), self.recipe.clip_grad)
            if self.group.is_primary:
                self.sums.add("grad_norm", norm.detach())
        scaler.step(self.optimizer)
        scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.update(self.trainee.backbone, step=self.global_step + 1)

    def _check_finite(self) -> None:
        loss = self.sums.values.get("loss")
        if loss is not None and not torch.isfinite(loss):
            raise Diverged(
                f"the loss is {float(loss)} at epoch {self.epoch + 1}, step {self.step + 1}"
            )

    # The end of an epoch --------------------------------------------------------------------------

    def _evaluate_epoch(self) -> bool:
        epoch = self.epoch + 1
        scores = None
        if epoch % self.plan.evaluate_every == 0 or epoch == self.recipe.epochs:
            self._mark_compilation("evaluation")
            scores = self.examiner.scores(self._keep_going, final=epoch == self.recipe.epochs)
            if scores is None:
                return False
        metrics = self._epoch_metrics()
        if self.group.is_primary:
            place = {"epoch": epoch, "step": self.global_step}
            self.report("epoch", **place, **self.pace.so_far, metrics=metrics)
            for name, of_set in (scores or {}).items():
                self.report("evaluation", **place, set=name, metrics=of_set)
            if self.log is not None:
                self.log.epoch(self._facts(metrics, scores or {}))
        return True

    def _facts(self, metrics: dict[str, float], scores: Scores) -> EpochFacts:
        return EpochFacts(
            epoch=self.epoch + 1,
            epochs=self.recipe.epochs,
            metrics=metrics,
            scores=scores,
            images_per_s=self.pace.images_per_s,
            memory_bytes=self.pace.peak_memory_bytes,
            left_s=self.pace.left_s(self.total_steps - self.global_step),
        )

    def _keep_going(self) -> bool:
        self.mark("evaluate")
        return not self.vote.agreed()

    def _epoch_metrics(self) -> dict[str, float]:
        sums = {name: float(values.sum()) for name, values in self.sums.of_ranks().items()}
        examples = sums.pop("examples")
        norm = sums.pop("grad_norm", None)
        metrics = {f"train_{name}": value / examples for name, value in sums.items()}
        if norm is not None and norm == norm and abs(norm) != float("inf"):
            metrics["grad_norm"] = norm / self.order.steps
        metrics["lr"] = max(group["lr"] for group in self.optimizer.param_groups)
        metrics["epoch_seconds"] = time.monotonic() - self._epoch_began
        return metrics

    # Checkpoints ----------------------------------------------------------------------------------

    def _checkpoint_due(self) -> bool:
        return (
            self.group.is_primary
            and time.monotonic() - self._saved_at >= self.plan.checkpoint_every_s
        )

    def save(self) -> None:
        """Publish a checkpoint of this very step; every rank must call, only the primary writes."""
        self.vote.save_due = False
        sums = self.sums.of_ranks() if self.sums.values else {}
        if not self.group.is_primary:
            return
        self.mark("checkpoint", always=True)
        state = {
            "epoch": self.epoch,
            "step": self.step,
            "head": self.trainee.head.state_dict() if self.trainee.head is not None else None,
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.numerics.scaler.state_dict(),
            "sums": sums,
        }
        _, size = checkpoint.save(
            self.plan.folder,
            run_id=self.plan.run_id,
            epoch=self.epoch,
            step=self.global_step,
            model=self.trainee.backbone.state_dict(),
            ema=self.ema.module.state_dict() if self.ema is not None else None,
            state=state,
            origin=self.plan.origin,
            correct=self.examiner.correct,
        )
        place = {"epoch": self.epoch, "step": self.global_step}
        self.report("checkpoint", **place, **self.pace.so_far, bytes=size)
        if not self.plan.superseded():
            checkpoint.keep_newest(self.plan.folder)
        self._saved_at = time.monotonic()

    def _resume(self) -> None:
        if self.plan.resume is None:
            return
        self.mark("resume")
        model, ema, state = checkpoint.load(self.plan.resume)
        self.trainee.backbone.load_state_dict(model)
        if self.trainee.head is not None:
            self.trainee.head.load_state_dict(state["head"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.numerics.scaler.load_state_dict(state["scaler"])
        if self.ema is not None:
            self.ema.module.load_state_dict(ema)
        self.epoch, self.step = int(state["epoch"]), int(state["step"])
        self.sums.restore(state["sums"])

    def _mark_compilation(self, of: str) -> None:
        """Say that what comes next is compiled at its first time, which takes minutes."""
        if self.recipe.compile and of not in self._compiled_before:
            self._compiled_before.add(of)
            self.mark("compile", always=True)

    def mark(self, phase: str, *, always: bool = False) -> None:
        """Tell the agent that this rank makes progress, at most once a second."""
        now = time.monotonic()
        if always or now - self._marked_at >= MARK_EVERY_S or phase in ("data", "model", "resume"):
            self._marked_at = now
            position = {}
            if hasattr(self, "order"):
                position = {
                    "epoch": self.epoch,
                    "step": self.global_step,
                    "steps": self.total_steps,
                    "trained_s": self.pace.trained_s,
                }
            self.report("mark", phase=phase, **position)
