"""What goes wrong in a round? Each disturbance is one function: it begins, and returns when the next may come."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from cluster.api import Object, Refused, condition
from cluster.kwok import add_nodes, render_nodes
from engines.kubernetes.wire import Request

from .arena import Arena
from .history import PodSighting
from .proxy import Act, Lose, Meddling, Refuse, bound_pod, is_bind, is_watch
from .workload import PATHS

Disturbance = Callable[[Arena, random.Random], str]
NODES = "/api/v1/nodes"
FIRES_S = 6.0  # a trap that nothing has stepped into by then is given up
COLLECTED_S = 75.0  # by then the garbage collector has removed the pods of a node that is gone


def killed(arena: Arena, lots: random.Random) -> str:
    with arena.outage("killed"):
        arena.kill()
        time.sleep(lots.uniform(0.0, 1.5))
        arena.revive()
    return "Swell was killed"


def killed_at_a_bind(arena: Arena, lots: random.Random) -> str:
    count, is_done = lots.randint(1, 4), lots.random() < 0.5
    with arena.outage("killed at a bind"):
        fired = kill_at_bind(arena, count, is_done=is_done).wait(FIRES_S)
        arena.kill()
        time.sleep(lots.uniform(0.0, 1.0))
        arena.revive()
    return f"Swell was killed at bind {count} ({'done' if is_done else 'not done'}, {fired})"


def kill_at_bind(arena: Arena, count: int, *, is_done: bool, patience_s: float = FIRES_S) -> threading.Event:
    """Sets the trap: the bind of that number is the last thing it asks for. The event: it was."""
    fired = threading.Event()
    binds = [0]

    def act() -> None:
        arena.kill()
        fired.set()

    def rule(request: Request) -> Meddling | None:
        if not is_bind(request) or fired.is_set():
            return None
        binds[0] += 1
        return Act(act, is_done) if binds[0] == count else None

    arena.proxy.meddle(rule, patience_s)
    return fired


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
    nodes = render_nodes(len(arena.recorder.history.nodes))
    node = lots.choice(nodes)
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
    name = lots.choice(sorted(arena.recorder.history.nodes))
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
)
