"""What in a round's history may never be? Pure, and with code of its own: nothing of the engine is asked.

lost           a job that did not end as it would have without faults, or that Swell does not know
doubled        two pods of one rank at once, pods of two attempts of a job at once, a job accepted twice
over-committed a node with more bound to it than it has, whoever has bound it; a GPU shared beyond its memory
half bound     a gang of which some are bound and others not, for longer than it may take
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .history import History, NodeSighting, PodSighting
from .workload import Case

HALF_BOUND_S = 30.0
SLACK_S = 12.0  # of a busy machine: until a decision has become deletions, and those have become true
RECOVERY_S = 8.0  # after an outage back-off may be that long


@dataclass(frozen=True, slots=True)
class Outage:
    """When something was kept from working by us."""

    begin: float
    end: float
    what: str


def judge(
    history: History,
    cases: Sequence[Case],
    outages: Sequence[Outage],
    ends: Mapping[str, Sequence[str]],
    taken: Container[str] = (),
) -> list[str]:
    """What went wrong, in words.

    `ends`: the states of the jobs that Swell has under a case's name. `taken`: what somebody else than Swell deleted:
    objects, by the name of their case, and pods, by their uid.
    """
    problems = [*overcommitted(history.pods, history.nodes)]
    for case in cases:
        mine = [one for one in history.pods if case_of(one.name, (case,)) is not None]
        problems += wrong_ends(case, mine, ends.get(case.name, ()), taken)
        problems += doubled(case, mine)
        problems += half_bound(case, mine, outages) if case.is_gang else ()
    return problems


def case_of(pod: str, cases: Iterable[Case]) -> Case | None:
    return next((case for case in cases if pod == case.name or pod.startswith(f"{case.name}-")), None)


def wrong_ends(case: Case, pods: Sequence[PodSighting], ends: Sequence[str], taken: Container[str]) -> Iterator[str]:
    """What is deleted as it begins, Swell may take for not made yet, and make again."""
    expected = expected_end(case, pods, taken)
    may_be = [[expected], ["cancelled"]] if case.name in taken else [[expected]]
    if list(ends) not in may_be:
        yield f"{case} should be {expected} once, but Swell has it as {list(ends)}"


def expected_end(case: Case, pods: Sequence[PodSighting], taken: Container[str]) -> str:
    """Of pods that nobody makes again, one that is taken away is the end of the job, as whoever did it has meant."""
    ended = {one.uid for one in pods if one.has_ended}
    is_taken = any(one.uid in taken and one.uid not in ended for one in pods)
    is_over = case.is_bare_by_kubectl and is_taken
    return "cancelled" if is_over else end_of(case, case.end, case.width, case.epochs)


def end_of(case: Case, state: str, width: int, epochs: float | None) -> str:
    """Of a width and of epochs it is told where they are not left open."""
    words = [state, *([f"at width {width}"] if case.width else [])]
    return " ".join([*words, *([f"after {epochs:g} epochs"] if case.epochs and epochs is not None else [])])


def overcommitted(pods: Sequence[PodSighting], nodes: Mapping[str, NodeSighting]) -> Iterator[str]:
    told: set[str] = set()
    for there in moments(pods):
        changed = there[next(reversed(there))] if there else None
        node = nodes.get(changed.node) if changed is not None else None
        if node is None or node.name in told:
            continue
        mine = [one for one in there.values() if one.holds and one.node == node.name]
        gpus, cpus_milli, most_mib = gpus_of(mine), sum(one.cpus_milli for one in mine), most_shared_mib(mine)
        if gpus > node.gpus or cpus_milli > node.cpus_milli or most_mib > node.gpu_mib:
            told.add(node.name)
            names = sorted(one.name for one in mine)
            shared = f", of one GPU {most_mib} MiB" if most_mib else ""
            yield f"{node} holds {gpus} GPUs and {cpus_milli} mCPU{shared} of {names} at {mine[-1].at:.1f}"


def gpus_of(pods: Sequence[PodSighting]) -> int:
    """Whole ones, and those that are shared: by what reserves them, or, where that was taken away, by their users.

    A reservation that does not say yet which GPU it has may have that of one that was taken away.
    """
    whole = sum(one.gpus for one in pods if not one.reserves)
    reserved = sum(one.reserves for one in pods)
    return whole + max(reserved, len({one.gpu for one in pods if one.gpu}))


def most_shared_mib(pods: Sequence[PodSighting]) -> int:
    """Of one GPU."""
    shared: Counter[str] = Counter()
    for one in pods:
        shared[one.gpu] += one.share_mib
    return max(shared.values(), default=0)


def doubled(case: Case, pods: Sequence[PodSighting]) -> Iterator[str]:
    told: set[str] = set()
    for there in moments(pods):
        mine = [one for one in there.values() if one.holds]
        ranks = [one.rank for one in mine]
        attempts = {one.attempt for one in mine if one.attempt}
        twice = sorted({rank for rank in ranks if ranks.count(rank) > 1} - told)
        if twice:
            told.update(twice)
            yield f"{case}: rank {twice} ran twice at once, as {[(one.name, one.uid, one.node) for one in mine]}"
        if len(attempts) > 1 and "attempts" not in told:
            told.add("attempts")
            yield f"{case}: attempts {sorted(attempts)} ran at once, as {sorted(one.name for one in mine)}"


def half_bound(case: Case, pods: Sequence[PodSighting], outages: Sequence[Outage]) -> Iterator[str]:
    ended: set[str] = set()
    since: float | None = None
    for there in moments(pods):
        last = there[next(reversed(there))]
        ended |= {one.rank for one in there.values() if one.has_ended}
        bound = {one.rank for one in there.values() if one.holds}
        is_half = bool(bound) and len(bound | ended) < case.tasks
        if is_half and since is None:
            since = last.at
        elif not is_half and since is not None:
            took_s = (last.at - since) - hindered_s(since, last.at, outages)
            if took_s > HALF_BOUND_S + SLACK_S:
                yield f"{case} was half bound for {took_s:.0f} s (from {since:.1f}, {sorted(bound)} of {case.tasks})"
            since = None
    if since is not None:
        yield f"{case} was left half bound: {sorted(bound)} of {case.tasks}"


def hindered_s(begin: float, end: float, outages: Sequence[Outage]) -> float:
    """Of that time; where two overlap it counts once."""
    hindered, until = 0.0, begin
    for one in sorted(outages, key=lambda one: one.begin):
        first, last = max(until, one.begin), min(end, one.end + RECOVERY_S)
        if last > first:
            hindered, until = hindered + last - first, last
    return hindered


def moments(pods: Sequence[PodSighting]) -> Iterator[dict[str, PodSighting]]:
    """What was there after each sighting; the one that has changed is the last. One value, changed in place."""
    there: dict[str, PodSighting] = {}
    for one in pods:
        there.pop(one.uid, None)
        there[one.uid] = one
        yield there
        if one.is_gone:
            del there[one.uid]
