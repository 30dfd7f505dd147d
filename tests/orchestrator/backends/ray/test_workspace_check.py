"""What is said of a cluster on whose nodes vtjobs cannot run."""

from vtjobs.orchestrator.backends.ray.api import Api
from vtjobs.orchestrator.backends.ray.workspace_check import _mismatch

from .conftest import Head

SAID = """\
vtjobs-versions {"ray_version": "2.40.0", "python_version": "3.10.1"}
RuntimeError: Version mismatch: The cluster was started with:
    Python: 3.10.1
"""


def test_versions_that_differ_are_named_with_what_to_install(head: Head) -> None:
    metadata = {"rayVersion": "2.60.0", "pythonVersion": "3.11.7"}
    head.answers["/api/v0/cluster_metadata"] = {"data": metadata}
    assert _mismatch(Api(head.address), SAID, "/opt/python") == (
        "this cluster runs Ray 2.60.0 on Python 3.11.7, and the interpreter /opt/python on its"
        " nodes has Ray 2.40.0 on Python 3.10.1. Install ray==2.60.0 there on Python 3.11.7, or set"
        " backend.ray.python to an interpreter with the cluster's versions"
    )


def test_where_they_are_the_same_something_else_is_wrong(head: Head) -> None:
    metadata = {"rayVersion": "2.40.0", "pythonVersion": "3.10.1"}
    head.answers["/api/v0/cluster_metadata"] = {"data": metadata}
    assert _mismatch(Api(head.address), SAID, "/opt/python") == ""
    assert _mismatch(Api(head.address), "no such module", "/opt/python") == ""


def test_a_cluster_that_does_not_say_its_versions_is_not_called_wrong(head: Head) -> None:
    assert _mismatch(Api(head.address), SAID, "/opt/python") == ""
