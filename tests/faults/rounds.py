"""What becomes of jobs on a real control plane on which everything goes wrong?

One round, from one seed: three simulated nodes, a dozen jobs of all kinds that come by Swell or by kubectl and do not
all fit, some of them resized, preempted, held or on a shared GPU, and half a dozen disturbances among them. At the end
every job must have ended as it would have without them, and nothing of `judge.py` may have been.

`PYTHONPATH=tests .venv/bin/python -m faults.rounds SEED` repeats one round.
"""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cluster.cluster import Cluster
from swell.client import Client

from .arena import NODES, Arena, Customer
from .cast import RESIZED, TRAINS, cast
from .disturbances import DISTURBANCES
from .judge import judge
from .parts import play_parts
from .workload import Case, draw

OPERATORS = ("jobset", "training")
CASES = 8
FAULTS = 6


def play_kubernetes(seed: int, cluster: Cluster | None = None, *, is_disturbed: bool = True) -> list[str]:
    """One round on a cluster of its own, or on one that is there; its folder is kept when something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix=f"swell-faults-{seed}-"))
    if cluster is not None:
        problems = _play(seed, folder, cluster, is_disturbed=is_disturbed)
    else:
        with Cluster(folder / "cluster", kwok=NODES, operators=OPERATORS) as own:
            problems = _play(seed, folder, own, is_disturbed=is_disturbed)
    if problems:
        return [f"seed {seed}: {problem} (kept: {folder})" for problem in problems]
    shutil.rmtree(folder)
    return []


def _play(seed: int, folder: Path, cluster: Cluster, *, is_disturbed: bool) -> list[str]:
    lots = random.Random(seed)
    drawn = [(lots.uniform(0.0, 2.0), case) for case in draw(lots, CASES)]
    parts = cast(lots)
    cases = [*(case for _, case in drawn), *parts]
    plan = [
        (lots.uniform(0.2, 2.5), disturb, random.Random(lots.random()))  # what it finds does not change the others
        for disturb in lots.sample(DISTURBANCES, FAULTS if is_disturbed else 0)
    ]
    story: list[str] = []
    arena = Arena(seed, folder, cluster)
    try:
        customer = Customer(arena, drawn)
        customer.start()
        players = play_parts(arena, parts)
        for pause_s, disturb, own in plan:
            time.sleep(pause_s)  # the random moment
            at = time.monotonic()
            story.append(f"{at:.1f} {disturb(arena, own)}")
        arena.proxy.stop_meddling()
        arena.revive()
        arena.is_calm.set()
        for thread in (customer, *players):
            thread.join()
        problems = verdict(arena, cases)
        return [*arena.problems, *problems, *([] if is_disturbed else unplayed(arena))]
    finally:
        (folder / "story").write_text(_story(arena, story))
        arena.close()


def verdict(arena: Arena, cases: Sequence[Case]) -> list[str]:
    """When all has ended and everything was deleted."""
    ends = arena.await_ends(cases)
    problems = judge(arena.recorder.history, cases, arena.outages, ends, arena.taken)
    problems = [*arena.recorder.problems, *problems]
    return problems if problems else arena.clear(cases)


def unplayed(arena: Arena) -> list[str]:
    """What is meant to happen in each round, and did not although nothing kept it from happening."""
    meant = ((RESIZED, "resizes"), (TRAINS, "resizes"), (TRAINS, "preemptions"))
    counts = {job.name: job.document for job in arena.jobs}
    never = [f"of {name} there were no {what}" for name, what in meant if not counts[name][what]]
    return never + ([] if any(one.reserves for one in arena.recorder.history.pods) else ["no GPU was shared"])


def _story(arena: Arena, story: list[str]) -> str:
    """What is needed to understand a round."""
    lines = [*story]
    lines += [f"{one.begin:.1f} to {one.end:.1f} {one.what}" for one in arena.outages]
    lines += [f"{one.at:.2f} {one}" for one in arena.recorder.history.pods]
    try:
        client = Client(arena.state)
        for job in sorted(client.jobs(all=True, all_users=True), key=lambda one: one.id):
            lines.append(f"{job.id} {job.name} {job.state} {job.document['reason']}")
            lines += [f"    {one}" for one in client.events(job=job.id)]
    except Exception as error:  # noqa: BLE001  it is only told, and another error is on its way
        lines.append(str(error))
    return "\n".join(lines)


if __name__ == "__main__":
    found = play_kubernetes(int(sys.argv[1]), is_disturbed="calm" not in sys.argv)
    print("\n".join(found))
    sys.exit(bool(found))
