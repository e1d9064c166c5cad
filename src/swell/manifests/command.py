"""What is run, in which folder, with which variables?"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from swell.errors import Rejected
from swell.manifests.context import Context
from swell.manifests.fields import (
    OBJECT_NAME,
    describe,
    refuse_unknown,
    shorten,
    system_bytes,
    take_list,
    take_mapping,
    take_text,
)
from swell.model.job import Secret
from swell.model.launch import is_clients_own

SECRET = ("name", "secret", "key")
SECRETS_MAX = 200  # a job has two or three
KEY = re.compile(r"[-._A-Za-z0-9]{1,253}")
COMMAND_BYTES_MAX = 128 * 1024  # the kernel's limit for one argument (MAX_ARG_STRLEN)


def read_command(value: object) -> tuple[str, ...]:
    """An argv. Never a shell string of ours: quoting it would be guessing."""
    if isinstance(value, str):
        raise Rejected(
            f"command must be a list of words, but is text: write [sh, -c, {shorten(value)!r}] to use a shell"
        )
    if not isinstance(value, list) or not value:
        raise Rejected(f"command must be a list of words, as in [python, train.py], but is {describe(value)}")
    words = read_words(value, "command")
    if not words[0]:
        raise Rejected("command: the first word, the program, is empty")
    return words


def read_words(words: list[Any], field: str) -> tuple[str, ...]:
    for word in words:
        if isinstance(word, bool) or not isinstance(word, str | int | float):
            raise Rejected(f"{field}: every word must be text, but one is {describe(word)}; quote it")
        if len(system_bytes(str(word), f"{field}: a word")) > COMMAND_BYTES_MAX:
            raise Rejected(f"{field}: a word is longer than {COMMAND_BYTES_MAX} bytes; put it into a file")
    return tuple(str(word) for word in words)


def read_folder(value: object, base: str, field: str, *, otherwise: str) -> str:
    """Absolute; a relative one is found from `base`. `otherwise`: what leaving it out would mean."""
    if not isinstance(value, str) or not value:
        raise Rejected(f"{field} must be a folder's path, but is {describe(value)}; leave it out for {otherwise}")
    system_bytes(value, field)
    return str(PurePosixPath(base) / value)


def read_env(value: object) -> tuple[tuple[str, str], ...]:
    mapping = take_mapping({} if value is None else value, "env")
    for key, text in mapping.items():
        _check_name(key, "env")
        if not isinstance(text, str | int | float):
            raise Rejected(f"env: the value of {shorten(key)} must be text, but is {describe(text)}; quote it")
        system_bytes(str(text), f"env: the value of {shorten(key)}")
    return tuple(sorted((key, _env_text(text)) for key, text in mapping.items()))


def _check_name(name: str, where: str) -> None:
    if not name or "=" in name or any(letter < " " or letter == "\x7f" for letter in name):
        raise Rejected(f"{where}: {shorten(name)!r} cannot be a variable's name; write NAME: value")
    system_bytes(name, f"{where}: a name")


def _env_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- secrets -------------------------------------------------------------------------------------------------


def read_secrets(value: object, context: Context, *, has_image: bool) -> tuple[Secret, ...]:
    """Variables that the job cannot do without: their values are in the caller's environment, or in a cluster."""
    entries = take_list(value, "secrets")
    if len(entries) > SECRETS_MAX:
        raise Rejected(f"secrets has {len(entries)} entries; at most {SECRETS_MAX}")
    found = tuple(_secret(entry, f"secrets[{number}]") for number, entry in enumerate(entries))
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Rejected(f"secrets: {shorten(twice)} is named twice; keep one")
    for number, one in enumerate(found):
        _check_secret(one, f"secrets[{number}]", context, has_image=has_image)
    return found


def _check_secret(one: Secret, where: str, context: Context, *, has_image: bool) -> None:
    name = shorten(one.name)
    if has_image and is_clients_own(one.name):
        raise Rejected(
            f"{where}: {name} is told to an image's runtime in its command line, which everybody can read; rename it"
        )
    if context.on_cluster and not one.secret:
        raise Rejected(
            f"{where}: {name} is of your environment, which a pod does not have; name a Secret of the cluster beside "
            f"it, as in {{name: {name}, secret: my-secrets, key: {name}}}"
        )
    if not context.on_cluster and one.name not in context.variables:
        raise Rejected(
            f"secrets: {name} is not in your environment; set it in your shell, or give it with --env {name}=…"
        )


def _secret(entry: object, where: str) -> Secret:
    if isinstance(entry, str):
        entry = {"name": entry}
    if not isinstance(entry, dict):
        raise Rejected(
            f"{where} must be a variable's name, as in HF_TOKEN, or {{name: HF_TOKEN, secret: hub, key: token}}, "
            f"but is {describe(entry)}"
        )
    refuse_unknown(take_mapping(entry, where), SECRET, where)
    name = take_text(entry.get("name"), f"{where}.name")
    _check_name(name, where)
    secret, key = entry.get("secret"), entry.get("key")
    if secret is None and key is not None:
        raise Rejected(f"{where}.key is of a Secret; write secret, its name, beside it")
    if secret is None:
        return Secret(name)
    if OBJECT_NAME.fullmatch(take_text(secret, f"{where}.secret")) is None:
        raise Rejected(f"{where}.secret: {shorten(secret)!r} is no name of a Secret of Kubernetes")
    key = name if key is None else take_text(key, f"{where}.key")
    if KEY.fullmatch(key) is None:
        raise Rejected(f"{where}.key: {shorten(key)!r} is no key of a Secret: letters, digits, '-', '_' and '.'")
    return Secret(name, secret, key)
