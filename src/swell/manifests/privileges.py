"""Which rights over its node does an object ask for?

What Pod Security calls baseline keeps from pods: the node's folders, network, processes and devices. A server creates
such a pod only where its operator allows it, or for an administrator: its own rights must be nobody's detour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

OF_THE_NODE = {
    "hostNetwork": "the network of its node",
    "hostPID": "the processes of its node",
    "hostIPC": "the shared memory of its node",
    "privileged": "all devices of its node",
}
VARIABLES = ("env", "environment")  # where a mapping has names of variables, which may be any
CAPABILITIES = frozenset({"NET_BIND_SERVICE"})  # what restricted pods may add


@dataclass(frozen=True, slots=True)
class Privilege:
    path: str  #: of the field that asks for it
    what: str  #: in words


def find_privilege(document: dict[str, Any]) -> Privilege | None:
    """The first one; None: there is none."""
    return next(_privileges(document.get("spec"), "spec"), None)


def _privileges(value: Any, path: str) -> Iterator[Privilege]:
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _privileges(one, f"{path}[{number}]")
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        here = f"{path}.{name}"
        if name in OF_THE_NODE and inner is True:
            yield Privilege(here, OF_THE_NODE[name])
        elif name == "hostPath" and inner:
            yield Privilege(here, "a folder of its node")
        elif name in VARIABLES and isinstance(inner, dict):
            continue
        elif name == "capabilities" and isinstance(inner, dict) and not CAPABILITIES.issuperset(_added(inner)):
            yield Privilege(f"{here}.add", "rights of root")
        else:
            yield from _privileges(inner, here)


def _added(capabilities: dict[str, Any]) -> list[str]:
    given = capabilities.get("add")
    return [str(one) for one in given] if isinstance(given, list) else []
