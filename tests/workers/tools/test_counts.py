"""What is counted of a cell's model."""

from vtjobs.jobs.values import changed
from vtjobs.workers.tools.counts import count

from ...support.training import VIT, run_spec


def test_the_head_counts_apart_from_the_backbone() -> None:
    plain, relvit = count(run_spec(VIT)), count(run_spec(VIT, "relvit"))
    assert plain.error is None and relvit.error is None
    assert (plain.head_parameters, plain.parameters) == (0, relvit.parameters)
    assert relvit.head_parameters > 0


def test_more_pixels_are_more_operations_and_as_many_parameters() -> None:
    small, large = count(run_spec(VIT)), count(run_spec(VIT, image_size=32))
    assert large.multiply_adds > 2 * small.multiply_adds
    # Positions are more, at most.
    assert large.parameters >= small.parameters


def test_what_cannot_be_made_says_why() -> None:
    spec = run_spec(VIT)
    found = count(changed(spec, backbone=changed(spec.backbone, model="no_such_model")))
    assert "no_such_model" in (found.error or "") and found.parameters == 0
