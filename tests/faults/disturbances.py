"""What goes wrong in a round? Each disturbance is one function: it begins, and returns when the next may come."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable

from cluster.api import Object, Refused, condition
from cluster.jobs import ON_KWOK
from cluster.jobs import pod as make_pod
from cluster.kwok import REFUSE, SUCCEED, add_nodes, render_nodes
from engines.kubernetes.wire import Request

from .arena import GPU_LABELS, Arena
from .history import PodSighting
from .kills import FIRES_S, counter, killed, killed_at_a_bind, killed_at_a_resize
from .proxy import Before, Lose, Meddling, Refuse, bound_pod, is_bind, is_watch
from .workload import PATHS

Disturbance = Callable[[Arena, random.Random], str]
NODES = "/api/v1/nodes"
COLLECTED_S = 75.0  # by then the garbage collector has removed the pods of a node that is gone


def with_rival(arena: Arena, lots: random.Random) -> str:
    """Another scheduler is faster: it gives the room to a pod of its own, and the node refuses ours."""
    count, seconds = lots.randint(1, 3), lots.uniform(1.0, 5.0)

    def act(request: Request) -> None:
        pods = arena.recorder.history.latest().values()
        pod = next((one for one in pods if one.name == bound_pod(request) and one.gpus), None)
        if pod is None:
            return
        node, notes = request.document["target"]["name"], {SUCCEED: f"{seconds:.1f}s"}
        rival = make_pod(f"rival-{pod.uid}", "true", on=ON_KWOK, gpus=pod.gpus, annotations=notes, nodeName=node)
        with contextlib.suppress(OSError, Refused):
            arena.cluster.api.patch(f"{PATHS['Pod']}/{pod.name}", {"metadata": {"annotations": {REFUSE: "true"}}})
            arena.cluster.api.create(PATHS["Pod"], rival)

    is_it = counter(is_bind, count)
    arena.proxy.meddle(lambda request: Before(lambda: act(request)) if is_it(request) else None, FIRES_S)
    arena.hinder("rival", FIRES_S + seconds)
    return f"another scheduler takes the room of bind {count} for {seconds:.1f} s"


def bound_by_another(arena: Arena, lots: random.Random) -> str:
    """Another scheduler is faster: it binds our pod itself, to a node that is cordoned."""
    count = lots.randint(1, 3)
    [aside] = render_nodes(1, prefix="aside", labels=GPU_LABELS)
    if aside["metadata"]["name"] not in arena.recorder.history.nodes:
        add_nodes(arena.cluster.api, [{**aside, "spec": {"unschedulable": True}}])
    target = {"apiVersion": "v1", "kind": "Node", "name": aside["metadata"]["name"]}

    def act(request: Request) -> None:
        with contextlib.suppress(OSError, Refused):
            body = {**request.document, "target": target}
            arena.cluster.api.create(f"{PATHS['Pod']}/{bound_pod(request)}/binding", body)

    is_it = counter(is_bind, count)
    arena.proxy.meddle(lambda request: Before(lambda: act(request)) if is_it(request) else None, FIRES_S)
    arena.hinder("another scheduler", FIRES_S)
    return f"another scheduler binds the pod of bind {count} elsewhere"


def without_api_server(arena: Arena, lots: random.Random) -> str:
    plane = arena.cluster.control_plane
    with arena.outage("API server"):
        plane.apiserver.kill()
        time.sleep(lots.uniform(0.0, 3.0))
        plane.restart_apiserver()
    return "the API server was killed and restarted"


def without_etcd(arena: Arena, lots: random.Random) -> str:
    plane = arena.cluster.control_plane
    seconds = lots.uniform(0.5, 6.0)
    with arena.outage("etcd"):
        plane.etcd.pause()
        time.sleep(seconds)
        plane.etcd.resume()
        plane.until_ready()
    return f"etcd was paused for {seconds:.1f} s"


def without_node(arena: Arena, lots: random.Random) -> str:
    """For a moment, so that its pods survive it, or until the garbage collector has removed them."""
    node = lots.choice(arena.nodes)
    seconds = lots.uniform(0.0, 4.0) if lots.random() < 0.8 else COLLECTED_S
    with arena.outage("node"):
        arena.cluster.api.delete(f"{NODES}/{node['metadata']['name']}")
        time.sleep(seconds)
        if seconds == COLLECTED_S:
            there = [one for one in arena.recorder.history.pods if one.node == node["metadata"]["name"]]
            arena.taken |= {one.uid for one in there if one.is_gone}
        add_nodes(arena.cluster.api, [node])
    return f"{node['metadata']['name']} was gone for {seconds:.1f} s"


def with_unready_node(arena: Arena, lots: random.Random) -> str:
    name = lots.choice(arena.nodes)["metadata"]["name"]
    seconds = lots.uniform(0.2, 4.0)
    with arena.outage("node not ready"):
        _set_ready(arena, name, "False")
        time.sleep(seconds)
        _set_ready(arena, name, "True")
    return f"{name} was not ready for {seconds:.1f} s"


def _set_ready(arena: Arena, node: str, status: str) -> None:
    path = f"{NODES}/{node}"
    conditions = arena.cluster.api.get(path)["status"].get("conditions", [])
    changed = [{**one, "status": status} if one["type"] == "Ready" else one for one in conditions]
    arena.cluster.api.patch(f"{path}/status", {"status": {"conditions": changed}})


def without_pod(arena: Arena, lots: random.Random) -> str:
    pod = _any_pod(arena, lots)
    if pod is None:
        return "there was no pod to delete"
    query = lots.choice(["", "?gracePeriodSeconds=0"])
    try:
        arena.cluster.api.delete(f"/api/v1/namespaces/default/pods/{pod.name}{query}")
    except Refused:
        return f"{pod.name} was gone before it could be deleted"
    arena.taken.add(pod.uid)
    return f"{pod.name} was deleted{' at once' if query else ''}"


def without_object(arena: Arena, lots: random.Random) -> str:
    """Of a job that runs and has not ended; whoever has it deleted means it."""
    objects = [
        (path, item)
        for kind, path in sorted(PATHS.items())
        if kind != "Pod"
        for item in arena.cluster.api.get(path)["items"]
        if not _has_ended(item) and _is_running(arena, item["metadata"]["name"])
    ]
    if not objects:
        return "there was no object to delete"
    path, item = lots.choice(objects)
    name, version = item["metadata"]["name"], item["metadata"]["resourceVersion"]
    options = {"propagationPolicy": "Background", "preconditions": {"resourceVersion": version}}
    try:
        arena.cluster.api.request("DELETE", f"{path}/{name}", options)
    except Refused:
        return f"{name} had changed before it could be deleted"
    arena.taken.add(name.split("-")[0])
    return f"the object {name} was deleted"


def _has_ended(item: Object) -> bool:
    return any(condition(item, one) == "True" for one in ("Complete", "Completed", "Succeeded", "Failed"))


def _is_running(arena: Arena, name: str) -> bool:
    pods = arena.recorder.history.latest().values()
    return any(one.name.startswith(f"{name}-") and one.phase == "Running" for one in pods)


def _any_pod(arena: Arena, lots: random.Random) -> PodSighting | None:
    there = sorted(
        (one for one in arena.recorder.history.latest().values() if one.holds and not one.is_deleting),
        key=lambda one: one.name,
    )
    return lots.choice(there) if there else None


def without_watches(arena: Arena, lots: random.Random) -> str:
    for _ in range(lots.randint(1, 3)):
        arena.proxy.hang_up()
        time.sleep(lots.uniform(0.0, 0.5))
    return "every connection was closed"


def storm(arena: Arena, lots: random.Random) -> str:
    code, rate, seconds = lots.choice([409, 429, 500]), lots.uniform(0.3, 1.0), lots.uniform(1.0, 6.0)
    own = random.Random(lots.random())

    def rule(request: Request) -> Meddling | None:
        is_meant = request.method != "GET" if code == 409 else not is_watch(request)
        return Refuse(code) if is_meant and own.random() < rate else None

    arena.proxy.meddle(rule, seconds)
    arena.hinder(f"storm of {code}", seconds)
    return f"{rate:.0%} of what it asked was refused with {code} for {seconds:.1f} s"


def lost_answers(arena: Arena, lots: random.Random) -> str:
    rate, seconds = lots.uniform(0.2, 0.8), lots.uniform(1.0, 6.0)
    own = random.Random(lots.random())

    def rule(request: Request) -> Meddling | None:
        return Lose(own.random() < 0.7) if request.method != "GET" and own.random() < rate else None

    arena.proxy.meddle(rule, seconds)
    arena.hinder("lost answers", seconds)
    return f"{rate:.0%} of the answers were lost for {seconds:.1f} s"


def failing_binds(arena: Arena, lots: random.Random) -> str:
    """Of each gang the first bind is done and the others fail: briefly, or for longer than a gang may stay half."""
    seconds, code = lots.choice([4.0, 8.0, 45.0]), lots.choice([409, 429, 500])
    first: dict[str, str] = {}

    def rule(request: Request) -> Meddling | None:
        if not is_bind(request):
            return None
        pod = bound_pod(request)
        return Refuse(code) if first.setdefault(pod.split("-")[0], pod) != pod else None

    arena.proxy.meddle(rule, seconds)
    if seconds < 30:
        arena.hinder("failing binds", seconds)
    return f"all but the first bind of each gang failed with {code} for {seconds:.0f} s"


DISTURBANCES: tuple[Disturbance, ...] = (
    killed,
    killed_at_a_bind,
    killed_at_a_bind,
    without_api_server,
    without_etcd,
    without_node,
    with_unready_node,
    without_pod,
    without_pod,
    without_object,
    without_watches,
    storm,
    storm,
    lost_answers,
    failing_binds,
    with_rival,
    with_rival,
    bound_by_another,
    killed_at_a_resize,
    killed_at_a_resize,
)
