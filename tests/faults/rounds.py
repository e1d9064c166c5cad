"""What becomes of jobs on a real control plane on which everything goes wrong?

One round, from one seed: three simulated nodes, a dozen jobs of all kinds that come by Swell or by kubectl and do not
all fit, and half a dozen disturbances among them. At the end every job must have ended as it would have without them,
and nothing of `judge.py` may have been.

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

from .arena import Arena, Customer
from .disturbances import DISTURBANCES
from .judge import judge
from .workload import Case, draw

NODES = 3
OPERATORS = ("jobset", "training")
CASES = 12
FAULTS = 6


def play_kubernetes(seed: int, cluster: Cluster | None = None) -> list[str]:
    """One round on a cluster of its own, or on one that is there; its folder is kept when something went wrong."""
    folder = Path(tempfile.mkdtemp(prefix=f"swell-faults-{seed}-"))
    if cluster is not None:
        problems = _play(seed, folder, cluster)
    else:
        with Cluster(folder / "cluster", kwok=NODES, operators=OPERATORS) as own:
            problems = _play(seed, folder, own)
    if problems:
        return [f"seed {seed}: {problem} (kept: {folder})" for problem in problems]
    shutil.rmtree(folder)
    return []


def _play(seed: int, folder: Path, cluster: Cluster) -> list[str]:
    lots = random.Random(seed)
    cases = [(lots.uniform(0.0, 1.5), case) for case in draw(lots, CASES)]
    story: list[str] = []
    arena = Arena(seed, folder, cluster)
    try:
        customer = Customer(arena, cases)
        customer.start()
        for disturb in lots.sample(DISTURBANCES, FAULTS):
            time.sleep(lots.uniform(0.2, 2.5))  # the random moment
            at = time.monotonic()
            story.append(f"{at:.1f} {disturb(arena, lots)}")
        arena.proxy.stop_meddling()
        arena.revive()
        customer.join()
        return [*([customer.problem] if customer.problem else []), *verdict(arena, [case for _, case in cases])]
    finally:
        (folder / "story").write_text(_story(arena, story))
        arena.close()


def verdict(arena: Arena, cases: Sequence[Case]) -> list[str]:
    """When all has ended and everything was deleted."""
    ends = arena.await_ends(cases)
    problems = judge(arena.recorder.history, cases, arena.outages, ends, arena.taken)
    return problems if problems else arena.clear(cases)


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
    found = play_kubernetes(int(sys.argv[1]))
    print("\n".join(found))
    sys.exit(bool(found))
