"""What is a pool of pods told?"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from swell.errors import Rejected
from swell.machine.worker_options import Flag, FlagKind
from swell.model.kubernetes_quantity import GPU
from swell.pools.image import IMAGE_FLAG, SHARED_MEMORY_FLAG, check_shared_memory, read_image

DNS_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")  # of objects in Kubernetes
LABEL = re.compile(r"(?P<key>[A-Za-z0-9](?:[-A-Za-z0-9_./]{0,315}[A-Za-z0-9])?)=(?P<value>[-A-Za-z0-9_.]{0,63})")
RESOURCE = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
MOUNT_PATH = re.compile(r"(?:/[A-Za-z0-9_.-]+)+")
CERTIFICATE_BYTES_MAX = 1 << 20

FLAGS = (
    IMAGE_FLAG,
    Flag("namespace", "namespace", FlagKind.TEXT, "NAME", "Namespace of the pods.  [default: that of the context]"),
    Flag("kubeconfig", "kubeconfig", FlagKind.PATH, "FILE", "Kubeconfig file.  [default: as kubectl finds it]"),
    Flag("context", "context", FlagKind.TEXT, "NAME", "Context of the kubeconfig.  [default: the current one]"),
    Flag("cluster-host", "cluster_host", FlagKind.TEXT, "URL", "Address of the API server, instead of a kubeconfig."),
    Flag(
        "auth-token",
        "auth_token",
        FlagKind.TEXT,
        "TOKEN",
        "Token of a service account; others can read it in `ps`.",
        is_secret=True,
    ),
    Flag("auth-token-file", "auth_token_file", FlagKind.PATH, "FILE", "File with the token of a service account."),
    Flag("cert-path", "cert_path", FlagKind.PATH, "FILE", "CA certificate of the API server, in PEM."),
    Flag("cert", "cert", FlagKind.TEXT, "PEM", "Text of that certificate, instead of a file."),
    Flag("node-selector", "node_selector", FlagKind.TEXT, "KEY=VALUE,…", "Labels of the nodes that pods may run on."),
    Flag(
        "gpu-resource", "gpu_resource", FlagKind.TEXT, "NAME", "Resource that counts GPUs.  [default: nvidia.com/gpu]"
    ),
    Flag("one-per-node", "one_per_node", FlagKind.SWITCH, "", "Run at most one worker on a node."),
    Flag(
        "nfs-volume-name",
        "nfs_volume_name",
        FlagKind.TEXT,
        "NAME",
        "Mount the persistent volume claim NAME-claim, for data and checkpoints that workers share.",
    ),
    Flag("nfs-path", "nfs_path", FlagKind.TEXT, "DIR", "Where that volume is mounted.  [default: /mnt/NAME]"),
    replace(
        SHARED_MEMORY_FLAG,
        help="Size of /dev/shm of each worker, which all its tasks share.  [default: the memory of the pod]",
    ),
)


@dataclass(frozen=True, slots=True)
class KubernetesOptions:
    image: str
    namespace: str | None = None  #: None: that of the context, or of the pod that the pool runs in
    kubeconfig: Path | None = None  #: None: as kubectl finds it
    context: str | None = None  #: None: the current one
    cluster_host: str | None = None  #: None: the kubeconfig says it
    auth_token: str | None = None  #: None: the kubeconfig says it, or a file has it
    auth_token_file: Path | None = None
    cert_path: Path | None = None  #: None: the authorities that this machine trusts
    cert: str | None = None  #: None: the file has it
    node_selector: tuple[tuple[str, str], ...] = ()
    gpu_resource: str = GPU
    one_per_node: bool = False
    nfs_volume_name: str | None = None  #: None: workers share no volume
    nfs_path: str | None = None  #: None: none is mounted
    shared_memory_mib: int | None = None  #: None: as much as the pod has memory

    def __repr__(self) -> str:
        return f"KubernetesOptions({self.image}, {self.cluster_host or self.kubeconfig})"  # without the token


def read(given: Mapping[str, Any]) -> KubernetesOptions:
    """`given`: values by field, as `read_flags` returns them."""
    check_shared_memory(given)
    said = {**given, "image": read_image(given.get("image"), os.environ)}
    said["node_selector"] = _read_labels(said.get("node_selector", ""))
    _refuse_half_an_access(said)
    _refuse_names(said)
    if folders := nfs_folders(said):
        said["nfs_path"] = folders[0]
    elif "nfs_path" in said:
        raise Rejected("--nfs-path says where a volume is mounted, and no volume is named; add --nfs-volume-name NAME")
    return KubernetesOptions(**said)


def nfs_folders(said: Mapping[str, Any]) -> tuple[str, ...]:
    """Where the volume that workers share is mounted; empty: they share none."""
    name = said.get("nfs_volume_name")
    return () if name is None else (said.get("nfs_path") or f"/mnt/{name}",)


def _read_labels(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for part in text.split(",") if text else ():
        label = LABEL.fullmatch(part)
        if label is None:
            raise Rejected(f"--node-selector {part[:100]!r} is not KEY=VALUE, for example gpu=a100")
        found.append((label["key"], label["value"]))
    return tuple(sorted(found))


def _refuse_half_an_access(said: Mapping[str, Any]) -> None:
    alone = [flag for flag in ("auth_token", "auth_token_file", "cert_path", "cert") if said.get(flag)]
    if "cluster_host" not in said:
        if alone:
            raise Rejected(f"--{alone[0].replace('_', '-')} belongs to --cluster-host URL; add it, or use --kubeconfig")
        return
    if said.get("kubeconfig") or said.get("context"):
        raise Rejected("--cluster-host and --kubeconfig both say where the API server is; give one of them")
    if not str(said["cluster_host"]).startswith("https://"):
        raise Rejected(f"--cluster-host {said['cluster_host'][:100]!r} must look like https://HOST:443")
    if not said.get("auth_token") and not said.get("auth_token_file"):
        raise Rejected("--cluster-host needs the token of a service account; add --auth-token-file FILE")


def _refuse_names(said: Mapping[str, Any]) -> None:
    for flag, shape, example in (
        ("namespace", DNS_NAME, "ml"),
        ("nfs_volume_name", DNS_NAME, "nfs"),
        ("gpu_resource", RESOURCE, GPU),
        ("nfs_path", MOUNT_PATH, "/mnt/nfs"),
    ):
        value = said.get(flag)
        if value is not None and (not shape.fullmatch(value) or ".." in value.split("/")):
            raise Rejected(f"--{flag.replace('_', '-')} {value[:100]!r} cannot be right; write it like {example}")
