"""How are GPUs kept from a task with control groups of version 2?

Version 1 has a file that names what is denied. With version 2 a small program in the kernel is asked whenever a process
of the group opens a device; this writes that program, loads it and hangs it onto the group, where it lives as long as
the group does. It denies the given character devices and says yes to everything else; a group's parents are asked, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
from collections.abc import Iterable
from pathlib import Path

SYSCALLS = {"x86_64": 321, "aarch64": 280}  # bpf()
PROGRAM_LOAD, PROGRAM_ATTACH = 5, 8
TYPE_CGROUP_DEVICE, ATTACH_CGROUP_DEVICE, ALLOW_MULTI = 15, 6, 2
ATTRIBUTES_BYTES = 144
CHARACTER_DEVICE = 2
DEVICES_MAX = 128  # more than any machine has; each takes three instructions

Number = tuple[int, int]  #: major, minor

_LIBC = ctypes.CDLL(None, use_errno=True)
# Of the context that the program is asked with: what is done to what kind of device, its major, its minor.
_ACCESS, _MAJOR, _MINOR = 0, 4, 8


def problem() -> str:
    """Why it cannot be done here; empty: it can."""
    if platform.machine() not in SYSCALLS:
        return f"access to GPUs cannot be restricted on {platform.machine()} with control groups of version 2"
    try:
        os.close(_load(render(())))
    except OSError as error:
        return f"the kernel refuses the program that restricts access to GPUs: {error.strerror}"
    return ""


def deny(group: Path, devices: Iterable[Number]) -> None:
    """From now on no process of the group opens these."""
    with contextlib.ExitStack() as stack:
        program = _load(render(tuple(devices)))
        stack.callback(os.close, program)
        folder = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, folder)
        _bpf(PROGRAM_ATTACH, struct.pack("<IIII", folder, program, ATTACH_CGROUP_DEVICE, ALLOW_MULTI))


def render(devices: tuple[Number, ...]) -> bytes:
    """The program. R0: the answer, 1 for yes; R1: the context; R2 to R4: kind, major and minor of what is opened."""
    if len(devices) > DEVICES_MAX:
        raise ValueError(f"{len(devices)} devices are more than the {DEVICES_MAX} that can be denied")
    begin = [
        _instruction(0x61, 2, 1, _ACCESS),  # R2 = what is done, and to what kind
        _instruction(0x57, 2, 0, 0, 0xFFFF),  # R2 &= the kind
        _instruction(0x61, 3, 1, _MAJOR),
        _instruction(0x61, 4, 1, _MINOR),
        _instruction(0xB7, 0, 0, 0, 1),  # R0 = yes
    ]
    end = [
        _instruction(0x95, 0, 0),
        _instruction(0xB7, 0, 0, 0, 0),
        _instruction(0x95, 0, 0),
    ]  # return; R0 = no; return
    checks: list[bytes] = []
    for major, minor in reversed(devices):
        to_no = len(checks) + 1  # over the checks after this one, and the `return` of a yes
        checks = [
            _instruction(0x55, 3, 0, 2, major),  # another major: on to the next
            _instruction(0x55, 4, 0, 1, minor),
            _instruction(0x05, 0, 0, to_no),
            *checks,
        ]
    if not devices:
        end = end[:1]  # the kernel refuses a program with instructions that nothing leads to
    kind = [_instruction(0x55, 2, 0, len(checks), CHARACTER_DEVICE)]  # no character device: yes
    return b"".join([*begin, *kind, *checks, *end])


def _instruction(code: int, to: int, source: int, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("<BBhi", code, source << 4 | to, offset, value)


def _load(program: bytes) -> int:
    code, license_ = ctypes.create_string_buffer(program, len(program)), ctypes.create_string_buffer(b"GPL")
    attributes = struct.pack(
        "<IIQQ", TYPE_CGROUP_DEVICE, len(program) // 8, ctypes.addressof(code), ctypes.addressof(license_)
    )
    return _bpf(PROGRAM_LOAD, attributes)


def _bpf(command: int, attributes: bytes) -> int:
    given = ctypes.create_string_buffer(attributes, ATTRIBUTES_BYTES)
    answer = int(_LIBC.syscall(SYSCALLS[platform.machine()], command, given, ATTRIBUTES_BYTES))
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer
