"""What does an `AIchorManifest` ask for?

It is written out as the JobSet or PyTorchJob that its operator would make, which is then read, and on Kubernetes
created. Types are ordered by their names there, so JOB_GLOBAL_INDEX is too; `swell_sdk.shard` goes by the manifest.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any

from swell.errors import Rejected
from swell.manifests import image_build
from swell.manifests.aichor_objects import JAX_WORKER, PROTECTED, AIchorJob, Type, render_object
from swell.manifests.command import read_command, read_env
from swell.manifests.containers import read_image
from swell.manifests.context import Context
from swell.manifests.document import Translation
from swell.manifests.fields import (
    Fields,
    describe,
    inside,
    is_true,
    quantity,
    read_name,
    shorten,
    take_choice,
    take_list,
    take_mapping,
    take_optional,
    take_text,
    whole_number,
)
from swell.manifests.image_build import ImageBuild, read_build
from swell.manifests.tensorboard_pod import PORT, with_tensorboard
from swell.model.job import Container
from swell.model.kubernetes_quantity import GPU
from swell.model.quantity import COUNT_MAX, BadQuantity, parse_memory, parse_seconds
from swell.model.shared_volume import MODES, SharedVolume, claim_name, parse_shared_volume

MANIFEST = Fields(used=("apiVersion", "kind", "name", "builder", "spec"), idle=("clone",))
CLONE = Fields(used=(), idle=("depth", "includeDotGit", "submodules"))
SPEC = Fields(
    used=(
        "operator",
        "image",
        "command",
        "types",
        "tensorboard",
        "storage",
        "env",
        "timeout",
        "activeDeadlineSeconds",
        "restartPolicy",
    ),
    idle=("rayVersion",),
    refused={"debug": "opens a notebook or an editor beside the job, which Swell does not; leave it out"},
)
TYPE = Fields(used=("count", "completions", "parallelisms", "resources"))
RESOURCES = Fields(
    used=(
        "cpus",
        "ramRatio",
        "memory",
        "shmSizeGB",
        "cpuLimitRatio",
        "accelerators",
        "extraSelectors",
        "extraTolerations",
    ),
    idle=("rdma",),
    refused={"rayStartParams": "is for the operator kuberay; leave it out"},
)
ACCELERATORS = Fields(
    used=("gpu",), refused={"tpu": "asks for TPUs, which Swell does not know; ask for accelerators.gpu"}
)
GPUS = Fields(used=("count", "type", "product"))
STORAGE = Fields(used=("sharedVolume", "attachExistingPVCs"))
PVC = Fields(used=("name", "mountPoint"))
SHARED = Fields(used=("mountPoint", "sizeGB", "storageClass", "accessMode"))
RESTART = Fields(used=("backoffLimit",))
TENSORBOARD = Fields(used=("enabled",))
OPERATORS = ("jobset", "pytorch", "jax", "xgboost")
#: types of operators that do not take any, as they are called in what is made; a manifest may write them in any case
TYPES = {"pytorch": ("Master", "Worker"), "xgboost": ("Master", "Worker"), "jax": (JAX_WORKER,)}
#: operators that are known, and what running them would need
NOT_RUN = {
    "kuberay": "a Ray cluster, which Swell does not start; start Ray in your command, with operator: jobset",
    "ray": "a Ray cluster; AIchor removed this operator: write operator: jobset",
    "tf": "a TensorFlow cluster; AIchor removed this operator: write operator: jobset, TF_CONFIG is there",
    "batchjob": "nothing but a jobset of one type; AIchor removed this operator: write operator: jobset",
}
#: variables of AIchor's that nothing here may know: there is no project, no mail, no bucket, and often no commit
UNKNOWN = (
    "AICHOR_CLUSTER_NAME",
    "AICHOR_EXPERIMENT_MESSAGE",
    "AICHOR_PROJECT_ID",
    "AICHOR_USER_EMAIL",
    "S3_ENDPOINT",
    "VCS_COMMIT_MESSAGE",
    "VCS_SHA",
    "VCS_TYPE",
)
WHOLE_GPU = "gpu"  # a slice that MIG makes has a name such as mig-1g.5gb, and is another resource of its node
NOT_WHOLE = (
    "{where} is {kind!r}, which is no whole GPU, and Swell counts whole ones; leave it out for those, or write a job "
    "file with gpuMemory for a share of one"
)
NAME_CHARACTERS = 24  # of an image's name: names of pods have a type and numbers behind it
TYPE_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")
CONTAINER = "main"
BOARD = "tensorboard: look at it with kubectl port-forward, for pods of {}, at port {}"
BOARD_FOLDER = "/aichor"  # in pods
SHARED_PLACE = "spec.storage.sharedVolume.mountPoint"
SHARED_MEMORY = "/dev/shm"  # noqa: S108 (a mount point)
NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,3})?")
WRITTEN_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")


def translate(document: dict[str, Any], context: Context) -> Translation:
    if context.in_images and context.on_cluster:
        raise Rejected(
            "builder: an image that is built on this machine is not where a cluster looks for it; build it and push it "
            "to a registry that the cluster pulls from, and submit it without --build"
        )
    MANIFEST.check(document, "the manifest")
    spec = take_mapping(document.get("spec"), "spec")
    SPEC.check({**spec, "debug": _debug(spec.get("debug"))}, "spec")
    operator = _operator(spec.get("operator"))
    experiment = context.new_id()
    name = _name(document.get("name"), spec, context, experiment)
    asked = take_optional(spec.get("tensorboard"), "spec.tensorboard")
    TENSORBOARD.check(asked, "spec.tensorboard")
    wants_board = is_true(asked.get("enabled"), "spec.tensorboard.enabled")
    board = _board_in_pods(spec) if wants_board and context.on_cluster else ""
    folders = _folders(context, name, experiment)
    in_pods = {"AICHOR_TENSORBOARD_PATH": board} if board else {}
    base = _pod(spec, name, _told(context, experiment, in_pods if context.on_cluster else folders))
    if context.on_cluster and (where := _rdma(spec.get("types"))):
        raise Rejected(f"{where} asks for RDMA devices, which Swell does not count on Kubernetes; leave it out")
    types = _types(spec.get("types"), base, operator)
    if board:
        types[0] = replace(types[0], pod=with_tensorboard(types[0].pod, board))
    shared = _shared_volume(spec, context)
    asked_for = AIchorJob(name, types, _deadline(spec), _retries(spec), context.on_cluster, shared)
    made = render_object(operator, asked_for)
    build = _build(document, spec)
    return Translation(
        made,
        (*_notes(document, spec, context), *((BOARD.format(types[0].name, PORT),) if board else ())),
        folders["AICHOR_TENSORBOARD_PATH"] if wants_board and not board else None,
        _container(spec, types) if context.in_images else None,
        build,
    )


def _build(document: dict[str, Any], spec: dict[str, Any]) -> ImageBuild | None:
    build = read_build(document.get("builder"))
    if build is not None and spec.get("image") != build.image:
        raise Rejected(f"spec.image is {describe(spec.get('image'))}, but builder.image is another; make them the same")
    return build


def _container(spec: dict[str, Any], types: list[Type]) -> Container:
    """What was built on this machine. Types have one size of /dev/shm here, the largest that one of them asks for."""
    return Container(read_image(spec.get("image")), shm_mib=max(one.shm_mib for one in types))


def _debug(value: object) -> object:
    """Switched off it is nothing."""
    given = value if isinstance(value, dict) else {}
    enabled = [one for one in given.values() if one is True or (isinstance(one, dict) and one.get("enabled") is True)]
    return value if enabled or not isinstance(value, dict | None) else None


def _operator(value: object) -> str:
    if isinstance(value, str) and value in NOT_RUN:
        raise Rejected(f"spec.operator is {value}, which needs {NOT_RUN[value]}")
    return take_choice(value, OPERATORS, "spec.operator")


def _name(value: object, spec: dict[str, Any], context: Context, experiment: str) -> str:
    """Without one, that of its image; in a cluster, where no two have one name, with a part of its id."""
    if value is not None or context.name:
        return read_name(context.name if value is None else value)
    image = spec.get("image")
    path = image.partition("@")[0].rpartition("/")[2].partition(":")[0] if isinstance(image, str) else ""
    found = re.sub(r"[^a-z0-9]+", "-", path.lower())[:NAME_CHARACTERS].strip("-")
    found = found if found[:1].isalpha() else "experiment"
    return f"{found}-{experiment[:8]}" if context.on_cluster else found


def _folders(context: Context, name: str, experiment: str) -> dict[str, str]:
    """What a submission writes is in folders of its own."""
    base = f"{context.workdir.rstrip('/')}/aichor/{name}"
    own = {part: f"{base}/{part}/{experiment}" for part in ("output", "tensorboard", "logs")}
    return {f"AICHOR_{part.upper()}_PATH": folder for part, folder in {"input": f"{base}/input", **own}.items()}


def _told(context: Context, experiment: str, folders: dict[str, str]) -> dict[str, str]:
    """What AIchor tells every task. What is not known is empty, or what the caller's environment says."""
    known = {"AICHOR_EXPERIMENT_ID": experiment, "AICHOR_USER_NAME": context.user}
    commit = _of_commit(context)
    rest = {name: commit.get(name, "") for name in UNKNOWN if context.on_cluster or name not in context.variables}
    return {**known, **rest, **folders}


def _of_commit(context: Context) -> dict[str, str]:
    if context.commit is None:
        return {}
    return {"VCS_TYPE": "git", "VCS_SHA": context.commit.sha, "VCS_COMMIT_MESSAGE": context.commit.message}


# -- pods ----------------------------------------------------------------------------------------------------


def _board_in_pods(spec: dict[str, Any]) -> str:
    """The folder that a TensorBoard beside the job reads: on the volume that all pods share, if there is one."""
    storage = take_optional(spec.get("storage"), "spec.storage")
    shared = take_optional(storage.get("sharedVolume"), "spec.storage.sharedVolume")
    where = _mount_point(shared["mountPoint"], SHARED_PLACE) if shared.get("mountPoint") else BOARD_FOLDER
    return f"{where.rstrip('/')}/tensorboard"


def _pod(spec: dict[str, Any], name: str, told: dict[str, str]) -> dict[str, Any]:
    """What the pods of all types have in common. `told`: its variables, which the manifest may give other values."""
    with inside("spec."):
        command = _command(spec.get("command"))
    with inside("spec."):
        own = dict(read_env(spec.get("env")))
    taken = next((name for name in own if name in PROTECTED), None)
    if taken is not None:
        raise Rejected(f"spec.env: {taken} is told by the operator, and another value would mislead; rename it")
    env = {**told, **own}
    volumes, mounts = _storage(spec.get("storage"), name)
    container = {
        "name": CONTAINER,
        "image": take_text(spec.get("image"), "spec.image"),
        "command": command,
        "env": [{"name": key, "value": value.replace("$", "$$")} for key, value in env.items()],
        "volumeMounts": mounts,
    }
    return {"restartPolicy": "Never", "containers": [container], "volumes": volumes}


def _command(value: object) -> list[str]:
    """AIchor's is a line for a shell."""
    return ["sh", "-c", value] if isinstance(value, str) and value.strip() else list(read_command(value))


def _storage(value: object, name: str) -> tuple[list[Any], list[Any]]:
    """Claims that are there, and the one that is made for this job; processes of a machine share its folders."""
    storage = take_optional(value, "spec.storage")
    STORAGE.check(storage, "spec.storage")
    where = "spec.storage.attachExistingPVCs"
    volumes, mounts = [], []
    shared = take_optional(storage.get("sharedVolume"), "spec.storage.sharedVolume")
    if shared:
        volumes.append({"name": "shared", "persistentVolumeClaim": {"claimName": claim_name(name)}})
        path = _mount_point(shared.get("mountPoint"), SHARED_PLACE)
        mounts.append({"name": "shared", "mountPath": path})
    for number, entry in enumerate(take_list(storage.get("attachExistingPVCs"), where)):
        given = take_mapping(entry, f"{where}[{number}]")
        PVC.check(given, f"{where}[{number}]")
        claim = take_text(given.get("name"), f"{where}[{number}].name")
        volumes.append({"name": f"pvc-{number}", "persistentVolumeClaim": {"claimName": claim}})
        path = _mount_point(given.get("mountPoint"), f"{where}[{number}].mountPoint")
        mounts.append({"name": f"pvc-{number}", "mountPath": path})
    return volumes, mounts


def _mount_point(value: object, where: str) -> str:
    path = take_text(value, where)
    if not path.startswith("/") or ":" in path:
        raise Rejected(f"{where} must be a path from / on, without a ':', but is {describe(value)}")
    return path


def _shared_volume(spec: dict[str, Any], context: Context) -> SharedVolume | None:
    """None: it asks for none."""
    where = "spec.storage.sharedVolume"
    given = take_optional(take_optional(spec.get("storage"), "spec.storage").get("sharedVolume"), where)
    if not given:
        return None
    SHARED.check(given, where)
    if context.in_images:
        raise Rejected(
            f"{where} with --build would be a folder that containers of this machine share, which Swell does not make; "
            "leave --build out, or write a job file with image and mounts"
        )
    size = int(_number(given.get("sizeGB"), f"{where}.sizeGB") * 1000)
    mode = take_choice(given.get("accessMode", MODES[0]), MODES, f"{where}.accessMode")
    name = given.get("storageClass")
    words = (f"{size}M", mode, *(() if name is None else (take_text(name, f"{where}.storageClass"),)))
    return quantity(parse_shared_volume, " ".join(words), where)


# -- types ---------------------------------------------------------------------------------------------------


def _types(value: object, base: dict[str, Any], operator: str) -> list[Type]:
    """In the order they are written."""
    given = take_mapping(value, "spec.types")
    if not given:
        raise Rejected("spec.types is empty; give at least one, as in worker: {count: 2, resources: {cpus: 1}}")
    written = _by_name(given, operator)
    types = [_type(name, given[written[name]], base, f"spec.types.{shorten(written[name])}") for name in written]
    if operator == "jobset":
        _check_jobset(types)
    else:
        _check_names(types, operator)
    return types


def _by_name(given: dict[str, Any], operator: str) -> dict[str, str]:
    """What a type is called in what is made → how the manifest writes it."""
    known = {name.lower(): name for name in TYPES.get(operator, ())}
    written: dict[str, str] = {}
    for one in given:
        name = known.get(one.lower(), one.lower() if operator == "jobset" else one)
        if name in written:
            raise Rejected(
                f"spec.types has both {shorten(written[name])} and {shorten(one)}, which are one type of operator "
                f"{operator}; keep one"
            )
        written[name] = one
    return written


def _rdma(types: object) -> str:
    """Where the first type asks for RDMA devices; empty: none does."""
    for name, one in types.items() if isinstance(types, dict) else ():
        resources = one.get("resources") if isinstance(one, dict) else None
        if isinstance(resources, dict) and resources.get("rdma"):
            return f"spec.types.{shorten(name)}.resources.rdma"
    return ""


def _type(name: str, value: object, base: dict[str, Any], where: str) -> Type:
    given = take_mapping(value, where)
    TYPE.check(given, where)
    count, completions, parallelisms = (
        1 if given.get(field) is None else whole_number(given[field], f"{where}.{field}", low=1, high=COUNT_MAX)
        for field in ("count", "completions", "parallelisms")
    )
    resources, rules, cpus = _resources(given.get("resources"), f"{where}.resources")
    container = {**base["containers"][0], "resources": resources}
    pod = {**base, "containers": [container], **rules["pod"]}
    if rules["shm"]:
        container["volumeMounts"] = [*container["volumeMounts"], {"name": "shm", "mountPath": SHARED_MEMORY}]
        memory = {"medium": "Memory", "sizeLimit": rules["shm"]}
        pod["volumes"] = [*pod["volumes"], {"name": "shm", "emptyDir": memory}]
    shm_mib = parse_memory(rules["shm"]) if rules["shm"] else 0
    return Type(name, count, completions, min(parallelisms, completions), cpus, pod, shm_mib)


def _resources(value: object, where: str) -> tuple[dict[str, Any], dict[str, Any], int]:
    """What a container asks for, what its pod needs beside, and its thousandths of CPUs."""
    given = take_mapping(value, where)
    RESOURCES.check(given, where)
    cpus = _number(given.get("cpus"), f"{where}.cpus")
    ratio = _number(given.get("cpuLimitRatio", "2"), f"{where}.cpuLimitRatio")
    if given.get("ramRatio") is not None and given.get("memory") is not None:
        raise Rejected(f"{where} has both memory and ramRatio; keep one")
    asked = "memory" if given.get("memory") is not None else "ramRatio"
    memory = None if given.get(asked) is None else _number(given[asked], f"{where}.{asked}")
    requests = {"cpu": f"{int(cpus * 1000)}m"}
    limits = {"cpu": f"{int(cpus * max(ratio, Decimal(1)) * 1000)}m"}
    if memory is not None:
        requests["memory"] = f"{int((memory if asked == 'memory' else memory * cpus) * 1000)}M"
        limits["memory"] = requests["memory"]
    gpus, product = _gpus(given.get("accelerators"), f"{where}.accelerators")
    if gpus:
        requests[GPU] = limits[GPU] = str(gpus)
    selectors = take_optional(given.get("extraSelectors"), f"{where}.extraSelectors")
    pod: dict[str, Any] = {"tolerations": take_list(given.get("extraTolerations"), f"{where}.extraTolerations")}
    pod["nodeSelector"] = {**selectors, **({"nvidia.com/gpu.product": product} if product else {})}
    shm = _number(given.get("shmSizeGB", 0), f"{where}.shmSizeGB", may_be_none=True)
    size = f"{int(shm * 1000)}M" if shm else ""
    return {"requests": requests, "limits": limits}, {"pod": pod, "shm": size}, int(cpus * 1000)


def _number(value: object, where: str, *, may_be_none: bool = False) -> Decimal:
    """`may_be_none`: 0 and nothing say that none is asked for."""
    if value is None and may_be_none:
        return Decimal(0)
    text = str(value).strip()
    is_good = not isinstance(value, bool) and NUMBER.fullmatch(text) is not None
    if not is_good or (not Decimal(text) and not may_be_none):
        least = "of 0 (none) or more" if may_be_none else "above 0"
        shown = shorten(text) if WRITTEN_NUMBER.fullmatch(text) else describe(value)  # as text, too: fractions come so
        raise Rejected(f"{where} must be a number {least}, as in 4 or 0.5, but is {shown}")
    return Decimal(text)


def _gpus(value: object, where: str) -> tuple[int, str]:
    given = take_optional(value, where)
    ACCELERATORS.check(given, where)
    gpu = take_optional(given.get("gpu"), f"{where}.gpu")
    GPUS.check(gpu, f"{where}.gpu")
    count, product, kind = gpu.get("count"), gpu.get("product"), gpu.get("type")
    if kind is not None and take_text(kind, f"{where}.gpu.type") != WHOLE_GPU:
        raise Rejected(NOT_WHOLE.format(where=f"{where}.gpu.type", kind=shorten(kind)))
    return (
        0 if count is None else whole_number(count, f"{where}.gpu.count", low=0, high=COUNT_MAX),
        "" if product is None else take_text(product, f"{where}.gpu.product"),
    )


def _check_jobset(types: list[Type]) -> None:
    for one in types:
        if TYPE_NAME.fullmatch(one.name) is None:
            raise Rejected(
                f"spec.types: {shorten(one.name)!r} cannot be a type's name: a small letter, then small letters, "
                "digits and '-', 41 at most; rename it"
            )
    few = next((one for one in types if one.parallelisms < one.completions), None)
    if few is not None and len(types) > 1:
        raise Rejected(
            f"spec.types.{few.name} runs {few.parallelisms} of {few.completions} completions at once beside other "
            f"types, which start together; write parallelisms: {few.completions}, or a manifest for each type"
        )


def _check_names(types: list[Type], operator: str) -> None:
    for one in types:
        if one.name not in TYPES[operator]:
            good = ", ".join(name.capitalize() for name in TYPES[operator])
            raise Rejected(f"spec.types: {shorten(one.name)!r} is no type of operator {operator}: {good}")
        if one.completions > 1:
            raise Rejected(f"spec.types.{one.name}.completions is for operator jobset; write count")


# -- life ----------------------------------------------------------------------------------------------------


def _deadline(spec: dict[str, Any]) -> int | None:
    """`timeout` counts where both are given."""
    if spec.get("timeout") is not None:
        return max(1, int(quantity(_timeout, spec["timeout"], "spec.timeout")))
    given = spec.get("activeDeadlineSeconds")
    return None if given is None else whole_number(given, "spec.activeDeadlineSeconds", low=1, high=366 * 86400)


def _timeout(value: object) -> float:
    text = str(value).strip()
    if not re.fullmatch(r"[0-9]{1,9}[smhd]", text):
        raise BadQuantity(f"{shorten(text)!r} is not a time; write 6h, 90m or 1d")
    return parse_seconds(text)


def _retries(spec: dict[str, Any]) -> int:
    policy = take_optional(spec.get("restartPolicy"), "spec.restartPolicy")
    RESTART.check(policy, "spec.restartPolicy")
    limit = policy.get("backoffLimit")
    return 0 if limit is None else whole_number(limit, "spec.restartPolicy.backoffLimit", low=0, high=1000)


def _notes(document: dict[str, Any], spec: dict[str, Any], context: Context) -> list[str]:
    CLONE.check(take_optional(document.get("clone"), "clone"), "clone")
    notes = []
    if document.get("builder") and not context.in_images:
        here = "the command runs as a process here, or in its image with swell submit --build"
        where = "the cluster must be able to pull it" if context.on_cluster else here
        notes.append(f"builder has no effect: Swell does not build images; {where}")
    notes += _notes_of_builder(document) if context.in_images else []
    if spec.get("rayVersion") is not None:
        notes.append("spec.rayVersion has no effect: it is for the operator kuberay")
    if document.get("clone"):
        notes.append("clone has no effect: Swell runs what is in the folder that it is submitted from")
    shared = take_optional(spec.get("storage"), "spec.storage").get("sharedVolume")
    if not context.on_cluster and (where := _rdma(spec["types"])):
        notes.append(f"{where} has no effect: processes have the RDMA devices of this machine")
    if shared and not context.on_cluster:
        notes.append(
            "spec.storage.sharedVolume has no effect: processes of this machine share its folders, and "
            f"{shorten(str(shared['mountPoint']))} is one of them or is not there"
        )
    return notes


def _notes_of_builder(document: dict[str, Any]) -> list[str]:
    """On what `read_build` has found good, and does not use."""
    builder = document.get("builder") or {}
    skip = builder.get("skipBuild") or {}
    registry = "builder.registry has no effect: the image stays on this machine, and is pushed nowhere"
    found = "builder.skipBuild.{} has no effect: enabled takes the image of this name, whoever built it"
    skipped = [found.format(name) for name in image_build.SKIP.idle if skip.get(name) is not None]
    return [*([registry] if builder.get("registry") is not None else []), *skipped]
