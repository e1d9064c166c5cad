"""batch/v1 Job: an array of tasks, or a gang when its pods are in a pod group.

Of a suspended Job only how many pods it has can be changed, and where they may go: other GPUs mean another object.
"""

from __future__ import annotations

from swell.engines.kubernetes.client.documents import Document
from swell.engines.kubernetes.objects.objects import Filling, ObjectSeen, PodTemplateGroup, read_object, read_verdict
from swell.engines.kubernetes.objects.pod_template import fill_template, gpus_of
from swell.engines.kubernetes.watch.observed_objects import INDEX, RANK, PodSeen, parse_number
from swell.model.kind import JOB


class JobKind:
    api_version = JOB.api_version
    name = JOB.name
    is_job = True
    makes_jobs = False
    resizes_in_place = False

    def read(self, document: Document) -> ObjectSeen:
        spec, status = document["spec"], document.get("status") or {}
        return read_object(
            document,
            is_suspended=bool(spec.get("suspend")),
            verdict=read_verdict(document, good="Complete"),
            groups=[
                PodTemplateGroup(
                    "", int(spec.get("completions") or spec.get("parallelism") or 1), gpus_of(spec["template"]["spec"])
                )
            ],
            templates=self.templates(document),
            is_of_jobs=True,
            failed_indexes=str(status.get("failedIndexes") or ""),
        )

    def templates(self, document: Document) -> list[Document]:
        return [document["spec"]["template"]]

    def fill(self, document: Document, filling: Filling) -> Document:
        spec = {name: value for name, value in document["spec"].items() if name != "ttlSecondsAfterFinished"}
        if not filling.is_array:
            spec |= {"completions": filling.roles[0].tasks, "parallelism": filling.roles[0].tasks}
        # Numbered where it can be: then every pod has a rank that outlives us.
        mode = {"completionMode": "Indexed"} if spec.get("completions") is not None else {}
        template = fill_template(spec["template"], filling.roles[0], filling)
        return {
            **document,
            "metadata": filling.marked(document["metadata"]),
            "spec": {**spec, **mode, "suspend": True, "template": template},
        }

    def change(self, live: Document, filled: Document, *, is_array: bool) -> Document | None:
        """Numbers of pods only; what an attempt is told is in its Secret, which the template names already."""
        before, after = live["spec"]["template"]["spec"], filled["spec"]["template"]["spec"]
        if gpus_of(before) != gpus_of(after) or (has_done_some(live) and not is_array):
            return None  # what has succeeded in it is not done again, and a gang needs all of its ranks
        counts = {
            name: filled["spec"][name]
            for name in ("completions", "parallelism")
            if filled["spec"].get(name) != live["spec"].get(name)
        }
        return {"metadata": {"annotations": filled["metadata"]["annotations"]}, "spec": counts}

    def suspension(self, is_suspended: bool) -> Document:
        return {"spec": {"suspend": is_suspended}}

    def rank(self, pod: PodSeen, seen: ObjectSeen) -> int | None:
        text = pod.annotations.get(INDEX) or pod.labels.get(INDEX) or pod.annotations.get(RANK)
        return parse_number(text or "")


def has_done_some(job: Document) -> bool:
    return bool((job.get("status") or {}).get("succeeded"))
