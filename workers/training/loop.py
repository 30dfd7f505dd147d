"""The training loop.

One optimizer step from the shares of all virtual ranks, whatever number of real ranks.
"""

import time
from collections.abc import Callable
from typing import Any

import torch

from ...jobs.documents import to_plain
from ...jobs.run.spec import RunSpec
from ..checkpoints import checkpoint
from ..data.ahead import Ahead
from ..data.decoded import Decoder
from ..data.patches import patch_work
from ..heads.base import weight_at
from ..heads.features import FeatureHead
from ..own_functions import own_metrics
from ..randomness import Streams
from .after_step import AfterStep
from .compiled import compiled, usual_sizes
from .distill import make_distillation
from .evaluate import Examiner
from .fingerprint import fingerprints, of_weights
from .gradients import Gradients, ShareByShare, SideBySide
from .group import Group, StopVote, in_ddp
from .inputs import Inputs
from .lockstep import InLockstep, make_lockstep
from .marks import Marks
from .mixup import make_mixup
from .objective import make_objective
from .pace import Pace
from .parts import leave_trainable
from .plan import TrainingPlan
from .run_log import EpochFacts, RunLog, Scores
from .schedule import make_schedule, schedule_epochs, schedule_position
from .state import publish, restore
from .sums import EpochSums, means_of
from .trainee import (
    layers_with_statistics,
    load_start,
    make_ema,
    make_numerics,
    make_optimizer,
    make_trainee,
)

Report = Callable[..., None]

# How often the loss is looked at on a GPU, where looking waits for the device.
CHECK_EVERY_STEPS = 50


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
        self._saved_at = time.monotonic()
        self.marks = Marks(report, self._position, compiles=spec.recipe.compile)
        self._set_up()

    # Set-up ---------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        self.marks.mark("data")
        self._set_up_data()
        self.marks.mark("model")
        self._set_up_model()
        self._set_up_step()
        if self.plan.resume is None:
            self._report_fingerprints()
        else:
            self.marks.mark("resume")
            restore(self, self.plan.resume)
        self.after_step = AfterStep(self.trainee.head, self.trainee.backbone, self.group)
        self.source.begin(self.global_step)
        self._set_up_passes()

    def _set_up_data(self) -> None:
        plan = self.plan
        decoder = Decoder(
            folder=plan.decoded,
            workers=plan.decoders,
            limit_bytes=plan.decoded_bytes,
            # A large set takes minutes, which is no hang.
            on_progress=lambda: self.marks.mark("decode"),
        )
        self.ahead, self.is_decoded = Ahead(decoder=decoder), False
        self.inputs = Inputs(
            spec=self.spec, plan=plan, group=self.group, streams=self.streams, ahead=self.ahead
        )
        self.train_part = self.inputs.part("train")
        self.virtual_ranks = self.inputs.virtual_ranks
        self.order = self.inputs.order(len(self.train_part))
        self.source = self.inputs.train(self.train_part, self.order)
        self.scored = self.inputs.scored()

    def _set_up_model(self) -> None:
        spec, recipe = self.spec, self.recipe
        self.numerics = make_numerics(
            self.group.device,
            precision=recipe.precision,
            tf32=recipe.tf32,
            deterministic=recipe.deterministic,
        )
        trainee = make_trainee(spec, self.streams)
        self.drawn_weights = of_weights(trainee) if self.plan.resume is None else ""
        self.loaded = load_start(spec, self.plan, trainee.backbone)
        if isinstance(trainee.head, FeatureHead):
            self.streams.seed_torch("init", "memory")
            trainee.head.begin(trainee.backbone, self.train_part.labels)
        # After loading, which takes what needs no gradient for a part of the architecture.
        leave_trainable(trainee, recipe)
        self.lockstep = make_lockstep(trainee, recipe, self.group)
        memory_format = torch.channels_last if recipe.channels_last else torch.contiguous_format
        self.trainee = trainee.to(device=self.group.device, memory_format=memory_format)

    def _set_up_step(self) -> None:
        """Make what a step and an evaluation need beside the model and the data."""
        spec, recipe, trainee, device = self.spec, self.recipe, self.trainee, self.group.device
        self.pace.of(trainee.backbone)
        distillation = make_distillation(spec, self.plan, device, self.numerics)
        self.statistics = layers_with_statistics(trainee)
        self.optimizer = make_optimizer(trainee, recipe)
        self.schedule = make_schedule(self.optimizer, recipe, self.order.steps)
        self.mixup = mix = make_mixup(recipe, spec.dataset.classes)
        self.objective = make_objective(spec, mixed=mix is not None, distillation=distillation)
        self.patches = patch_work(spec.head, spec.dataset, trainee.patch, device)
        self.ema = make_ema(trainee, recipe)
        self.examiner = Examiner(
            trainee,
            self.ema,
            self.scored,
            self.group,
            self.numerics,
            self.patches,
            self.streams,
            metrics=own_metrics(self.plan.metrics),
            compiles=recipe.compile,
            records_depth=self.plan.record_depth,
            beat=lambda: self.marks.mark("evaluate"),
        )

    def _report_fingerprints(self) -> None:
        # Every rank takes part: a head of somebody's own may remember a forward pass.
        found = fingerprints(self, self.train_part)
        if self.group.is_primary:
            weights = {} if self.loaded is None else {"weights": to_plain(self.loaded)}
            self.report("fingerprints", streams=found, **weights)

    def _set_up_passes(self) -> None:
        """Decide how shares go through the model, and put that in DDP where there are ranks."""
        self.model: torch.nn.Module = self.trainee
        self.gradients: Gradients = ShareByShare(self)
        if self.lockstep is not None:
            self.model = InLockstep(self.trainee, self.lockstep)
            self.gradients = SideBySide(self)
        if self.group.world_size > 1:
            self.model = in_ddp(self.model, self.group)
        self.forward: Callable[..., Any] = self.model
        if self.group.world_size > 1:
            # DDP orders its gradient buckets after its first backward pass; in a resumed run that
            # would come at another step than in an uninterrupted one, and with three ranks or more
            # the order of summation would differ.
            self.gradients.backward_nothing()
            self.optimizer.zero_grad(set_to_none=True)
        if self.recipe.compile:
            # In DDP, so that gradients are reduced while others are still computed.
            sizes = usual_sizes(self.recipe, self.plan.micro_split, self.trainee.views)
            self.forward = compiled(self.model, sizes)

    # The loop -------------------------------------------------------------------------------------

    @property
    def global_step(self) -> int:
        return self.epoch * self.order.steps + self.step

    @property
    def total_steps(self) -> int:
        return self.recipe.epochs * self.order.steps

    def run(self) -> bool:
        """Train to the end; False where training was stopped, saved and can go on."""
        with self.ahead:
            return self._run()

    def _run(self) -> bool:
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
        self.marks.first_time("step")
        while self.step < self.order.steps:
            self._one_step()
            self.step += 1
            self.marks.mark("train")
            if self.vote.agreed():
                return False
            if self.step < self.order.steps and self.vote.save_due:
                self.save()
        # Looking at the loss waits for the device, so that the epoch's steps are really done then.
        self.sums.check_finite(self.epoch, self.step)
        self.pace.end_steps()
        return True

    def _one_step(self) -> None:
        shares = self.order.step(self.epoch, self.step)
        examples = sum(len(share) for share in shares)
        self.schedule.step_update(
            schedule_position(self.recipe, epoch=self.epoch, step=self.step, steps=self.order.steps)
        )
        self.gradients.add(shares)
        self._update()
        self.after_step.tell(shares)
        self.pace.step(examples)
        if self.group.device.type == "cpu" or self.step % CHECK_EVERY_STEPS == 0:
            self.sums.check_finite(self.epoch, self.step)
            self.ahead.check()

    @property
    def head_weight(self) -> float:
        """The factor of the head's loss in this epoch."""
        return weight_at(self.spec.head, self.epoch, schedule_epochs(self.recipe))

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

    # The end of an epoch --------------------------------------------------------------------------

    def _evaluate_epoch(self) -> bool:
        epoch = self.epoch + 1
        scores = None
        if epoch % self.plan.evaluate_every == 0 or epoch == self.recipe.epochs:
            if not self._images_are_ready():
                return False
            self.marks.first_time("evaluation")
            scores = self.examiner.scores(self._keep_going, final=epoch == self.recipe.epochs)
            if scores is None:
                return False
        metrics = self._epoch_metrics() | (self.examiner.depths if scores else {})
        if self.group.is_primary:
            place = {"epoch": epoch, "step": self.global_step}
            self.report("epoch", **place, **self.pace.so_far, metrics=metrics)
            for name, of_set in (scores or {}).items():
                self.report("evaluation", **place, set=name, metrics=of_set)
            if self.log is not None:
                self.log.epoch(self._facts(metrics, scores or {}))
        return True

    def _images_are_ready(self) -> bool:
        """Decode what is missing, file by file on all ranks; False where they agreed to stop."""
        while not self.is_decoded:
            waits = torch.tensor([not self.ahead.advance()], dtype=torch.float64)
            self.is_decoded = not self.group.sum(waits).item()
            if not self.is_decoded and not self._keep_going():
                return False
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
        self.marks.mark("evaluate")
        return not self.vote.agreed()

    def _epoch_metrics(self) -> dict[str, float]:
        metrics = means_of(self.sums.of_ranks(), steps=self.order.steps)
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
        self.marks.mark("checkpoint")
        self.pace.settle()
        size = publish(self, sums)
        place = {"epoch": self.epoch, "step": self.global_step}
        self.report("checkpoint", **place, **self.pace.so_far, bytes=size)
        if not self.plan.superseded():
            checkpoint.keep_newest(self.plan.folder)
        self._saved_at = time.monotonic()
        self.pace.saved()

    def _position(self) -> dict[str, Any]:
        if not hasattr(self, "order"):
            return {}
        return {
            "epoch": self.epoch,
            "step": self.global_step,
            "steps": self.total_steps,
            "trained_s": self.pace.trained_s,
        }
