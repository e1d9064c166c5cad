"""MPIJobs through Swell on real kubelets, with the real operator and the real LAMMPS. Nothing here waits for a time."""

from __future__ import annotations

import re

import pytest
import yaml

from cluster.api import condition
from cluster.cluster import Cluster
from cluster.jobs import MPIJOBS, ON_REAL, PODS, mpijob
from cluster.starting import module_cluster
from onitscluster import module_server
from server import Server

from .example_output import expected
from .example_pods import PATIENCE_S, printed, submitted, succeeded, text_of
from .training import EXAMPLES

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

cluster = module_cluster(kubelets=2, operators=("mpi",), images=("lammps",))
on_kubernetes = module_server()


#: An ssh server as in the operator's own images; host keys are of this pod, and nobody has seen them before. Rank 0
#: runs in a worker, and reads its input there.
SSHD = (
    'cd /tmp; echo "$MELT" > melt.lmp; mkdir -p /run/sshd /etc/ssh; ssh-keygen -A; '
    "echo 'sshd:x:100:65534::/run/sshd:/bin/false' >> /etc/passwd; "
    "exec /usr/sbin/sshd -De -f /dev/null -o StrictModes=no -o UsePAM=no -o PidFile=none"
)
LAUNCH = (
    "mkdir -p /etc/ssh; printf 'StrictHostKeyChecking no\\nUserKnownHostsFile /dev/null\\nLogLevel ERROR\\n' "
    "> /etc/ssh/ssh_config; cd /tmp; until ssh $FIRST true && ssh $SECOND true; do sleep 0.3; done; "
    "exec mpirun --allow-run-as-root -n 2 lmp -log none -in melt.lmp"
)


def lammps(name: str) -> dict[str, object]:
    """Two workers with one slot each, so that each runs one rank."""
    made = mpijob(name, LAUNCH, SSHD, workers=2, image="lammps", on=ON_REAL)
    names = {word: f"{name}-worker-{number}.{name}" for number, word in enumerate(("FIRST", "SECOND"))}
    told = {"MELT": (EXAMPLES / "mpi" / "melt.lmp").read_text(), **names}
    for replicas in made["spec"]["mpiReplicaSpecs"].values():
        [container] = replicas["template"]["spec"]["containers"]
        container["env"] = [{"name": key, "value": value} for key, value in told.items()]
    return made


def test_lammps_melts_under_mpirun_in_an_mpijob_of_the_real_operator(cluster: Cluster, on_kubernetes: Server) -> None:
    [job] = submitted(on_kubernetes, yaml.safe_dump(lammps("melt")))
    ended = on_kubernetes.until(job, "succeeded", "failed", patience_s=PATIENCE_S)
    log = on_kubernetes.swell("logs", "--rank", "0", str(job)).stdout
    assert (ended["state"], ended["tasks"]["succeeded"]) == ("succeeded", 3), log
    assert "on 2 procs for 100 steps with 864 atoms" in log
    number = r"\s+(-?\d+(?:\.\d+)?)"
    table = [row for line in log.splitlines() if (row := re.fullmatch(number * 6 + r"\s*", line))]
    assert [row[1] for row in table] == ["0", "50", "100"], log
    energies = [float(row[5]) for row in table]
    assert max(energies) - min(energies) < 0.05, "a solid that melts in a closed box keeps its energy"
    found = cluster.api.get(MPIJOBS)["items"]
    assert {one["metadata"]["name"]: condition(one, "Succeeded") for one in found} == {"melt": "True"}


@pytest.mark.parametrize("example", ["mpi/mpijob.yaml", "mpi/minicluster.yaml"])
def test_an_example_of_mpi_prints_in_pods_what_it_does_on_one_machine(on_kubernetes: Server, example: str) -> None:
    """The Launcher prints what all ranks do; a MiniCluster is created as an MPIJob."""
    [job] = submitted(on_kubernetes, text_of(example))
    ended = succeeded(on_kubernetes, job)
    assert printed(on_kubernetes, job, 1) == list(expected(example))
    assert (ended["tasks"]["total"], ended["tasks"]["succeeded"], ended["exit_code"]) == (3, 3, 0)


def test_the_pods_of_an_mpijob_start_together_and_are_ended_together(cluster: Cluster, on_kubernetes: Server) -> None:
    [job] = submitted(on_kubernetes, yaml.safe_dump(mpijob("gang", "sleep 1000", "sleep 1000", workers=2)))
    on_kubernetes.until(job, "running", patience_s=PATIENCE_S)
    on_kubernetes.until_true(job, lambda found: found["tasks"]["running"] == 3, patience_s=PATIENCE_S)
    nodes = {
        name.rsplit("-", 1)[0] if "launcher" in name else name: one["spec"].get("schedulerName")
        for name, one in cluster.api.until(PODS, lambda pods: True).items()
        if name.startswith("gang-")
    }
    assert nodes == dict.fromkeys(("gang-launcher", "gang-worker-0", "gang-worker-1"), "swell")
    assert on_kubernetes.swell("cancel", str(job)).code == 0
    on_kubernetes.until(job, "cancelled", patience_s=PATIENCE_S)
    alive = cluster.api.until(
        PODS,
        lambda pods: (
            not [name for name, one in pods.items() if name.startswith("gang-") and one["status"]["phase"] == "Running"]
        ),
    )
    assert alive is not None


def test_an_mpijob_whose_launcher_fails_has_failed_with_its_code(on_kubernetes: Server) -> None:
    [job] = submitted(on_kubernetes, yaml.safe_dump(mpijob("fails", "exit 3", "sleep 1000", workers=1)))
    ended = on_kubernetes.until(job, "failed", patience_s=PATIENCE_S)
    assert ended["exit_code"] == 3


def test_an_mpijob_that_came_by_kubectl_is_one_gang(cluster: Cluster, on_kubernetes: Server) -> None:
    made = mpijob("by-kubectl", "true", "sleep 1000", workers=1, schedulerName="swell")
    cluster.api.apply(made, namespace="default")
    cluster.api.until(
        MPIJOBS,
        lambda found: found["by-kubectl"]["metadata"].get("annotations", {}).get("swell.dev/state") == "succeeded",
        patience_s=PATIENCE_S,
    )
    [job] = [one for one in on_kubernetes.client().jobs() if one.document["name"] == "by-kubectl"]
    shown = on_kubernetes.client().show(job.id)
    assert (shown["spec"]["kind"], [role["name"] for role in shown["spec"]["roles"]]) == (
        "MPIJob",
        ["launcher", "worker"],
    )
