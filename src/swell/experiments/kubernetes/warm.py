"""Are the images of a workload on every node before anything is measured? Simulated nodes need none."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import PODS
from swell.errors import Rejected, Unavailable
from swell.experiments.experiment import Experiment
from swell.experiments.kubernetes.nodes import UsableNode
from swell.experiments.kubernetes.render import fill_template, pod_templates
from swell.experiments.workloads import draw_gangs

LABEL = "swell.dev/experiment-image"
PULLED_S_MAX = 900.0
LOOK_S = 0.5
REFUSED = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


def images_of(experiment: Experiment) -> tuple[tuple[str, str], ...]:
    """Image and pull policy of every container of a gang's pods, those that only prepare them included."""
    workload = experiment.workload
    if not workload.template:
        return ((workload.image, "IfNotPresent"),)
    gang = draw_gangs(workload, experiment.seed, 1)[0]
    documents = fill_template(workload.template, gang, experiment.contenders[0])
    found = [pair for document in documents for pod in pod_templates(document) for pair in _images(pod["spec"])]
    return tuple(sorted(set(found)))


def _images(spec: Document) -> Iterator[tuple[str, str]]:
    for container in (*spec["containers"], *(spec.get("initContainers") or ())):
        policy = str(container.get("imagePullPolicy") or "IfNotPresent")
        yield str(container.get("image")), "IfNotPresent" if policy == "Always" else policy


def pull_images(client: ApiClient, experiment: Experiment, nodes: Sequence[UsableNode]) -> None:
    """A pod on each real node with every image; what it then does in them is of no interest."""
    real = [node.name for node in nodes if not node.is_simulated]
    namespace = experiment.cluster.namespace
    for number, (image, policy) in enumerate(images_of(experiment) if real else ()):
        names = [f"pull-{number}-{place}" for place in range(len(real))]
        for name, node in zip(names, real, strict=True):
            client.create(PODS, _pod(name, node, image, policy), namespace)
        _await_images(client, namespace, set(names), image)
        for name in names:
            client.delete(PODS, name, namespace, grace_s=0)


def _pod(name: str, node: str, image: str, policy: str) -> Document:
    container = {"name": "main", "image": image, "imagePullPolicy": policy, "command": ["true"]}
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {LABEL: "yes"}}, "spec": spec}


def _await_images(client: ApiClient, namespace: str, names: set[str], image: str) -> None:
    until = time.monotonic() + PULLED_S_MAX
    left = set(names)
    while left and time.monotonic() < until:
        for pod in client.list(Selection(PODS, namespace, labels=LABEL)).items:
            for state in (pod.get("status") or {}).get("containerStatuses") or ():
                waiting = (state.get("state") or {}).get("waiting") or {}
                if waiting.get("reason") in REFUSED:
                    where = pod["spec"]["nodeName"]
                    raise Rejected(f"node {where} cannot get image {image!r}: {waiting.get('message', '')}")
                if state.get("imageID"):
                    left.discard(pod["metadata"]["name"])
        time.sleep(LOOK_S)
    if left:
        raise Unavailable(f"image {image!r} was not on every node after {PULLED_S_MAX:.0f} s")
