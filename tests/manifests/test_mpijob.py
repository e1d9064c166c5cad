"""MPIJobs and MiniClusters: one task that starts the ranks, with room for all of them."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swell.manifests import read_manifests
from swell.model.job import JobSpec
from swell.model.launcher import Launcher
from swell.model.resources import Resources

from .kubernetes import CONTEXT, container, gpus, read, refusal, template, width

LAUNCH = container(command=["mpirun", "-n", "4", "./solve"])
OPEN_MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def mpijob(launcher: Any = None, worker: Any = None, **spec: Any) -> dict[str, Any]:
    kinds = {"Launcher": {"template": template(LAUNCH)} if launcher is None else launcher, "Worker": worker}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "pi"},
        "spec": {"mpiReplicaSpecs": {kind: one for kind, one in kinds.items() if one is not None}, **spec},
    }


def minicluster(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "flux-framework.org/v1alpha2",
        "kind": "MiniCluster",
        "metadata": {"name": "lammps"},
        "spec": {"size": 2, "tasks": 4, "containers": list(containers or [{"command": "lmp -in 'in file'"}]), **spec},
    }


def size(spec: JobSpec) -> tuple[int, int, int]:
    [role] = spec.roles
    return role.resources.cpus_milli, role.resources.memory_mib, role.resources.gpus


def test_an_mpijob_is_its_launcher_with_room_for_all_workers():
    worker = container(resources={"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}})
    spec = read(mpijob(worker={"replicas": 2, "template": template(worker)}, slotsPerWorker=2))
    [role] = spec.roles
    assert (spec.kind, role.name, role.count) == ("MPIJob", "launcher", 1)
    assert role.command == ("mpirun", "-n", "4", "./solve")
    assert (size(spec), width(spec)) == ((5000, 2048, 2), ("gpus", 2, 2))
    told = {"K_MPI_JOB_ROLE": "launcher", "OMPI_MCA_orte_set_default_slots": "4", **OPEN_MPI}
    assert (dict(role.env), spec.retries, spec.is_held, spec.time_limit_s) == (told, 6, False, None)


def test_the_image_of_a_worker_needs_no_command_and_one_that_has_is_said_to_have_no_effect():
    quiet = mpijob(worker={"replicas": 1, "template": {"spec": {"containers": [{"name": "w"}]}}})
    assert not [note for note in read(quiet).notes if "Worker" in note]
    said = read(mpijob(worker={"template": template(container(command=["/usr/sbin/sshd", "-De"]))})).notes
    assert said[-1] == ("spec.mpiReplicaSpecs.Worker: its command has no effect: mpirun starts the ranks itself")


@pytest.mark.parametrize(
    ("spec", "workers", "slots"),
    [
        ({}, 3, "3"),
        ({"slotsPerWorker": 8}, 3, "24"),
        ({"slotsPerWorker": 2, "runLauncherAsWorker": True}, 3, "8"),
        ({"slotsPerWorker": 2}, 0, "2"),
        ({"mpiImplementation": "MPICH"}, 3, None),
    ],
)
def test_open_mpi_has_the_slots_that_the_operator_would_give_it(spec, workers, slots):
    [role] = read(mpijob(worker={"replicas": workers, "template": template()}, **spec)).roles
    assert dict(role.env).get("OMPI_MCA_orte_set_default_slots") == slots


def test_its_run_policy_is_kept():
    policy = {"activeDeadlineSeconds": 60, "backoffLimit": 2, "suspend": True, "cleanPodPolicy": "Running"}
    spec = read(mpijob(runPolicy=policy))
    assert (spec.time_limit_s, spec.retries, spec.is_held) == (60.0, 2, True)
    never = {"replicas": 1, "restartPolicy": "Never", "template": template(LAUNCH)}
    assert read(mpijob(never)).retries == 0


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (mpijob({"replicas": 2, "template": template(LAUNCH)}), "spec.mpiReplicaSpecs.Launcher.replicas is 2, but"),
        ({**mpijob(), "spec": {"mpiReplicaSpecs": {}}}, "spec.mpiReplicaSpecs has no Launcher; it has the command"),
        (mpijob(slotsPerWorker=0), "spec.slotsPerWorker is 0; it must be from 1 to"),
        (mpijob(slots=1), "spec has no field 'slots'; (used here: slotsPerWorker, "),
        (mpijob(worker={"template": template(container(**gpus(1, 2)))}), "spec.mpiReplicaSpecs asks for a range"),
        (
            mpijob({"template": template(container(command=["mpirun", "--hostfile", "/etc/mpi/hostfile", "x"]))}),
            "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].command names /etc/mpi, which the",
        ),
        (minicluster(size=0), "spec.size is 0; it must be from 1 to"),
        (minicluster(minSize=3), "spec.size is 2, but minSize is 3 and maxSize 2; make them agree"),
        (minicluster({"command": "a"}, {"command": "b"}), "spec.containers has 2 containers, and a process of this"),
        (minicluster({"command": "a 'b"}), "spec.containers[0].command cannot be split into words: "),
        (minicluster({"command": ""}), "spec.containers[0].command is empty; write what Flux runs"),
        (minicluster({"command": "a", "commands": {"pre": "b"}}), "spec.containers[0].commands runs shell commands"),
        (minicluster(interactive=True), "spec.interactive keeps a Flux instance without a command"),
        (minicluster(taskz=1), "spec has no field 'taskz'; did you mean 'tasks'?"),
    ],
)
def test_what_cannot_be_run_is_refused(document, said):
    assert refusal(document).startswith(said)


ROOM = (Resources(4000, 4096, 2), Resources(4000, 4096, 1))
SPREAD = replace(CONTEXT, nodes=ROOM)
WORKER = container(resources={"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1}})


def test_an_mpijob_that_no_machine_has_room_for_is_a_gang_of_its_launcher_and_its_workers():
    """The Launcher asks for a CPU: five CPUs, of which no machine has more than four."""
    worker = {"replicas": 2, "template": template({**WORKER, "env": [{"name": "MINE", "value": "1"}]})}
    spec = read(mpijob(worker=worker, slotsPerWorker=2), SPREAD)
    assert [(role.name, role.count, role.resources) for role in spec.roles] == [
        ("launcher", 1, Resources(1000)),
        ("worker", 2, Resources(2000, 1024, 1)),
    ]
    assert (spec.launcher, width(spec), spec.retries) == (Launcher.MPI, ("tasks", 1, 1), 6)
    assert {role.command for role in spec.roles} == {("mpirun", "-n", "4", "./solve")}
    assert [dict(role.env) for role in spec.roles] == [
        {"K_MPI_JOB_ROLE": "launcher", "SWELL_MPI_SLOTS": "0", **OPEN_MPI},
        {"K_MPI_JOB_ROLE": "worker", "SWELL_MPI_SLOTS": "2", "MINE": "1", **OPEN_MPI},
    ]


def test_the_launcher_of_a_gang_has_slots_where_it_is_a_worker_too():
    worker = {"replicas": 2, "template": template(WORKER)}
    first, _ = read(mpijob(worker=worker, slotsPerWorker=3, runLauncherAsWorker=True), SPREAD).roles
    assert dict(first.env)["SWELL_MPI_SLOTS"] == "3"


@pytest.mark.parametrize(
    ("nodes", "replicas", "spec"),
    [
        ((Resources(5000, 4096, 2), Resources(1000)), 2, {}),  # one machine has room for all
        ((Resources(4000, 4096, 2),), 2, {}),  # there is no other
        ((), 2, {}),  # nobody knows
        (ROOM, 0, {}),
        (ROOM, 2, {"mpiImplementation": "MPICH"}),  # its ranks would be told the Launcher's variables
    ],
)
def test_an_mpijob_stays_one_task_where_one_machine_can_have_it_or_several_cannot(nodes, replicas, spec):
    worker = {"replicas": replicas, "template": template(WORKER)}
    found = read(mpijob(worker=worker, **spec), replace(CONTEXT, nodes=nodes))
    assert ([role.name for role in found.roles], found.launcher) == (["launcher"], None)


THERE = replace(CONTEXT, on_cluster=True)


def test_on_kubernetes_an_mpijob_is_a_gang_of_its_launcher_and_its_workers():
    """The operator's images know what to run, and its hostfile is there."""
    launcher = container(command=["mpirun", "--hostfile", "/etc/mpi/hostfile", "a"], **gpus(0))
    worker = {"replicas": 2, "template": template({"name": "w", **gpus(1)})}
    spec = read(mpijob({"template": template(launcher)}, worker, runPolicy={"suspend": True}), THERE)
    assert [(role.name, role.count, role.resources.gpus) for role in spec.roles] == [
        ("launcher", 1, 0),
        ("worker", 2, 1),
    ]
    assert (spec.kind, spec.retries, spec.is_held, width(spec), spec.notes) == ("MPIJob", 0, True, ("tasks", 1, 1), ())


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (mpijob(launcherCreationPolicy="WaitForWorkersReady"), "spec.launcherCreationPolicy is WaitForWorkersReady, b"),
        (mpijob(worker={"template": template(container(**gpus(1, 2)))}), "spec.mpiReplicaSpecs.Worker.template.spec"),
    ],
)
def test_what_cannot_start_together_on_kubernetes_is_refused(document, said):
    assert refusal(document, THERE).startswith(said)


EXAMPLE = Path(__file__).parents[2] / "examples" / "mpi" / "mpijob.yaml"
#: programs that write down how they were called; the second Worker's ssh server comes up after three tries
PROGRAMS = {
    "ssh": 'echo "ssh $*" >> calls; [ "$2" != two ] || [ "$(grep -c "ssh -n two" calls)" -ge 3 ]',
    "sleep": 'echo "sleep $*" >> calls',
    "mpirun": 'echo "mpirun $1 $2" >> calls',
}


def test_the_examples_launcher_waits_for_the_ssh_servers_of_its_workers(tmp_path):
    """`mpirun` came before a Worker's ssh server, was tried again, and both outputs were in the log."""
    for name, script in PROGRAMS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "hostfile").write_text("one slots=1\ntwo slots=1\n")
    [manifest] = read_manifests(EXAMPLE.read_text(), CONTEXT)
    [role] = manifest.spec.roles
    for there in ({"OMPI_MCA_orte_default_hostfile": "hostfile"}, {}):
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", **there}
        subprocess.run(role.command, cwd=tmp_path, env=env, check=True, timeout=30)
    tries = ["ssh -n one true", *["ssh -n two true", "sleep 1"] * 2, "ssh -n two true"]
    on_a_machine = ["mpirun -n 2"]
    assert (tmp_path / "calls").read_text().splitlines() == [*tries, "mpirun -n 2", *on_a_machine]


ON_FLUX = {
    "command": "lmp -in 'in $file'",
    "image": "lmp:1",
    "environment": {"A": "b$c"},
    "workingDir": "/data",
    "resources": {"limits": {"cpu": "2", "nvidia.com/gpu": 1}},
    "volumes": {"data": {"path": "/data", "claimName": "input", "readOnly": True}},
    "imagePullSecret": "lab",
    "pullAlways": True,
}


def test_on_kubernetes_a_minicluster_is_an_mpijob_with_a_worker_for_each_pod():
    document = minicluster(ON_FLUX, tasks=5, minSize=1, deadlineSeconds=60, pod={"nodeSelector": {"zone": "a"}})
    [made] = read_manifests(document, THERE)
    spec = made.document["spec"]
    assert (made.document["kind"], made.document["metadata"]) == ("MPIJob", {"name": "lammps"})
    assert (spec["slotsPerWorker"], spec["runPolicy"]) == (3, {"backoffLimit": 0, "activeDeadlineSeconds": 60})
    launcher, worker = (spec["mpiReplicaSpecs"][name]["template"]["spec"] for name in ("Launcher", "Worker"))
    shared = {
        "image": "lmp:1",
        "imagePullPolicy": "Always",
        "workingDir": "/data",
        "env": [{"name": name, "value": text} for name, text in {**OPEN_MPI, "A": "b$$c"}.items()],
        "volumeMounts": [{"name": "volume-0", "mountPath": "/data", "readOnly": True}],
    }
    words = ["mpirun", "-x", "A", "-n", "5", "lmp", "-in", "in $$file"]
    [first], [other] = launcher.pop("containers"), worker.pop("containers")
    assert (first["command"][:2], first.pop("command")[3:]) == (["sh", "-c"], ["sh", *words])
    assert first == {**shared, "name": "launcher"}
    assert other == {**shared, "name": "worker", "resources": ON_FLUX["resources"]}
    claim = {"claimName": "input", "readOnly": True}
    assert (
        launcher
        == worker
        == {
            "volumes": [{"name": "volume-0", "persistentVolumeClaim": claim}],
            "imagePullSecrets": [{"name": "lab"}],
            "nodeSelector": {"zone": "a"},
        }
    )
    assert [(role.name, role.count, role.resources.gpus) for role in made.spec.roles] == [
        ("launcher", 1, 0),
        ("worker", 2, 1),
    ]
    assert (made.spec.time_limit_s, made.spec.retries) == (60.0, 0)
    assert [note.partition(",")[0] for note in made.spec.notes] == [
        "it is created as an MPIJob",
        "spec.minSize has no effect: all pods start together",
    ]


def test_a_command_that_launches_by_itself_is_not_put_under_mpirun_there():
    document = minicluster({"command": "nextflow run", "launcher": True, "image": "x"})
    [made] = read_manifests(document, THERE)
    template = made.document["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]
    assert template["spec"]["containers"][0]["command"][3:] == ["sh", "nextflow", "run"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (minicluster({"command": "a"}), "spec.containers[0].image must be text, but is empty"),
        (
            minicluster({**ON_FLUX, "lifeCycle": {"postStart": "x"}}),
            "spec.containers[0].lifeCycle is of the pods of a ",
        ),
        (minicluster(ON_FLUX, services=[{"name": "db"}]), "spec.services is of the pods of a Flux instance"),
        (
            minicluster({**ON_FLUX, "volumes": {"tmp": {"path": "/a", "hostPath": "/tmp"}}}),
            "spec.containers[0].volumes.tmp has no field 'hostPath'",
        ),
        (minicluster(ON_FLUX, pod={"serviceAccountName": "me"}), "spec.pod has no field 'serviceAccountName'"),
        (minicluster(ON_FLUX, archive={"path": "/a"}), "spec.archive saves the queue of a Flux instance"),
    ],
)
def test_what_a_worker_has_not_is_refused_there(document, said):
    assert refusal(document, THERE).startswith(said)


def test_a_minicluster_is_mpirun_with_room_for_all_its_pods():
    limits = {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}
    given = {"command": "lmp -in 'in file'", "image": "x", "resources": limits, "environment": {"A": "b"}}
    spec = read(minicluster({**given, "workingDir": "/data"}, deadlineSeconds=60, minSize=1))
    [role] = spec.roles
    assert (spec.kind, role.command) == ("MiniCluster", ("mpirun", "-n", "4", "lmp", "-in", "in file"))
    assert (size(spec), width(spec), spec.workdir) == ((4000, 2048, 2), ("gpus", 2, 2), "/data")
    assert dict(role.env) == {"A": "b", "OMPI_MCA_orte_set_default_slots": "4", **OPEN_MPI}
    assert (spec.time_limit_s, spec.retries) == (60.0, 0)
    assert spec.notes == (
        "this machine runs processes, not pods, so these fields have no effect: image",
        "spec.minSize has no effect: on one machine all pods' room is given at once",
    )


def test_a_command_that_launches_by_itself_is_run_as_it_is():
    [role] = read(minicluster({"command": "nextflow run", "launcher": True})).roles
    assert role.command == ("nextflow", "run")
