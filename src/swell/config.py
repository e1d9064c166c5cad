"""What has the operator written into config.json?

    {"limits": {"default": {"gpus": 4, "running": 8, "queued": 100, "priority": 0}, "users": {"anna": {"gpus": 8}}},
     "fair_share": {"half_life": "7d"}, "policy": "swell", "admin_group": "swell-admin", "keep_s": 2592000,
     "node_rights": false,
     "admins": ["eva@example.org"], "token_audiences": ["swell"],
     "cluster": {"kubeconfig": "/home/eva/.kube/config", "context": "lab", "namespace": "ml", "stand_ins": true},
     "listen": "0.0.0.0:8080", "advertise": "http://swell.ml.svc:8080", "allowed_hosts": ["swell"],
     "tls_cert": "/etc/swell/cert.pem", "tls_key": "/etc/swell/key.pem", "plain_http": false,
     "audit": {"file": "/var/log/swell/audit.jsonl", "syslog": "/dev/log"},
     "notices": {"addresses": ["https://hooks.slack.com/services/"], "networks": ["10.20.0.0/16"]},
     "doors": [{"name": "genai", "port": 5000, "user": "anna", "address": "0.0.0.0", "hosts": ["metadata"]}]}

`swell up` and `swell service run` keep what they were told of the machine in the same file. A file with a mistake is
refused whole: a limit that is misspelt would be no limit.
"""

from __future__ import annotations

import difflib
import ipaddress
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from swell.errors import Rejected
from swell.model.launch import TAG
from swell.model.policy import DEFAULT_POLICY, POLICY_NAMES
from swell.model.quantity import BadQuantity, parse_duration
from swell.model.quota import Quota
from swell.model.webaddress import AddressPattern, BadAddress

T = TypeVar("T")

KEEP_S_DEFAULT = 30 * 86400.0  # ended jobs and their logs are kept for 30 days
HALF_LIFE_S_DEFAULT = 7 * 86400.0  # use of a week ago counts half: a quiet week is remembered, a quiet month forgiven
ADMIN_GROUP_DEFAULT = "swell-admin"
# On without a word of the operator: one user who submits in a loop must not make planning slow, or fill the disk.
QUEUED_DEFAULT = 20_000  # planned within a second; who has more submits an array
TASKS_DEFAULT = 2_000_000  # two of the largest arrays; each task becomes a row
STORED_MIB_DEFAULT = 4096  # a month of 200,000 submissions with a usual environment of 20 KiB
# Of the disk with the state folder, where users share it: a box, and a cluster, where the logs of all pods are on a
# small disk of the server's. One user alone, with all that both shares allow, cannot fill it for everybody.
DISK_SHARE = 0.25
STORED_SHARE = 0.1
NUMBER_MAX = 1_000_000_000  # more than any machine has of anything counted here


@dataclass(frozen=True, slots=True)
class UserLimits:
    """What one user may have at once; None: no limit."""

    gpus: int | None = None
    running: int | None = None  #: jobs
    queued: int | None = QUEUED_DEFAULT  #: jobs that wait, held ones included
    tasks: int | None = TASKS_DEFAULT  #: of all jobs that have not ended; arrays have many
    stored_mib: int | None = STORED_MIB_DEFAULT  #: of all jobs that are remembered: their specs and environments
    disk_mib: int | None = None  #: logs, and checkpoints in the state folder; shared servers: `shared_limits`
    priority: int | None = 0  #: the highest that a user of a box may ask for; None: any

    @property
    def quota(self) -> Quota:
        """What is held against a submission."""
        stored = None if self.stored_mib is None else self.stored_mib * 1024 * 1024
        return Quota(self.queued, self.tasks, stored)

    @property
    def disk_bytes(self) -> int | None:
        return None if self.disk_mib is None else self.disk_mib * 1024 * 1024


DEFAULT_LIMITS = UserLimits()


@dataclass(frozen=True, slots=True)
class Door:
    """A port that serves a door without a token, open as long as the server runs."""

    name: str
    port: int
    user: str  #: in whose name it acts
    address: str = "127.0.0.1"  #: where it listens; elsewhere something else must keep strangers away
    hosts: tuple[str, ...] = ()  #: names that a Host header may say, beside loopback's


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """A Kubernetes cluster that runs the tasks."""

    kubeconfig: str | None = None  #: None: KUBECONFIG, the user's own, or that of the pod we are in
    context: str | None = None  #: None: the kubeconfig's current one
    namespace: str | None = None  #: of Swell's own Lease and pods; None: the context's
    reservation_image: str | None = None  #: of the pods that keep shared GPUs; None: a public one
    stand_ins: bool = True  #: pods that call an autoscaler for jobs that wait
    jobs_namespace: str | None = None  #: of jobs that name none; None: Swell's own, which no server in a pod allows
    pod: str | None = (
        None  #: the server's own, which Services select by a label; None: it is in none, or has no Service
    )


@dataclass(frozen=True, slots=True)
class NoticeSettings:
    """Where the server may send what users want to be told."""

    addresses: tuple[AddressPattern, ...] | None = None  #: None: as is usual for this kind of server
    networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()  #: not public, and allowed all the same


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Where it is also written down who did what; None: not there."""

    file: str | None = None  #: a line of JSON each
    syslog: str | None = None  #: the socket of its daemon, as /dev/log


@dataclass(frozen=True, slots=True)
class Config:
    limits: UserLimits = field(default_factory=UserLimits)  #: of whom `users` does not name
    users: Mapping[str, UserLimits] = field(default_factory=dict)
    half_life_s: float = HALF_LIFE_S_DEFAULT
    admin_group: str = ADMIN_GROUP_DEFAULT  #: of the machine, or as the cluster calls it
    admins: tuple[str, ...] = ()  #: users of a cluster, beside the group
    token_audiences: tuple[str, ...] = ()  #: for whom a cluster's token must have been made; empty: for its API server
    keep_s: float | None = KEEP_S_DEFAULT  #: None: for ever
    cpus_milli: int | None = None  #: None: what the machine has
    gpus: int | None = None  #: None: what the machine has
    gpu_memory_mib: int | None = None  #: of a simulated GPU; None: the default
    task_processes_max: int | None = None  #: of one task, threads included; None: 32768, or half of what the kernel has
    container_command: str | None = None  #: None: podman, else docker
    container_options: str | None = None  #: for every `run` of it; None: none
    listen: str | None = None  #: ADDRESS:PORT; None: on loopback only
    advertise: str | None = None  #: what jobs are told instead of that address; None: that address
    allowed_hosts: tuple[str, ...] = ()  #: further names that a Host header may say
    tls_cert: str | None = None  #: file with the certificate for `listen`; None: one of our own, where TLS is spoken
    tls_key: str | None = None  #: file with its key
    plain_http: bool = False  #: speak no TLS there
    doors: tuple[Door, ...] = ()
    audit: AuditSettings = field(default_factory=AuditSettings)
    notices: NoticeSettings = field(default_factory=NoticeSettings)
    cluster: ClusterSettings | None = None  #: None: machines of our own run the tasks
    policy: str = DEFAULT_POLICY  #: by which jobs are planned
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  #: users, by the name of their group
    node_rights: bool = False  #: may anybody's pods ask for folders, network, processes or devices of their node?

    def limits_of(self, user: str) -> UserLimits:
        return self.users.get(user, self.limits)

    def groups_of(self, user: str) -> tuple[str, ...]:
        return tuple(sorted(name for name, members in self.groups.items() if user in members))

    @property
    def limits_disk(self) -> bool:
        """Must anybody's logs and checkpoints be counted?"""
        return any(one.disk_mib is not None for one in (self.limits, *self.users.values()))


def shared_limits(folder: Path) -> UserLimits:
    """What each of several users may have on the disk with this folder where the operator says nothing."""
    disk = os.statvfs(folder)
    mib = disk.f_blocks * disk.f_frsize / (1024 * 1024)
    return UserLimits(stored_mib=min(STORED_MIB_DEFAULT, int(mib * STORED_SHARE)), disk_mib=int(mib * DISK_SHARE))


def read_config(
    path: Path, default: UserLimits = DEFAULT_LIMITS, changed: Mapping[str, object] = MappingProxyType({})
) -> Config:
    """A file that is not there says nothing; one with a mistake is refused.

    `default`: limits that it does not name. `changed`: what is said now, which goes before what the file says.
    """
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        document = {}
    except ValueError as error:
        raise Rejected(f"{path} is not valid JSON: {error}; fix or remove the file") from None
    try:
        return parse_config({**document, **changed} if isinstance(document, dict) else document, default)
    except Rejected as problem:
        raise Rejected(f"{path}: {problem}") from None


def parse_config(document: object, default: UserLimits = DEFAULT_LIMITS) -> Config:
    whole = _table(document, "the file", Config.__dataclass_fields__.keys() - {"users", "half_life_s"} | {"fair_share"})
    limits = _table(whole.get("limits", {}), "limits", {"default", "users"})
    default = _limits(limits.get("default", {}), "limits.default", default)
    users = _table(limits.get("users", {}), "limits.users", None)
    share = _table(whole.get("fair_share", {}), "fair_share", {"half_life"})
    values: dict[str, Any] = {
        "limits": default,
        "users": {name: _limits(given, f"limits.users.{name}", default) for name, given in users.items()},
    }
    if "half_life" in share:
        values["half_life_s"] = _duration(share["half_life"], "fair_share.half_life")
    if "admin_group" in whole:
        values["admin_group"] = _of(whole["admin_group"], "admin_group", _is_name, "a group's name")
    if "keep_s" in whole:
        values["keep_s"] = _or_none(
            whole["keep_s"], "keep_s", _is_positive, "a number of seconds, or null for no limit"
        )
    for name in ("cpus_milli", "gpus", "gpu_memory_mib", "task_processes_max"):
        values[name] = _or_none(whole.get(name), name, _is_count, f"a whole number from 0 to {NUMBER_MAX}, or null")
    for name in ("container_command", "container_options"):
        values[name] = _or_none(whole.get(name), name, _is_name, "a list of words of a command, or null")
    for name in ("listen", "advertise"):
        values[name] = _or_none(whole.get(name), name, _is_name, "an address, or null")
    for name in ("tls_cert", "tls_key"):
        values[name] = _or_none(whole.get(name), name, _is_name, "a file's name, or null")
    if (values["tls_cert"] is None) != (values["tls_key"] is None):
        raise Rejected("tls_cert and tls_key belong together; name both, or neither")
    values["plain_http"] = _of(whole.get("plain_http", False), "plain_http", _is_bool, "true or false")
    values["node_rights"] = _of(whole.get("node_rights", False), "node_rights", _is_bool, "true or false")
    for name in ("admins", "token_audiences", "allowed_hosts"):
        values[name] = tuple(_of(whole.get(name, []), name, _are_names, "a list of names"))
    groups = _table(whole.get("groups", {}), "groups", None)
    values["groups"] = {
        _of(name, "groups", _is_group, "names of letters, digits and '-'"): tuple(
            _of(users, f"groups.{name}", _are_names, "a list of users")
        )
        for name, users in groups.items()
    }
    doors = _of(whole.get("doors", []), "doors", lambda value: isinstance(value, list), "a list")
    values["audit"] = _audit(whole.get("audit", {}))
    if "notices" in whole:
        values["notices"] = _notices(whole["notices"])
    if whole.get("cluster") is not None:
        values["cluster"] = _cluster(whole["cluster"])
    wanted = f"one of {', '.join(POLICY_NAMES)}"
    values["policy"] = _of(whole.get("policy", DEFAULT_POLICY), "policy", POLICY_NAMES.__contains__, wanted)
    values["doors"] = tuple(_door(door, f"doors[{number}]") for number, door in enumerate(doors))
    return Config(**values)


def _door(document: object, where: str) -> Door:
    given = _table(document, where, Door.__dataclass_fields__.keys())
    for name in ("name", "port", "user"):
        if name not in given:
            raise Rejected(f"{where} needs {name!r}: a door has a name, a port and the user it acts as")
    for name in given.keys() & {"name", "user", "address"}:
        _of(given[name], f"{where}.{name}", _is_name, "a name")
    _of(given["port"], f"{where}.port", _is_port, "a whole number from 1 to 65535")
    hosts = tuple(_of(given.get("hosts", []), f"{where}.hosts", _are_names, "a list of names"))
    return Door(**{**given, "hosts": hosts})


def _notices(document: object) -> NoticeSettings:
    given = _table(document, "notices", NoticeSettings.__dataclass_fields__.keys())
    listed = _or_none(given.get("addresses"), "notices.addresses", _are_names, "a list of addresses, or null")
    networks = _of(given.get("networks", []), "notices.networks", _are_names, "a list of networks")
    return NoticeSettings(
        None if listed is None else tuple(_pattern(text) for text in listed), tuple(_network(text) for text in networks)
    )


def _pattern(text: str) -> AddressPattern:
    try:
        return AddressPattern.parse(text)
    except BadAddress as problem:
        raise Rejected(
            f"notices.addresses: {text!r}: {problem}; write the beginning of the addresses, for example "
            "https://hooks.slack.com/"
        ) from None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as problem:
        raise Rejected(f"notices.networks: {problem}; write 10.20.0.0/16 or one IP address") from None


def _cluster(document: object) -> ClusterSettings:
    given = _table(document, "cluster", ClusterSettings.__dataclass_fields__.keys())
    names = {name: value for name, value in given.items() if name != "stand_ins"}
    stand_ins = _of(given.get("stand_ins", True), "cluster.stand_ins", _is_bool, "true or false")
    named = {name: _or_none(value, f"cluster.{name}", _is_name, "a name") for name, value in names.items()}
    return ClusterSettings(**named, stand_ins=stand_ins)


def _audit(document: object) -> AuditSettings:
    given = _table(document, "audit", AuditSettings.__dataclass_fields__.keys())
    wanted = "an absolute path, or null"
    return AuditSettings(**{name: _or_none(value, f"audit.{name}", _is_path, wanted) for name, value in given.items()})


def _limits(document: object, where: str, default: UserLimits) -> UserLimits:
    given = _table(document, where, asdict(default).keys())
    wanted = f"a whole number from 0 to {NUMBER_MAX}, or null for no limit"
    own = {name: _or_none(value, f"{where}.{name}", _is_count, wanted) for name, value in given.items()}
    return UserLimits(**{**asdict(default), **own})


def _table(document: object, where: str, known: Iterable[str] | None) -> dict[str, Any]:
    """`known` None: any key."""
    if not isinstance(document, dict):
        raise Rejected(f"{where} must be an object {{...}}, but is {document!r}")
    for name in document:
        if known is not None and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known fields: {', '.join(sorted(known))}"
            raise Rejected(f"{where} has no {name!r}; {hint}")
    return document


def _or_none(value: T | None, where: str, is_good: Callable[[object], bool], wanted: str) -> T | None:
    return None if value is None else _of(value, where, is_good, wanted)


def _of(value: T, where: str, is_good: Callable[[object], bool], wanted: str) -> T:
    if not is_good(value):
        raise Rejected(f"{where} must be {wanted}, but is {value!r}")
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= NUMBER_MAX


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _is_port(value: object) -> bool:
    return _is_count(value) and 0 < int(str(value)) < 65536


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_group(value: object) -> bool:
    return isinstance(value, str) and TAG.fullmatch(value) is not None


def _is_path(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/")


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_name, value))


def _duration(value: object, where: str) -> float:
    try:
        return parse_duration(value)
    except BadQuantity as problem:
        raise Rejected(f"{where}: {problem}") from None
