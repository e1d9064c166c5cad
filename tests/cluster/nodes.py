"""How does a real node run on this machine? containerd and kubelet in namespaces of their own, beside other nodes.

A node's first process holds a mount, network and PID namespace. Whatever runs on the node runs inside: when the holder
dies, so do kubelet, containerd, its shims and every container, and mounts and interfaces go with them.
The mounts give each node what programs have as constants: /var/lib/kubelet (device plugins register there),
/var/log/pods, /run/containerd, /var/lib/cni.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from .api import Api, Object, condition
from .binaries import program
from .images import image, name_of
from .network import Network
from .processes import Failed, Process, Word, is_ready, run

CNI = Path("/usr/lib/cni")
SANDBOX = "busybox"  # the image whose sleep holds a pod's namespaces
GPU = "nvidia.com/gpu"
#: what a real node needs → Debian's package
NEEDS = {"containerd": "containerd", "runc": "runc", str(CNI / "bridge"): "containernetworking-plugins"}
NEEDS |= {"iptables": "iptables", "ip": "iproute2", "unshare": "util-linux", "setpriv": "util-linux"}
KUBELET_PORT = 10250  # every node has an address of its own
SOCKET = "/run/containerd/containerd.sock"

HOLD = """set -e
for place in /var/lib/kubelet /var/log/pods /var/log/containers /var/lib/cni; do
    mkdir -p "$place" "$1/places$place"
    mount --bind "$1/places$place" "$place"
done
for place in /run/containerd /run/netns; do
    mkdir -p "$place"
    mount -t tmpfs node "$place"
done
touch "$1/held"
sleep infinity & wait  # as the first process of the namespace: wait also reaps the orphans of others
"""

# Debian's containerd is version 1.6: its configuration is the one called version 2.
CONTAINERD = """version = 2
root = "{folder}/containerd"
state = "/run/containerd/state"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{sandbox}"
restrict_oom_score_adj = true  # root may lack CAP_SYS_RESOURCE; without this every sandbox fails
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{cni}"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = false
"""


class Inside(Process):
    """A program in a node's namespaces. We start `nsenter`, which passes no signal on: its child gets them."""

    def __init__(self, name: str, holder: int, words: Sequence[Word], folder: Path) -> None:
        enter = ("nsenter", "--target", str(holder), "--mount", "--net", "--pid", "--")
        super().__init__(name, [*enter, *words], folder)

    def signal(self, number: signal.Signals) -> None:
        for pid in _children(self.pid):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, number)


class RealNode:
    """One kubelet with its own containerd, address, cgroups and, if wanted, GPUs that a device plugin declares."""

    def __init__(self, folder: Path, network: Network, number: int, api: Api, *, gpus: int = 0) -> None:
        self.name = f"real-{number}"
        self.folder = folder / self.name
        self.gpus = gpus
        self._network, self._number, self._api = network, number, api
        self.folder.mkdir(parents=True)
        words = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        words += ["--propagation", "private", "sh", "-c", HOLD, "sh", str(self.folder)]
        self._holder = Process("holder", words, self.folder)

    def start(self, nodes: int, images: Sequence[str] = ()) -> None:
        """One of so many nodes; everything up to the kubelet, `until_ready` waits for that."""
        self._holder.start()
        self._holder.until((self.folder / "held").exists)
        self._inside = _children(self._holder.pid)[0]
        self._network.connect(self._number, self._inside, nodes)
        self._network.make_cgroups(self._number)
        self._write_settings()
        self._start_containerd()
        for name in dict.fromkeys((SANDBOX, *images)):
            self.load(image(name))
        self.kubelet = Inside("kubelet", self._inside, self._kubelet_words(), self.folder)
        self.kubelet.start()
        plugin: list[Word] = [program("gpu-plugin"), GPU, str(self.gpus), f"GPU-{self.name}"]
        self.plugin = Inside("gpu-plugin", self._inside, plugin, self.folder) if self.gpus else None

    def until_ready(self) -> None:
        """Until the node takes pods, with all its GPUs."""
        here = f"https://{self._network.node_address(self._number)}:{KUBELET_PORT}/healthz"
        self.kubelet.until(partial(is_ready, here))  # what the API server knows may be from before a restart
        self._until(lambda node: condition(node, "Ready") == "True")
        plugin = self.plugin
        if plugin and not plugin.is_alive:
            plugin.log.unlink(missing_ok=True)
            plugin.start()
            plugin.until(lambda: "registered" in plugin.tail())
            self._until(lambda node: node["status"]["allocatable"].get(GPU) == str(self.gpus))

    def restart_kubelet(self) -> None:
        """After it was killed. A device plugin must register anew, or the node has no GPUs any more."""
        if self.plugin:
            self.plugin.stop()
        self.kubelet.start()
        self.until_ready()

    def stop(self) -> None:
        """The whole node at once, containers too, as a power cut would. What is left is in the folder: logs."""
        self._holder.kill()
        shutil.rmtree(self.folder / "containerd", ignore_errors=True)
        shutil.rmtree(self.folder / "places", ignore_errors=True)

    def load(self, archive: Path) -> None:
        self._run("ctr", "--address", SOCKET, "--namespace", "k8s.io", "images", "import", archive)

    def _until(self, is_true: Callable[[Object], bool]) -> None:
        here = f"/api/v1/nodes?fieldSelector=metadata.name={self.name}"
        try:
            self._api.until(here, lambda items: self.name in items and is_true(items[self.name]))
        except AssertionError as unready:
            raise Failed(f"{unready}\nkubelet: {self.kubelet.tail()}") from unready

    def _kubelet_words(self) -> list[Word]:
        return [
            program("kubelet"),
            f"--config={self.folder / 'kubelet.json'}",
            f"--kubeconfig={self._api.kubeconfig}",
            "--root-dir=/var/lib/kubelet",
            f"--hostname-override={self.name}",
            f"--node-ip={self._network.node_address(self._number)}",
            "--node-labels=type=real",
        ]

    def _start_containerd(self) -> None:
        words: list[Word] = ["containerd", "--config", self.folder / "containerd.toml", "--log-level", "warn"]
        self.containerd = Inside("containerd", self._inside, words, self.folder)
        self.containerd.start()
        self.containerd.until(self._containerd_answers)

    def _containerd_answers(self) -> bool:
        try:
            self._run("ctr", "--address", SOCKET, "version")
        except Failed:
            return False
        return True

    def _run(self, *words: Word) -> str:
        return run("nsenter", "--target", str(self._inside), "--mount", "--net", "--", *words)

    def _write_settings(self) -> None:
        values = {"folder": self.folder, "socket": SOCKET, "sandbox": name_of(SANDBOX), "cni": CNI}
        (self.folder / "containerd.toml").write_text(CONTAINERD.format(**values))
        (self.folder / "cni").mkdir()
        (self.folder / "cni" / "pods.conflist").write_text(json.dumps(self._cni()))
        (self.folder / "resolv.conf").write_text("")  # pods ask CoreDNS, which asks nobody else
        (self.folder / "kubelet.json").write_text(json.dumps(self._kubelet()))

    def _cni(self) -> dict[str, object]:
        ranges = {"type": "host-local", "ranges": [[{"subnet": self._network.pods(self._number)}]]}
        addresses = {**ranges, "dataDir": "/var/lib/cni/networks", "routes": [{"dst": "0.0.0.0/0"}]}
        bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipMasq": False, "ipam": addresses}
        return {"cniVersion": "0.4.0", "name": self.name, "plugins": [bridge]}

    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self._network.node_address(self._number),
            "port": KUBELET_PORT,
            "healthzPort": 0,
            "readOnlyPort": 0,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._network.cgroup(self._number)}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "failCgroupV1": False,
            "clusterDNS": [self._network.gateway],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.folder / "resolv.conf"),
            "nodeStatusUpdateFrequency": "4s",
            "nodeLeaseDurationSeconds": 12,
            "imageGCHighThresholdPercent": 100,  # images that cannot be pulled again must not be collected
            "evictionHard": {"memory.available": "100Mi"},  # a disk filled by others is not the node's business
            "maxPods": 110,
        }


def missing() -> list[str]:
    """The Debian packages that a real node needs and this machine does not have."""
    absent = {package for probe, package in NEEDS.items() if shutil.which(probe) is None}
    return sorted(absent)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
