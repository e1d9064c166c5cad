"""Workers as pods of a Kubernetes cluster; GKE's and everybody else's.

    options     what such a pool is told          access      where its API server is
    render      an order → a pod                  parse       pods → workers
    backend     sends and receives

The HTTP client is the engine's (engines/kubernetes/client); nothing else of the engine is used.
"""

from __future__ import annotations

from typing import Any

from swell.pools.backend import PoolBackend
from swell.pools.kinds import LegacyCommand, PoolKind
from swell.pools.kubernetes.options import FLAGS, KubernetesOptions, nfs_folders, read
from swell.pools.options import PoolOptions

HELP = """Run workers as pods of a Kubernetes cluster.

\b
swell pool start kubernetes --server https://box.lab:8443 --token-file pool.token --fingerprint SHA256 \\
    --image registry.lab/swell-torch:1 --namespace ml --gpus 1 --cpus 4 --memory 16GiB --max-workers 8

Pods that wait for a node count as launched. The pool needs the rights of deploy/pools/kubernetes/role.yaml.
"""


def connect(pool: PoolOptions, options: Any) -> PoolBackend:
    from swell.pools.kubernetes.access import access_of
    from swell.pools.kubernetes.backend import KubernetesPoolBackend

    assert isinstance(options, KubernetesOptions)
    return KubernetesPoolBackend(pool.name, options, access_of(options))


KIND = PoolKind(
    name="kubernetes",
    help=HELP,
    flags=FLAGS,
    read=read,
    connect=connect,
    legacy=LegacyCommand(
        name="kubernetes",
        defaults={"namespace": "default", "one_per_node": "yes"},
        shared_folders=lambda told: dict.fromkeys(nfs_folders(told), "nfs-volume-name"),
        ignored={
            "bundle-runtime": "jobs run as processes of the worker's image, or as pods of their own with "
            "`swell up --engine kubernetes`."
        },
    ),
)
