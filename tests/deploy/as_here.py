"""How does the chart's pod run on this machine? Helm runs this on what it has rendered: UID HOST PORT.

Cluster addresses lead nowhere here: the pod is told the API server's own. Where no group is named, OpenShift's
admission writes user and group of the namespace's range into the pod.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml


def main() -> None:
    uid, host, port = sys.argv[1:]
    documents = [document for document in yaml.safe_load_all(sys.stdin) if document]
    for document in documents:
        if document["kind"] == "Deployment":
            as_here(document["spec"]["template"]["spec"], int(uid), host, port)
    yaml.safe_dump_all(documents, sys.stdout)


def as_here(pod: dict[str, Any], uid: int, host: str, port: str) -> None:
    [container] = pod["containers"]
    container["env"] += [
        {"name": "KUBERNETES_SERVICE_HOST", "value": host},
        {"name": "KUBERNETES_SERVICE_PORT", "value": port},
    ]
    if "fsGroup" not in pod["securityContext"]:
        pod["securityContext"] |= {"runAsUser": uid, "fsGroup": uid}


if __name__ == "__main__":
    main()
