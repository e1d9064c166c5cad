"""What does one container of a Kubernetes pod ask for, when it is run as a process?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.command import read_command, read_env, read_folder, read_words
from swell.manifests.context import Context
from swell.manifests.expand import Expansion
from swell.manifests.fields import (
    Fields,
    describe,
    inside,
    quantity,
    read_name,
    shorten,
    take_list,
    take_mapping,
    take_optional,
    take_text,
)
from swell.manifests.metadata import ObjectIdentity
from swell.manifests.notation import parse_kubernetes_cpus, parse_kubernetes_gpus, parse_kubernetes_memory
from swell.model.job import Numbered
from swell.model.kubernetes_quantity import GPU

CPUS_MILLI_DEFAULT = 1000  # as for a job in our own notation
CONTAINER = Fields(
    used=("name", "command", "args", "env", "workingDir", "resources"),
    idle=(
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
    ),
    refused={
        "envFrom": "takes variables from a ConfigMap or Secret, and there are none on this machine; "
        "write them in env, or set them in your shell: a job has its caller's environment",
        "restartPolicy": "is not kept for one container: all of them start again together; say it for the pod",
        "restartPolicyRules": "is not kept for one container: all of them start again together; leave it out",
    },
)
VARIABLE = Fields(used=("name", "value", "valueFrom"))
FIELD_REF = Fields(used=("fieldPath",), idle=("apiVersion",))
KEY_REF = Fields(used=("name", "key", "optional"))
#: Where a variable may come from that only a cluster has: here the caller's own environment takes its place.
KEPT_IN_CLUSTERS = {"secretKeyRef": "Secret", "configMapKeyRef": "ConfigMap"}
VALUE_FROM = Fields(
    used=("fieldRef", *KEPT_IN_CLUSTERS),
    refused=dict.fromkeys(("resourceFieldRef", "fileKeyRef"), "is known to a kubelet only; write a value"),
)
RESOURCES = Fields(
    used=("requests", "limits"),
    refused={"claims": f"asks for devices by claim, which this machine does not have; ask for {GPU}"},
)
AMOUNTS = Fields(used=("cpu", "memory", GPU), idle=("ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi"))


Variables = dict[str, str | Numbered]


@dataclass(frozen=True, slots=True)
class ContainerFields:
    """One container as a process; `where` it stands in the manifest, for messages."""

    where: str
    name: str
    command: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    workdir: str | None  #: None: the caller's
    cpus_milli: int
    memory_mib: int
    gpus: tuple[int, int] | None  #: least and most; None: it says nothing of GPUs
    numbered: tuple[Numbered, ...]  #: variables that differ from task to task
    holders: tuple[str, ...]  #: which containers its GPUs could be for: itself, or some of the pod it stands for
    gpu_memory_mib: int = 0  #: a share of one GPU; then it has no whole ones
    cpu_limit_milli: int = 0  #: 0: it names none


def read_container(
    value: object, where: str, number: int, identity: ObjectIdentity, context: Context
) -> ContainerFields:
    given = take_mapping(value, where)
    CONTAINER.check(given, where)
    expansion = Expansion(where)
    name = read_container_name(given.get("name"), where, number)
    variables = _variables(given.get("env"), f"{where}.env", identity, expansion, context)
    cpus, memory, gpus = _resources(given.get("resources"), f"{where}.resources")
    return ContainerFields(
        where=where,
        name=name,
        command=_command(given, where, variables, expansion),
        env=tuple(sorted((name, value) for name, value in variables.items() if isinstance(value, str))),
        workdir=_workdir(given.get("workingDir"), where, context),
        cpus_milli=CPUS_MILLI_DEFAULT if cpus is None else cpus[0],
        memory_mib=0 if memory is None else memory[0],
        gpus=gpus,
        numbered=tuple(replace(value, name=name) for name, value in variables.items() if isinstance(value, Numbered)),
        holders=(name,),
        cpu_limit_milli=_cpu_limit(given.get("resources"), cpus),
    )


def read_container_name(value: object, where: str, number: int) -> str:
    if value is None:
        return "main" if number == 0 else f"container-{number}"
    with inside(f"{where}: "):
        return read_name(value)


def _workdir(value: object, where: str, context: Context) -> str | None:
    if value is None or value == "":
        return None
    with inside(f"{where}."):
        return read_folder(value, context.workdir, "workingDir", otherwise="the caller's own")


def _command(given: dict[str, Any], where: str, variables: Variables, expansion: Expansion) -> tuple[str, ...]:
    words = [expansion.expand(word, variables) for word in _words(given, where)]
    with inside(f"{where}."):  # again: what a variable stands for may be nothing, or too long
        return read_command(words)


def _words(given: dict[str, Any], where: str) -> tuple[str, ...]:
    if given.get("command") is None or given["command"] == []:
        image = f" of {shorten(given['image'])!r}" if isinstance(given.get("image"), str) else ""
        raise Rejected(
            f"{where} has no command: processes, not containers, run on this machine, so the entry point{image} is not "
            "known here; write it out, as in command: [python, train.py]"
        )
    with inside(f"{where}."):
        return read_command(given["command"]) + read_words(take_list(given.get("args"), "args"), "args")


def _variables(
    value: object, where: str, identity: ObjectIdentity, expansion: Expansion, context: Context
) -> Variables:
    """Each may refer to those before it; of two with one name the last counts."""
    variables = dict(identity.variables)
    for number, entry in enumerate(take_list(value, where)):
        here = f"{where}[{number}]"
        given = take_mapping(entry, here)
        VARIABLE.check(given, here)
        name = take_text(given.get("name"), f"{here}.name")
        with inside(f"{here}: "):
            if _is_callers(given, name, context):
                variables.pop(name, None)
                continue
            found = _value(given, identity)
            ((name, text),) = read_env({name: "" if isinstance(found, Numbered) else found})
        if isinstance(found, Numbered):
            variables[name] = found
        else:
            variables[name] = expansion.expand(text, variables) if given.get("valueFrom") is None else text
    return variables


def _is_callers(given: dict[str, Any], name: str, context: Context) -> bool:
    """Is it one from a Secret or ConfigMap? Then the job has the one of its caller's environment, or does without."""
    source = given.get("valueFrom")
    kind = next((kind for kind in KEPT_IN_CLUSTERS if isinstance(source, dict) and list(source) == [kind]), None)
    if kind is None or given.get("value") is not None:
        return False
    reference = take_mapping(given["valueFrom"][kind], f"valueFrom.{kind}")
    KEY_REF.check(reference, f"valueFrom.{kind}")
    if name not in context.variables and reference.get("optional") is not True:
        asked, option = shorten(name), f"--env {shorten(name)}=…"
        how = (
            f"give it with {option}, set {asked} in your shell (a job has its caller's environment), or write a value"
            if context.has_shell
            else f"deploy the file with a command (genai-manager deploy {option}), or write a value into it"
        )
        raise Rejected(
            f"valueFrom.{kind}: {asked} comes from a {KEPT_IN_CLUSTERS[kind]}, and this machine has none; {how}"
        )
    return True


def _value(given: dict[str, Any], identity: ObjectIdentity) -> object:
    value, source = given.get("value"), given.get("valueFrom")
    if source is None:
        return "" if value is None else value
    if value is not None:
        raise Rejected("both value and valueFrom are given; keep one")
    known = {"metadata.name": identity.name, "metadata.namespace": identity.namespace, **identity.fields}
    source = take_mapping(source, "valueFrom")
    if list(source) != ["fieldRef"]:
        raise Rejected(f"valueFrom {shorten(', '.join(map(repr, source)))} is not known on this machine; write a value")
    field = take_mapping(source["fieldRef"], "valueFrom.fieldRef")
    FIELD_REF.check(field, "valueFrom.fieldRef")
    path = field.get("fieldPath")
    if not isinstance(path, str) or path not in known:
        good = [path for path in known if not path.startswith("metadata.annotations")]  # the same once more
        raise Rejected(f"valueFrom.fieldRef can be {' or '.join(good)}, but is {describe(path)}; write a value")
    return known[path]


Span = tuple[int, int]


def _resources(value: object, where: str) -> tuple[Span | None, Span | None, Span | None]:
    """CPUs, memory and GPUs: what is requested and the limit; one that is not given is as the other."""
    given = take_optional(value, where)
    RESOURCES.check(given, where)
    for side in RESOURCES.used:
        AMOUNTS.check(take_optional(given.get(side), f"{where}.{side}"), f"{where}.{side}")
    cpus = _amount(given, "cpu", parse_kubernetes_cpus, where)
    memory = _amount(given, "memory", parse_kubernetes_memory, where)
    gpus = _amount(given, GPU, parse_kubernetes_gpus, where)
    if gpus is not None and gpus[0] == 0 < gpus[1]:
        raise Rejected(f"{where}: {GPU} from 0 to {gpus[1]}: a range must start at 1 or more; write 1 under requests")
    return cpus, memory, gpus


def _cpu_limit(resources: Any, cpus: Span | None) -> int:
    """As on Kubernetes: a limit holds also where more CPUs are free, a request does not."""
    is_given = cpus is not None and ((resources or {}).get("limits") or {}).get("cpu") is not None
    return cpus[1] if is_given and cpus is not None else 0


def _amount(given: dict[str, Any], name: str, parse: Callable[[object], int], where: str) -> Span | None:
    amounts = {
        side: quantity(parse, given[side][name], f"{where}.{side}: {name}")
        for side in RESOURCES.used
        if given.get(side) and given[side].get(name) is not None
    }
    if not amounts:
        return None
    low, high = amounts.get("requests"), amounts.get("limits")
    if low is not None and high is not None and high < low:
        raise Rejected(
            f"{where}: {name}: requests {given['requests'][name]} is above limits {given['limits'][name]}; "
            "the request is the least"
        )
    return (low if low is not None else amounts["limits"], high if high is not None else amounts["requests"])
