"""Is what Swell believes what the pods show, at a quiet moment?

Pure: from the pods and nodes of the cluster, Swell's own nodes and jobs, and what users have applied.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .objects import GROUP, OF, Thing

Document = dict[str, Any]
ENDED = ("Succeeded", "Failed")
OPEN = ("queued", "starting", "running", "stopping", "held")
GPU = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Picture:
    pods: Sequence[Document]
    nodes: Sequence[Document]
    offered: Sequence[Document]  #: `swell nodes -o json`
    jobs: Sequence[Document]  #: `swell ps -a -o json`
    things: Sequence[Thing]  #: what is there and belongs to somebody


def gpus_of(pod: Document) -> int:
    return sum(int((one["resources"].get("limits") or {}).get(GPU, 0)) for one in pod["spec"]["containers"])


def is_placed(pod: Document) -> bool:
    return "nodeName" in pod["spec"] and pod["status"].get("phase") not in ENDED


def judge(picture: Picture) -> list[str]:
    """What is wrong, in words; empty: nothing."""
    return [*_held(picture), *_broken(picture), *_waiting(picture)]


def _held(picture: Picture) -> Iterator[str]:
    """A node's GPUs are held by pods, and Swell believes the same of each node."""
    by_pods: Counter[str] = Counter()
    for pod in picture.pods:
        if is_placed(pod):
            by_pods[pod["spec"]["nodeName"]] += gpus_of(pod)
    for node in picture.offered:
        by_jobs = Counter(gpu["job"] for gpu in node["gpus"] if gpu["job"] is not None)
        others = sum(gpu["outsiders_mib"] > 0 for gpu in node["gpus"])
        if by_jobs.total() + others != by_pods[node["name"]]:
            held = ", ".join(f"job {job}: {count}" for job, count in sorted(by_jobs.items()))
            seen = f"{node['name']}: pods hold {by_pods[node['name']]} GPUs"
            yield f"{seen}; Swell believes {held or 0} and {others} of others"
    for job in picture.jobs:
        if job["state"] == "stopping":
            yield f"job {job['id']} ({job['name']}) is stopping: {(job['reason'] or {}).get('message')}"


def _members(picture: Picture) -> Mapping[tuple[str, str], list[Document]]:
    found = defaultdict(list)
    for pod in picture.pods:
        metadata = pod["metadata"]
        found[metadata["namespace"], (metadata.get("labels") or {}).get(OF, "")].append(pod)
    return found


def _broken(picture: Picture) -> Iterator[str]:
    """No gang runs below its minimum, and none is half placed."""
    members = _members(picture)
    for thing in picture.things:
        pods = members[thing.namespace, thing.name]
        placed = [pod for pod in pods if is_placed(pod)]
        done = [pod for pod in pods if pod["status"].get("phase") == "Succeeded"]
        if placed and len(placed) + len(done) + thing.done < thing.least:
            yield f"{thing.kind} {thing.namespace}/{thing.name}: {len(placed)} pods run, and {thing.least} must"


@dataclass(frozen=True, slots=True)
class _Waits:
    what: str
    count: int
    gpus: int


def _waiting(picture: Picture) -> Iterator[str]:
    """Who waits waits for room: not all of those who wait would fit."""
    free = _free(picture)
    waiting = [*_unknown(picture), *_queued(picture)]
    if waiting and all(_fits(one, free) for one in waiting):
        for one in waiting:
            yield f"{one.what} waits ({one.count} pods of {one.gpus} GPUs), and free is {dict(free)}"


def _free(picture: Picture) -> Mapping[str, int]:
    free = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(GPU, 0))
        for node in picture.nodes
        if not node["spec"].get("unschedulable")
    }
    for pod in picture.pods:
        if is_placed(pod) and pod["spec"]["nodeName"] in free:
            free[pod["spec"]["nodeName"]] -= gpus_of(pod)
    return free


def _fits(one: _Waits, free: Mapping[str, int]) -> bool:
    return sum(left // one.gpus for left in free.values()) >= one.count


def _queued(picture: Picture) -> Iterator[_Waits]:
    things = {(thing.namespace, thing.name): thing for thing in picture.things}
    grouped = {_group(pod): pod for pod in picture.pods if GROUP in (pod["metadata"].get("labels") or {})}
    named = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): pod for pod in picture.pods}
    for job in picture.jobs:
        if job["state"] != "queued":
            continue
        whose, what = (job["user"], job["name"]), f"job {job['id']} ({job['user']}/{job['name']}, {_code(job)})"
        if whose in things:
            count = 1 if job["is_array"] else job["tasks"]["total"]
            yield _Waits(what, count, things[whose].gpus)
        elif whose in named:
            yield _Waits(what, 1, gpus_of(named[whose]))
        elif whose in grouped:
            yield _Waits(what, job["tasks"]["total"], gpus_of(grouped[whose]))
        else:
            yield _Waits(f"{what}, of which nothing is there,", 0, 1)


def _code(job: Document) -> str:
    return str((job["reason"] or {}).get("code"))


def _group(pod: Document) -> tuple[str, str]:
    """The namespace and group that is written on it; empty: none."""
    return pod["metadata"]["namespace"], (pod["metadata"].get("labels") or {}).get(GROUP, "")


def _is_member(pod: Document, thing: Thing) -> bool:
    """Not where somebody has written another group on it."""
    return _group(pod)[1] in ("", thing.name)


def _unknown(picture: Picture) -> Iterator[_Waits]:
    """Complete, and no job of Swell's."""
    known = {(job["user"], job["name"]) for job in picture.jobs if job["state"] in OPEN}
    members = _members(picture)
    for thing in picture.things:
        pods = [pod for pod in members[thing.namespace, thing.name] if "deletionTimestamp" not in pod["metadata"]]
        waiting = [pod for pod in pods if not is_placed(pod) and pod["status"].get("phase") == "Pending"]
        placed = [pod for pod in pods if is_placed(pod)]
        done = [pod for pod in pods if pod["status"].get("phase") == "Succeeded"]
        is_known = (thing.namespace, thing.name) in known
        names = [(pod, {(thing.namespace, pod["metadata"]["name"]), _group(pod)}) for pod in waiting]
        alone = [pod for pod, called in names if not called & known]
        if thing.least == 1 and not is_known:
            for pod in alone:
                yield _Waits(f"pod {thing.namespace}/{pod['metadata']['name']}, which is no job,", 1, thing.gpus)
        elif waiting and not is_known and sum(_is_member(pod, thing) for pod in pods) >= thing.least:
            count = max(1, thing.least - len(placed) - len(done))
            yield _Waits(f"{thing.kind} {thing.namespace}/{thing.name}, which is no job,", count, thing.gpus)
