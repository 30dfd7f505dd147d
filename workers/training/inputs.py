"""What a run's ranks read: the batches it trains on, and the sets it is scored on."""

from dataclasses import dataclass

from ...jobs.grid import catalogue
from ...jobs.run.spec import RunSpec
from ..data.ahead import Ahead
from ..data.batches import EvalSource, Finish, Order, TensorSource, TrainSource
from ..data.datasets import load_part, scored_sets
from ..data.image_set import ImageSet
from ..data.mask_pipeline import MaskSource
from ..data.object_pipeline import ObjectSource
from ..data.timm_pipeline import PilSource, samples
from ..randomness import Streams
from .group import Group
from .plan import TrainingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Makes the sources of one rank."""

    spec: RunSpec
    plan: TrainingPlan
    group: Group
    streams: Streams
    ahead: Ahead
    """Decodes the sets that are scored."""

    @property
    def virtual_ranks(self) -> list[int]:
        """Those whose shares this rank computes."""
        share = self.spec.recipe.virtual_ranks // self.group.world_size
        return list(range(self.group.rank * share, (self.group.rank + 1) * share))

    def part(self, name: str) -> ImageSet:
        """Return the images of a part such as `train` or `test`."""
        plan = self.plan
        return load_part(
            self.spec.dataset, name, self.streams, data_root=plan.data_root, paths=plan.paths
        )

    def order(self, images: int) -> Order:
        """Return in what order so many images are trained on."""
        recipe = self.spec.recipe
        return Order(
            images,
            recipe.batch_size,
            recipe.virtual_ranks,
            drop_last=recipe.drop_last,
            streams=self.streams,
            repeats=recipe.repeats,
        )

    def train(self, images: ImageSet, order: Order) -> TrainSource:
        """Return the batches to train on."""
        dataset, recipe, streams = self.spec.dataset, self.spec.recipe, self.streams
        device = self.group.device
        if not recipe.has_workers:
            return TensorSource(
                images,
                dataset,
                recipe,
                streams,
                device,
                self.ahead.decoder,
                views=self.spec.head.views,
            )
        return PilSource(
            samples(images, dataset, recipe, streams),
            order,
            Finish(dataset, recipe, streams, device),
            virtual_ranks=self.virtual_ranks,
            epochs=recipe.epochs,
            workers=self.plan.workers,
            views=self.spec.head.views,
        )

    def scored(self) -> dict[str, EvalSource | MaskSource | ObjectSource]:
        """Return set -> this rank's share of it, for all sets that are scored."""
        names = scored_sets(self.spec.dataset, self.plan.sets)
        if self.spec.dataset.has_classes:
            return {name: self._batches(name) for name in names}
        kind = MaskSource if self.spec.dataset.has_masks else ObjectSource
        return {name: self._whole(name, kind) for name in names}

    def _batches(self, name: str) -> EvalSource:
        spec, group = self.spec, self.group
        return EvalSource(
            self.part(name),
            spec.dataset,
            catalogue.recipe_on(name, spec.dataset, spec.recipe),
            group.device,
            decoder=self.ahead,
            rank=group.rank,
            world_size=group.world_size,
        )

    def _whole(self, name: str, kind: type[MaskSource | ObjectSource]) -> MaskSource | ObjectSource:
        spec, group = self.spec, self.group
        return kind(
            self.part(name),
            spec.dataset,
            spec.recipe,
            group.device,
            rank=group.rank,
            world_size=group.world_size,
            threads=self.plan.decoders,
        )
