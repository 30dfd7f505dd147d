"""The Ray clusters of deploy/ are what Ray's launcher and the KubeRay operator take, and what
vtjobs needs.
"""

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "ray"

TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}


def mapping(required: str = "", **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def many(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item, "minItems": 1}


FREE = {"type": "object", "additionalProperties": TEXT}
AMOUNTS = {"type": "object", "additionalProperties": {"type": ["string", "integer"]}}
POD = mapping(
    "spec",
    spec=mapping(
        "containers",
        securityContext=mapping(runAsUser=COUNT, runAsGroup=COUNT, fsGroup=COUNT),
        nodeSelector=FREE,
        tolerations=many(
            mapping("key operator", key=TEXT, operator={"enum": ["Exists", "Equal"]}, effect=TEXT)
        ),
        containers=many(
            mapping(
                "name image",
                name=TEXT,
                image=TEXT,
                env=many(mapping("name value", name=TEXT, value=TEXT)),
                resources=mapping(requests=AMOUNTS, limits=AMOUNTS),
                volumeMounts=many(mapping("name mountPath", name=TEXT, mountPath=TEXT)),
            )
        ),
        volumes=many(
            mapping(
                "name",
                name=TEXT,
                persistentVolumeClaim=mapping("claimName", claimName=TEXT),
                emptyDir=mapping(medium=TEXT, sizeLimit=TEXT),
            )
        ),
    ),
)
# What the operator's definition of ray.io/v1 RayCluster says of the fields that we use: unknown
# ones are dropped there in silence, so none is allowed here.
RAY_CLUSTER = mapping(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayCluster"},
    metadata=mapping("name", name=TEXT),
    spec=mapping(
        "headGroupSpec",
        rayVersion=TEXT,
        authOptions=mapping(mode={"enum": ["disabled", "token"]}, secretName=TEXT),
        enableInTreeAutoscaling={"type": "boolean"},
        autoscalerOptions=mapping(idleTimeoutSeconds=COUNT),
        headGroupSpec=mapping("template", serviceType=TEXT, rayStartParams=FREE, template=POD),
        workerGroupSpecs=many(
            mapping(
                "groupName minReplicas maxReplicas template",
                groupName=TEXT,
                replicas=COUNT,
                minReplicas=COUNT,
                maxReplicas=COUNT,
                rayStartParams=FREE,
                template=POD,
            )
        ),
    ),
)


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    return found


def test_rays_launcher_takes_the_cluster() -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    validate_config(prepare_config(read("cluster.yaml")))


def test_no_node_of_the_launchers_cluster_starts_without_a_token() -> None:
    found = read("cluster.yaml")
    commands = [*found["head_start_ray_commands"], *found["worker_start_ray_commands"]]
    starts = [command for command in commands if "ray start" in command]
    assert len(starts) == 2 and all(
        command.startswith("RAY_AUTH_MODE=token ") for command in starts
    )
    assert "--dashboard-host=127.0.0.1" in starts[0]


def test_the_operator_takes_the_cluster() -> None:
    jsonschema.validate(read("kuberay.yaml"), RAY_CLUSTER)


@pytest.mark.parametrize("change", [{"authoptions": {}}, {"authOptions": {"mode": "tokens"}}])
def test_a_slip_in_the_operators_cluster_would_be_seen(change: dict[str, Any]) -> None:
    found = read("kuberay.yaml")
    found["spec"] |= change
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(found, RAY_CLUSTER)


def test_the_operators_cluster_asks_for_a_token_and_every_pod_sees_the_shared_folder() -> None:
    spec = read("kuberay.yaml")["spec"]
    assert spec["authOptions"] == {"mode": "token"}
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        assert "/shared" in [mount["mountPath"] for mount in container["volumeMounts"]]
        names = {volume["name"] for volume in group["template"]["spec"]["volumes"]}
        assert names == {mount["name"] for mount in container["volumeMounts"]}


def test_every_gpu_group_grants_the_gpus_of_a_node() -> None:
    for group in read("kuberay.yaml")["spec"]["workerGroupSpecs"]:
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == 8
