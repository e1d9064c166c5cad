"""A Kubernetes cluster, as those know it who measure contenders one after the other."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from swell.engines.kubernetes.client.access import find_access
from swell.engines.kubernetes.client.api_client import ApiClient, Selection
from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.client.resources import PODS, Resource
from swell.errors import SwellError
from swell.experiments.events import RunEvent
from swell.experiments.experiment import ContenderWanted, Experiment
from swell.experiments.figures import RunFacts
from swell.experiments.kubernetes.checks import refuse_rights, refuse_unmeasurable
from swell.experiments.kubernetes.contender import ClusterContender, Surroundings, remove_crds
from swell.experiments.kubernetes.contenders import contender_of
from swell.experiments.kubernetes.measured import measure
from swell.experiments.kubernetes.namespace import ExperimentNamespace
from swell.experiments.kubernetes.nodes import (
    SystemPods,
    capacity_of,
    describe_nodes,
    describe_scheduler_pods,
    describe_topology,
    usable_nodes,
)
from swell.experiments.kubernetes.warm import pull_images
from swell.experiments.measure import GangAsked

NODES = Resource("", "v1", "nodes", "Node", is_namespaced=False)
NOT_MADE = Path("/nonexistent")  # a contender that is only asked needs no folder


class KubernetesCluster:
    """Connects when it is made; touches nothing before the first run."""

    def __init__(self, experiment: Experiment, folder: Path, programs: Path | None) -> None:
        wanted = experiment.cluster
        kubeconfig = Path(wanted.kubeconfig).expanduser() if wanted.kubeconfig else None
        self._client = ApiClient(find_access(kubeconfig, wanted.context or None), agent="swell-experiment")
        self._programs = programs
        self._experiment = experiment
        self._namespace = ExperimentNamespace(self._client, wanted.namespace, folder)
        self._nodes = self._client.list(Selection(NODES)).items
        self._usable = usable_nodes(self._nodes, self._pods(), wanted.namespace)
        self.capacity = capacity_of(self._usable)
        self._is_warm = False
        self._undo = ExitStack()  #: of the run that was begun last
        self._measured: ClusterContender | None = None  #: in it; None: cleaned up

    def close(self) -> None:
        """What a run leaves for the next one, and nobody else wants, is taken away."""
        with suppress(SwellError):
            remove_crds(self._client)
        self._client.close()

    def check(self, experiment: Experiment) -> None:
        contenders = [self._contender(one, NOT_MADE) for one in experiment.contenders]
        refuse_rights(experiment, self._client, contenders)
        refuse_unmeasurable(experiment, self._namespace, self._usable, self._pods(), contenders)

    def _pods(self) -> tuple[Document, ...]:
        return self._client.list(Selection(PODS)).items

    def _contender(self, wanted: ContenderWanted, scratch: Path) -> ClusterContender:
        memory = sum(node.room.memory_mib for node in self._usable)
        around = Surroundings(
            self._client, self._experiment.cluster.namespace, self.capacity, memory, self._programs, scratch
        )
        return contender_of(wanted, around)

    # -- what is kept of it ------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        system = SystemPods.of(self._experiment)
        return {
            "nodes": describe_nodes(self._nodes),
            "topology": describe_topology(self._nodes),
            "scheduler-pods": describe_scheduler_pods(pod for pod in self._pods() if system.has(pod)),
        }

    def versions(self) -> dict[str, str]:
        kubelets = sorted(
            {one["status"]["nodeInfo"].get("kubeletVersion", "") for one in self._nodes if _has_info(one)}
        )
        found = {
            f"contender {one.name}": self._contender(one, NOT_MADE).version() for one in self._experiment.contenders
        }
        return {"kubernetes": self._client.version(), "kubelets": ", ".join(kubelets), **found}

    # -- one run -----------------------------------------------------------------------------------------------

    def run(
        self,
        contender: ContenderWanted,
        gangs: Sequence[GangAsked],
        repeat: int,
        experiment: Experiment,
        progress: Callable[[int, int], None],
    ) -> tuple[RunFacts, tuple[RunEvent, ...]]:
        self._namespace.remove()  # what a crash has left
        scratch = self._undo.enter_context(tempfile.TemporaryDirectory(prefix="swell-experiment-"))
        self._measured = measured = self._contender(contender, Path(scratch))
        self._undo.callback(measured.stop)
        self._undo.callback(self._namespace.remove)
        self._namespace.make()
        if not self._is_warm:
            pull_images(self._client, experiment, self._usable)
            self._is_warm = True
        measured.start()
        return measure(self._client, measured, gangs, repeat, experiment, self._usable, progress)

    def contender_files(self) -> dict[str, bytes]:
        return {} if self._measured is None else self._measured.files()

    def clean_up(self) -> None:
        """What was made is removed first, and then the contender is stopped: a controller that holds on to its objects
        has to let them go."""
        self._measured = None
        self._undo.close()


def _has_info(node: Document) -> bool:
    return "nodeInfo" in (node.get("status") or {})
