"""Every block of commands in the documents, and how a test runs it.

A new block: add a line here, under `file: first command` without its remark. What stands in `replaced` is all that the
test types differently, so keep it to what cannot be had here: an image, somebody's folder, a cluster's name. A picture
or a listing is no block of commands: write ```text.
"""

from __future__ import annotations

from typing import Any

from cluster.images import name_of
from e2e.containers import ContainerServer
from server import Server

from .recipes import Recipe, Tier

TRAIN = {"train.py": "print('trained')\n"}
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
MAKE = "the test above looks whether the Makefile has it; CI and whoever commits run it"


def _room_is_taken(server: Server) -> None:
    server.until(server.start("--gpus", "4", "--", "sleep", "600"), "running")
    assert server.start("--name", "waits", "--gpus", "3", "--", "true") == 3


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


def _was_mailed(server: Server) -> None:
    """The log of the first job has arrived where the reader's `mail` would have got it."""
    events = server.client().follow_events(after=0)
    assert next(event for event in events if event["kind"].startswith("Notice"))["kind"] == "NoticeSent"
    assert (server.folder / "mailed-succeeded").read_text() == "trained\n"


RECIPES: dict[str, Recipe] = {
    "README.md: swell run --gpus 2 -- python train.py": Recipe(
        tier=Tier.PRIVATE, files=TRAIN, before={1: _room_is_taken}
    ),
    "README.md: make demo": Recipe(tier=Tier.ELSEWHERE, why=MAKE),
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
    "docs/kubernetes.md: kubectl -n swell port-forward svc/swell 8080 &": Recipe(
        tier=Tier.ELSEWHERE,
        why="tests/deploy/test_installed.py: `swell` in the pod, and tokens of service accounts; not the port-forward",
    ),
    "docs/kubernetes.md: swell login https://swell.example.org "
    '--token-command "kubectl create token anna -n ml --duration 8h"': Recipe(
        tier=Tier.ELSEWHERE,
        why="tests/e2e/test_elsewhere.py logs in over TLS with a --token-command; tests/deploy with a cluster's tokens",
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
    "docs/operate.md: swell token create ci --scope submit --lasts 30d > ~/swell-token": Recipe(
        tier=Tier.PRIVATE, replaced={"~/swell-token": "swell-token"}
    ),
    "docs/operate.md: du -sh STATE/checkpoints/* | sort -h": Recipe(
        tier=Tier.PRIVATE, before={0: _old_checkpoints}, replaced={"STATE/": "{state}/"}
    ),
}
