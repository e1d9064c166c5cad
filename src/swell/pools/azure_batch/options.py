"""What is a pool on Azure Batch told?"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swell.errors import Rejected
from swell.machine.worker_options import Flag, FlagKind
from swell.pools.image import (
    IMAGE_FLAG,
    MOUNT_FLAG,
    SHARED_MEMORY_FLAG,
    SharedFolder,
    check_shared_memory,
    read_image,
    read_mounts,
)

ACCOUNT = re.compile(r"[a-z0-9]{3,24}")
JOB = re.compile(r"[A-Za-z0-9_-]{1,64}")
SERVICE = re.compile(r"https://[A-Za-z0-9.-]{1,253}/?")
CONTAINER = re.compile(r"https://[A-Za-z0-9.-]{1,253}/[a-z0-9$-]{3,63}/?(?:\?[!-~]{1,2000})?")
USER = re.compile(r"[A-Za-z0-9_.-]{1,64}(?::[A-Za-z0-9_.-]{1,64})?")

FLAGS = (
    IMAGE_FLAG,
    Flag("account-name", "account_name", FlagKind.TEXT, "NAME", "Batch account."),
    Flag(
        "account-key",
        "account_key",
        FlagKind.TEXT,
        "KEY",
        "Key of the account; others can read it in `ps`.",
        is_secret=True,
    ),
    Flag("account-key-file", "account_key_file", FlagKind.PATH, "FILE", "File with the key of the account."),
    Flag(
        "service-url",
        "service_url",
        FlagKind.TEXT,
        "URL",
        "Address of the account, https://NAME.REGION.batch.azure.com.",
    ),
    Flag(
        "log-container-url",
        "log_container_url",
        FlagKind.TEXT,
        "URL",
        "Blob container with a SAS that may write, and better read, too; workers' logs are uploaded there.",
        is_secret=True,
    ),
    Flag("job-id", "job_id", FlagKind.TEXT, "ID", "Batch job of a pool of machines; workers are its tasks."),
    Flag("user", "user", FlagKind.TEXT, "USER", "User in the container.  [default: root]"),
    MOUNT_FLAG,
    SHARED_MEMORY_FLAG,
)
REQUIRED = ("account_name", "service_url", "log_container_url", "job_id")


@dataclass(frozen=True, slots=True)
class AzureBatchOptions:
    image: str
    account_name: str
    account_key: str = field(repr=False)
    service_url: str
    log_container_url: str = field(repr=False)  #: with a signature
    job_id: str
    user: str = "root"
    mounts: tuple[SharedFolder, ...] = ()
    shared_memory_mib: int | None = None  #: None: half of the worker's memory


def read(given: Mapping[str, Any]) -> AzureBatchOptions:
    """`given`: values by field, as `read_flags` returns them."""
    check_shared_memory(given)
    said = {**given, "image": read_image(given.get("image"), os.environ), "mounts": read_mounts(given.get("mounts"))}
    missing = [flag for flag in FLAGS if flag.field in REQUIRED and flag.field not in said]
    has_key = "account_key" in said or "account_key_file" in said
    if missing or not has_key:
        told = [f"--{flag.name} {flag.metavar}: {flag.help.rstrip('.')}" for flag in missing]
        key = "--account-key KEY or --account-key-file FILE: key of the account (`az batch account keys list`)"
        raise Rejected(f"a pool on Azure Batch needs {'; '.join([*told, *([] if has_key else [key])])}")
    said["account_key"] = _read_key(said.pop("account_key", None), said.pop("account_key_file", None))
    for name, shape, example in (
        ("account_name", ACCOUNT, "swelllab"),
        ("service_url", SERVICE, "https://swelllab.westeurope.batch.azure.com"),
        ("job_id", JOB, "swell-workers"),
        ("user", USER, "root"),
    ):
        if name in said and not shape.fullmatch(said[name]):
            raise Rejected(f"--{name.replace('_', '-')} {said[name][:100]!r} cannot be right; write it like {example}")
    if not CONTAINER.fullmatch(said["log_container_url"]):  # not quoted: it has a signature
        raise Rejected(
            "--log-container-url must look like https://ACCOUNT.blob.core.windows.net/CONTAINER?SAS "
            "(`az storage container generate-sas`)"
        )
    return AzureBatchOptions(**said)


def _read_key(key: str | None, file: Path | None) -> str:
    if key is None:
        assert file is not None
        try:
            key = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Rejected(f"--account-key-file {file} cannot be read: {error}") from error
    try:
        base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Rejected(f"the key of the Batch account is no base64, so it is not a key: {error}") from error
    return key
