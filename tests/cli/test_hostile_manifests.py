"""Whatever a file says: a refusal with file, line and field, exit code 2, nothing submitted, and soon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from moving.shell import Shell
from swell.config import parse_config

HEAD = "apiVersion: swell/v1\nkind: Job\n"
JOB = f"{HEAD}spec:\n  command: [a]\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - command: [a]\n"
JOBSET = "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\nspec:\n  replicatedJobs:\n"
MPI = "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\nspec:\n"
FLUX = "apiVersion: flux-framework.org/v1alpha2\nkind: MiniCluster\nmetadata: {name: a}\nspec:\n"
AICHOR = "apiVersion: 0.2.3\nkind: AIchorManifest\nspec:\n  operator: jobset\n  image: i\n  command: a\n  types:\n"
LAUGHS = "\n".join([f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9 if n else ['x'] * 9)}]" for n in range(10)])
SECONDS_MAX = 5.0  # of this process; most take hundredths


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    made = Shell(tmp_path)
    yield made
    made.close()


CASES = {
    "bomb": (LAUGHS, "the manifest stands for more than 20000 values when its YAML aliases are written out"),
    "anchor loop": ("a: &a [*a]", "line 1: the YAML alias *a stands for something it is part of"),
    "merge loop": ("a: &a {<<: *a}", "line 1: the YAML alias *a stands for something it is part of"),
    "merge of words": (
        "a: {<<: [b, c]}",
        "not valid YAML: line 1, column 9: expected a mapping or list",
    ),
    "depth": ("[" * 90_000, "the manifest is nested deeper than 50 levels"),
    "long key": (f"? {'k' * 900_000}\n: {{a: {{b: {{c: d}}}}}}\n", "it has neither apiVersion nor kind"),
    "python tag": (f"{HEAD}spec: !!python/object/apply:os.system [ls]", "line 3: the YAML tag "),
    "key twice": (f"{JOB}  command: [b]\n", "line 5: the field 'command' is given twice"),
    "unknown field": (
        f"{JOB}  gpu: 1\n",
        "line 5: spec has no field 'gpu'; did you mean 'gpus'?",
    ),
    "wrong type": (
        f"{JOB}  gpus: {{}}\n",
        "line 5: gpus must be a number or text, but is a map",
    ),
    "negative count": (f"{JOB}  tasks: -4\n", "line 5: tasks: '-4' "),
    "billion tasks": (f"{JOB}  tasks: 1000000000\n", "line 5: tasks: '1000000000' "),
    "billion indices": (f"{JOB}  array: 0-999999999\n", "line 5: array: array '0-999999999' has 1000000000"),
    "path as name": (
        f"{HEAD}metadata: {{name: ../../etc/x}}\nspec: {{command: [a]}}\n",
        "line 3: name '../../etc/x'",
    ),
    "null in variable": (
        f'{JOB}  env: {{A: "a\\0b"}}\n',
        "line 5: env: the value of A holds a n",
    ),
    "role": (
        f"{HEAD}spec:\n  roles:\n  - {{name: a, command: [x], tasks: 1000000000}}\n",
        "line 5: roles[0].tasks: ",
    ),
    "pod": (f"{POD}    env: 7\n", "line 7: spec.containers[0].env must be a list, but is '7'"),
    "billion pods": (
        f"{JOBSET}  - name: a\n    replicas: 1000000000\n    template: {{spec: {{template: {{spec: {{}}}}}}}}\n",
        "line 7: spec.replicatedJobs[0].replicas is 1000000000; it must be from 0 to",
    ),
    "billion slots": (f"{MPI}  slotsPerWorker: 1000000000\n  mpiReplicaSpecs: {{}}\n", "spec.mpiReplicaSpecs has no L"),
    "billion brokers": (f"{FLUX}  size: 1000000000\n", "line 5: spec.size is 1000000000; it must be from 1 to"),
    "billion experiments": (
        f"{AICHOR}    worker:\n      count: 1000000000\n      resources: {{cpus: 1}}\n",
        "line 9: spec.types.worker.count is 1000000000; it must be from 1 to",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_file_is_refused_in_bounded_time_and_nothing_is_submitted(shell: Shell, tmp_path: Path, case) -> None:
    text, said = CASES[case]
    file = tmp_path / "job.yaml"
    file.write_text(text)
    began = time.process_time()
    for command in (["submit"], ["submit", "--dry-run"], ["render"]):
        done = shell.type("swell", *command, str(file))
        assert (done.code, done.stdout) == (2, ""), done
        assert said in done.stderr, done.stderr
        assert done.stderr.startswith(f"swell: {file}: ")
    assert time.process_time() - began < SECONDS_MAX
    assert shell.service.store.listing(ended_since=None) == ([], 0)


TORCH = (
    "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec:\n  pytorchReplicaSpecs:\n    Master:\n"
    "      template:\n        spec:\n"
)
TO_ALLOW = 'leave it out, or allow it to all jobs with "node_rights": true in config.json'
NODE_RIGHTS = {
    "a folder of its node": (
        f"{POD}  volumes: [{{name: root, hostPath: {{path: /}}}}]\n",
        "line 7: spec.volumes[0].hostPath asks for a folder of its node, which this server gives to no job; ",
    ),
    "all devices of its node": (
        f"{POD}    securityContext: {{privileged: true}}\n",
        "line 7: spec.containers[0].securityContext.privileged asks for all devices of its node, which this server ",
    ),
    "the network of its node": (
        f"{TORCH}          hostNetwork: true\n          containers: [{{name: pytorch, command: [a]}}]\n",
        "line 9: spec.pytorchReplicaSpecs.Master.template.spec.hostNetwork asks for the network of its node, which ",
    ),
    "rights of root": (
        f"{FLUX}  containers:\n  - command: a\n    securityContext: {{capabilities: {{add: [SYS_ADMIN]}}}}\n",
        "line 7: spec.containers[0].securityContext.capabilities.add asks for rights of root, which this server gives ",
    ),
}


@pytest.mark.parametrize("what", NODE_RIGHTS)
def test_who_asks_for_rights_over_a_node_is_refused_unless_the_server_allows_it(tmp_path: Path, what: str) -> None:
    """It was refused only where one server works for many: a private one created such a pod for whoever wrote it."""
    text, said = NODE_RIGHTS[what]
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with closing(Shell(tmp_path / "default")) as shell:
        for command in (["submit"], ["submit", "--dry-run"]):
            done = shell.type("swell", *command, str(file))
            assert (done.code, done.stdout) == (2, ""), done
            assert f"swell: {file}: {said}" in done.stderr, done.stderr
            assert done.stderr.endswith(f"{TO_ALLOW}\n")
        assert shell.service.store.listing(ended_since=None) == ([], 0)
    with closing(Shell(tmp_path / "allowed", parse_config({"node_rights": True}))) as shell:
        assert shell.type("swell", "submit", str(file)).code == 0
        assert len(shell.service.store.listing(ended_since=None)[0]) == 1


def test_a_file_of_100_megabytes_is_not_read(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "huge.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(100_000_000)
    done = shell.type("swell", "submit", str(file))
    assert (done.code, "larger than 1048576 bytes" in done.stderr) == (2, True)


def test_a_line_break_in_a_variable_stays_in_the_variable(shell: Shell, tmp_path: Path) -> None:
    """Nothing that prints the job takes it for a line of its own."""
    file = tmp_path / "job.yaml"
    file.write_text(f'{JOB}  env: {{A: "b\\ngpus: 4"}}\n  workdir: "/w\\ngpus: 4"\n')
    done = shell.type("swell", "submit", "--dry-run", str(file))
    assert (done.code, [line for line in done.stdout.splitlines() if line.strip().startswith("gpus")]) == (0, [])
