"""Which objects of Kubernetes would a job in our own notation be?"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.aspod import NO_IMAGE
from swell.manifests.native_objects import RUN_AS, native_objects, object_name
from swell.manifests.writers.rendering import Rendering, as_yaml, is_elastic, lost, width_text
from swell.manifests.writers.variables import lost_variables
from swell.model.job import JobSpec, ResizeMode

TARGET = "plain objects of Kubernetes"


def write_kubernetes(spec: JobSpec) -> Rendering:
    if spec.container is None:
        raise Rejected(NO_IMAGE)
    name = object_name(spec.name, 1)
    width = spec.array.at_once if spec.array else spec.width_min
    plain = replace(spec, tensorboard=None)
    objects = native_objects(plain, name=name, namespace="default", width=width, run_as=RUN_AS)
    return Rendering(as_yaml(objects), _losses(spec, _written(objects)))


def _written(objects: Sequence[dict[str, Any]]) -> set[str]:
    """Variables of every pod. Kubernetes adds the index to those of an Indexed Job."""
    jobs = [one for one in objects if one["kind"] == "Job"]
    pods = [one["spec"] for one in objects if one["kind"] == "Pod"] + [one["spec"]["template"]["spec"] for one in jobs]
    names = [{variable["name"] for variable in pod["containers"][0]["env"]} for pod in pods]
    return set.intersection(*names) | ({"JOB_COMPLETION_INDEX"} if jobs else set())


def _losses(spec: JobSpec, written: Collection[str]) -> tuple[str, ...]:
    assert spec.container is not None
    width = f"a width of {width_text(spec)} (these objects have {spec.width_min})"
    return lost(
        {
            width: is_elastic(spec),
            "starting all pods together": spec.tasks_total > 1 and spec.array is None,
            "an array of indices that are not 0, 1, 2 …": spec.array
            and any(given != place for place, given in enumerate(spec.array.indices)),
            "a GPU's least memory": any(role.resources.gpus and role.resources.gpu_memory_mib for role in spec.roles),
            "a share of a GPU by memory": any(role.resources.is_share for role in spec.roles),
            "mounts of the machine's folders": spec.container.mounts,
            "ports of the machine": spec.container.ports,
            "secrets of your environment": any(not one.secret for one in spec.secrets),
            "folders of the machine beside volumes": any(one.folder for one in spec.container.volumes),
            **common_losses(spec),
            **lost_variables(spec, written),
        },
        TARGET,
    )


def common_losses(spec: JobSpec) -> dict[str, object]:
    """What only Swell does."""
    return {
        "priority": spec.priority,
        "epochs": spec.epochs,
        "hours": spec.estimate_s,
        "ownCurve": spec.has_own_curve,
        "checkpointEvery": spec.saves_every_s,
        "resize": spec.resize is not ResizeMode.AT_CHECKPOINT,
        "after": spec.after,
        "notify": spec.notify,
        "files of its own (uploaded, inputs, outputs)": spec.files,
        "tensorboard": spec.tensorboard,
        "checkpoints": spec.checkpoints,
        "utilizationPolicy": spec.idle,
        "retries of a gang": spec.retries and spec.array is None,
        "rules about exit codes": spec.exit_rules,
    }
