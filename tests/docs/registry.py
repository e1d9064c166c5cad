"""Every block of commands in the documents, and how a test runs it.

A new block: add a line here, under `file: first command` without its remark. What stands in `replaced` is all that the
test types differently, so keep it to what cannot be had here: an image, somebody's folder, a cluster's name. A picture
or a listing is no block of commands: write ```text.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from cluster.images import name_of
from e2e.containers import ContainerServer
from server import Server

from .blocks import ROOT
from .recipes import Recipe, Tier

TRAIN = {"train.py": "print('trained')\n"}
SCRIPT = "#!/bin/bash\n#SBATCH --ntasks=2\nsrun echo hello\n"
WAITS = "import time\ntime.sleep(600)\n"
SLEEPS = "import time; time.sleep(600)"
OURS = "schedulerName: swell, "
POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec: {{{more}restartPolicy: Never, containers: [{{name: main, image: "swell.test/python:1", command: ["true"]}}]}}
"""
IMAGE = "{image}"  # one that is here, with the machine's Python in it
DEMO = "tests/cli/test_demo.py runs `swell demo`; make test is this suite itself, which cannot run inside itself"
ON_SLURM = "tests/pools/test_real_slurm.py runs such a command on a real Slurm"
MAKE = "they are the suites that would run this block, and cannot run inside themselves"


def _room_is_taken(server: Server) -> None:
    server.until(server.start("--gpus", "4", "--", "sleep", "600"), "running")
    assert server.start("--name", "waits", "--gpus", "3", "--", "true") == 3


def _a_job_has_ended(server: Server) -> None:
    server.until(server.start("--gpus", "1", "--", "true"), "succeeded")


def _room_is_taken_and_one_waits(server: Server) -> None:
    server.until(server.start("--gpus", "4", "--time", "1h", "--", "sleep", "600"), "running")
    server.start("--name", "waits", "--gpus", "1", "--", "true")


def _three_small_jobs(server: Server) -> None:
    for name in ("small-2", "small-3"):
        server.start("--name", name, "--gpu-memory", "6GiB", "--", "python", "train.py", cwd=server.folder)


def _all_run(server: Server) -> None:
    server.until_true(4, lambda document: document["tasks"]["running"] == 7)


def _old_checkpoints(server: Server) -> None:
    for job in ("4711", "4712"):
        (server.state.checkpoints / job).mkdir(parents=True)


def _a_data_folder(server: ContainerServer) -> None:
    (server.folder / "data").mkdir()


def _another_small_pod(stage: Any) -> None:
    words = ("--name", "small-2", "--image", name_of("python"), "--gpu-memory", "6GiB")
    second = stage.server.start(*words, "--", "python3", "-c", SLEEPS)
    for job in (1, second):
        stage.server.until(job, "running", patience_s=120)


def _a_namespace(stage: Any) -> None:
    stage.cluster.api.kubectl("create", "namespace", "ml")


def _is_forwarded(folder: Path) -> None:
    """kubectl, which is in the background, has said so."""
    said = folder / "forwarded"
    until = time.monotonic() + 60
    while "Forwarding from" not in (text := said.read_text()):
        assert time.monotonic() < until, text
        time.sleep(0.05)


def _was_mailed(server: Server) -> None:
    """The log of the first job has arrived where the reader's `mail` would have got it."""
    events = server.client().follow_events(after=0)
    assert next(event for event in events if event["kind"].startswith("Notice"))["kind"] == "NoticeSent"
    assert (server.folder / "mailed-succeeded").read_text() == "trained\n"


AN_IMAGE = "a registry; tests/cluster/images.py makes such an image without one"
FAKED = "tests/pools has the same against a fake, checks the files of deploy/pools, and reads the options of the pool"
#: File, what its blocks need, and their first commands. What `swell pool` itself does is shown by tests/pools.
OF_CLOUDS = (
    (
        "docs/pools/image.md",
        AN_IMAGE,
        (
            (
                "podman build -f deploy/pools/Containerfile --build-arg "
                "BASE=docker.io/pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime -t registry.lab/swell-torch:1 ."
            ),
        ),
    ),
    (
        "docs/pools/aws.md",
        f"an AWS account; {FAKED}",
        (
            (
                "aws iam create-role --role-name swell-execution --assume-role-policy-document "
                "file://deploy/pools/aws/execution-trust.json"
            ),
            "aws ec2 create-launch-template --cli-input-json file://deploy/pools/aws/launch-template.json",
            "pip install '.[aws]'",
            "swell pool logs aws-batch",
        ),
    ),
    (
        "docs/pools/azure.md",
        f"an Azure account; {FAKED}",
        (
            "az group create --name swell --location westeurope",
            "pip install '.[azure]'",
            "swell pool logs azure-batch",
        ),
    ),
    (
        "docs/pools/kubernetes.md",
        f"a GKE account; {FAKED}, and tests/pools/test_kubernetes_story.py on real kubelets",
        (
            "gcloud container clusters create swell --zone us-central1-a --num-nodes 1 --machine-type e2-standard-2",
            "kubectl apply -f deploy/pools/kubernetes/role.yaml -f deploy/pools/kubernetes/limits.yaml",
            "swell up -d --listen 10.0.0.1:8443",
            "swell pool logs kubernetes",
            "kubectl apply -f deploy/pools/kubernetes/nfs-server.yaml",
        ),
    ),
)


def _scenario(number: int) -> dict[str, str]:
    """An example and its program, under the Python that has the library."""
    folder = ROOT / "examples" / "aichor"
    name = f"scenario-{number}.yaml"
    manifest = (folder / name).read_text().replace("command: python3", f"command: {sys.executable}")
    return {name: manifest, "count.py": (folder / "count.py").read_text()}


RECIPES: dict[str, Recipe] = {
    **{f"{file}: {first}": Recipe(tier=Tier.NEEDS, why=why) for file, why, commands in OF_CLOUDS for first in commands},
    "README.md: swell run --gpus 2 -- python train.py": Recipe(
        tier=Tier.PRIVATE, files=TRAIN, before={1: _room_is_taken}
    ),
    **{
        f"docs/scenarios/{number}.md: swell submit --wait scenario-{number}.yaml": Recipe(
            tier=Tier.PRIVATE, files=_scenario(number)
        )
        for number in range(1, 5)
    },
    "docs/slurm.md: swell submit --wait train.sh": Recipe(tier=Tier.PRIVATE, files={"train.sh": SCRIPT}),
    'docs/slurm.md: swell submit --sbatch "--gres=gpu:2 --time=1:00:00" train.sh lr=0.1 --epochs 3': Recipe(
        tier=Tier.PRIVATE, files={"train.sh": SCRIPT}
    ),
    **{
        f"{page}: swell up -d --listen 10.0.0.1:8443": Recipe(
            tier=Tier.PRIVATE, has_server=False, replaced={"10.0.0.1:8443": "127.0.0.1:{port}"}
        )
        for page in ("docs/workers.md", "docs/pools/README.md")
    },
    "docs/workers.md: swell worker --server https://10.0.0.1:8443 --token-file lab.token --fingerprint SHA256": Recipe(
        tier=Tier.ELSEWHERE, why="tests/remote_worker.py starts it so, for many tests; it stays in the foreground"
    ),
    "docs/pools/slurm.md: swell token create lab --scope pool --lasts 180d --token-file ~/pool.token": Recipe(
        tier=Tier.PRIVATE, replaced={"~/pool.token": "pool.token"}
    ),
    **{
        f"{page}: swell run --gpus 1 -- python train.py": Recipe(tier=Tier.PRIVATE, files=TRAIN)
        for page in ("docs/pools/README.md", "docs/pools/slurm.md")
    },
    "docs/pools/README.md: swell pool start slurm --server https://10.0.0.1:8443 --fingerprint SHA256 "
    "--token-file pool.token": Recipe(tier=Tier.ELSEWHERE, why=ON_SLURM),
    "docs/pools/slurm.md: swell pool start slurm --name lab --server https://login1:8443 --fingerprint SHA256 "
    "--token-file ~/pool.token": Recipe(tier=Tier.ELSEWHERE, why=ON_SLURM),
    "docs/pools/codalab.md: cl-worker-manager --server https://box.lab:8443 --token-file pool.token "
    "--fingerprint SHA256": Recipe(tier=Tier.ELSEWHERE, why=ON_SLURM),
    "README.md: make demo": Recipe(tier=Tier.ELSEWHERE, why=DEMO),
    "README.md: swell run --gpu-memory 6GiB -- python small.py": Recipe(
        tier=Tier.PRIVATE,
        has_containers=True,
        files={**TRAIN, "small.py": ""},
        replaced={"pytorch:latest": IMAGE, "sudo swell service install": "swell service install --root {folder}/root"},
        codes={3: (0, 1)},  # the doctor finds no GPU driver here, and perhaps more
    ),
    "README.md: swell up -d --engine kubernetes": Recipe(
        tier=Tier.CLUSTER,
        has_server=False,
        files={"train.yaml": POD.format(name="train", more=""), "pod.yaml": POD.format(name="by-kubectl", more=OURS)},
        replaced={"pytorch:latest": IMAGE, "python train.py": "python3 -c pass"},
    ),
    "CONTRIBUTING.md: make check": Recipe(tier=Tier.ELSEWHERE, why=MAKE),
    "docs/box.md: sudo swell service install": Recipe(
        tier=Tier.BOX,
        replaced={
            "sudo swell service install": "swell service install --root {folder}",
            "sudo swell service status": "swell service status --root {folder}",
            "sudo swell service uninstall": "swell service uninstall --root {folder}",
        },
        not_run={3: "it stays in the foreground: the test has it run while it types the others"},
    ),
    "docs/containers.md: swell run --image docker.io/pytorch/pytorch:2.4 --gpus 2 -- python train.py": Recipe(
        tier=Tier.PRIVATE,
        has_containers=True,
        files=TRAIN,
        before={0: _a_data_folder},
        replaced={
            "docker.io/pytorch/pytorch:2.4": IMAGE,
            "localhost/lab:7": IMAGE,
            "/data:/data:ro": "{folder}/data:/data:ro",
            "8888:80": "{port}:80",
            "jupyter lab --port 80": "python -c 'import socket; socket.create_server((\"\", 80))'",
        },
    ),
    'docs/containers.md: swell up -d --container-command "podman --runtime runc --cgroup-manager cgroupfs" '
    '--container-options "--ulimit nofile=20000:20000"': Recipe(tier=Tier.PRIVATE, has_server=False),
    "docs/files.md: swell run --upload --output results/ -- python train.py": Recipe(
        tier=Tier.PRIVATE,
        files={
            "train.py": "import pathlib; pathlib.Path('results').mkdir(); pathlib.Path('results/a').touch()",
            ".swellignore": "/*\n!train.py\n",  # the server's own folder is here, too
        },
    ),
    "docs/gpus.md: swell up -d --gpus 2": Recipe(
        tier=Tier.PRIVATE,
        has_server=False,
        files={"train.py": WAITS, "case.py": WAITS},
        before={2: _three_small_jobs, 3: _all_run},
        replaced={"vm ": "{machine} "},
    ),
    "docs/gpus.md: kubectl label node gpu-1 nvidia.com/gpu.memory=16384": Recipe(
        tier=Tier.CLUSTER,
        replaced={"gpu-1": "{node}", "registry/train:1": IMAGE, "python train.py": f"python3 -c {SLEEPS!r}"},
        before={2: _another_small_pod},
    ),
    "docs/sim.md: swell sim": Recipe(tier=Tier.PRIVATE, has_server=False),
    "docs/sim.md: swell debug snapshot > plan.json": Recipe(
        tier=Tier.PRIVATE, before={0: _room_is_taken_and_one_waits}
    ),
    "docs/sim.md: swell history export --days 7 --all-users > week.csv": Recipe(
        tier=Tier.PRIVATE, before={0: _a_job_has_ended}
    ),
    "docs/sim.md: swell sim jobs.csv --cluster 2x4": Recipe(
        tier=Tier.PRIVATE,
        has_server=False,
        files={
            "jobs.csv": "submit_time,gpus,duration\n0,1..4,30m\n10m,2,10m\n",
            "jobs.yaml": "jobs:\n- {submit_time: 0, gpus: 1..4, duration: 30m}\n",
        },
    ),
    "docs/experiments.md: swell experiment run --config-name tiny --batches 3": Recipe(
        tier=Tier.PRIVATE, has_server=False
    ),
    'docs/experiments.md: make cluster CLUSTER="--kwok 8 --kwok-cpus 3 --kwok-gpus 0"': Recipe(
        tier=Tier.ELSEWHERE,
        why="tests/experiments/test_on_a_cluster.py runs experiments on such a cluster; building coscheduling and "
        "Kueue takes twenty minutes",
    ),
    "docs/experiments.md: swell experiment run -f experiment.yaml": Recipe(
        tier=Tier.PRIVATE,
        has_server=False,
        files={
            "experiment.yaml": "workload: {gangs: [{count: 4, size: 1..2}]}\n"
            "cluster: {simulator: {nodes: 2}}\ncontenders: [swell, fifo]\n"
        },
    ),
    "docs/kubernetes.md: kubectl -n swell port-forward svc/swell 8080 &": Recipe(
        tier=Tier.INSTALLED,
        # the server answers to localhost:8080; the port itself may be taken here
        replaced={
            "svc/swell 8080 &": "svc/swell {port}:8080 > {folder}/forwarded 2>&1 & echo $! > {folder}/forwarder",
            "http://localhost:8080": "--fail -H 'Host: localhost:8080' http://localhost:{port}",
        },
        before={1: _is_forwarded},
    ),
    "docs/kubernetes.md: swell login https://swell.example.org "
    '--token-command "kubectl create token anna -n ml --duration 8h"': Recipe(
        tier=Tier.INSTALLED,
        # TLS is its ingress's, and there is none here: tests/e2e/test_elsewhere.py logs in over TLS
        replaced={
            "login https://swell.example.org": "login http://{pod}:8080 --insecure-http",
            "https://swell.example.org": "http://{pod}:8080",
            "pytorch:latest": IMAGE,
            "python train.py": "python -c pass",
        },
    ),
    "docs/kubernetes.md: swell up -d --engine kubernetes --kubeconfig ~/.kube/lab --namespace ml": Recipe(
        tier=Tier.CLUSTER,
        has_server=False,
        before={0: _a_namespace},
        replaced={
            "~/.kube/lab": "{kubeconfig}",
            "/home/eva/.local/state/swell": "{state}",
            "real-1 ": "{node} ",
            "--image busybox": "--image {busybox}",
        },
    ),
    "docs/notices.md: swell run --notify 'sh -c \"swell logs $SWELL_JOB_ID | tail -n 20 | "
    "mail -s $SWELL_JOB_STATE ann\"' -- python train.py": Recipe(
        tier=Tier.PRIVATE,
        has_server=False,  # the reader's own, which finds `swell`
        files=TRAIN,
        replaced={"mail -s $SWELL_JOB_STATE ann": "tee {folder}/mailed-$SWELL_JOB_STATE"},
        before={1: _was_mailed},
    ),
    "docs/reasons.md: swell why waits": Recipe(
        tier=Tier.PRIVATE,
        before={0: _room_is_taken_and_one_waits},
        files={"job.yaml": "apiVersion: swell/v1\nkind: Job\nspec: {command: ['true'], gpus: 1}\n"},
    ),
    "docs/operate.md: swell token create ci --scope submit --lasts 30d --token-file ~/swell-token": Recipe(
        tier=Tier.PRIVATE, replaced={"~/swell-token": "swell-token"}
    ),
    "docs/operate.md: du -sh STATE/checkpoints/* | sort -h": Recipe(
        tier=Tier.PRIVATE, before={0: _old_checkpoints}, replaced={"STATE/": "{state}/"}
    ),
}
