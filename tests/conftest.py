"""How long do random tests look? `HYPOTHESIS_PROFILE=soak` looks long and somewhere else each time.

The default is for every day: the same examples each time, so that what is red is red because of the change.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from box.machine import Machine
from box.ports import reserved_port
from server import Server
from swell.server.listeners import BOX_PORTS

# What a shell's `&` or nohup ignores would be ignored by everything we start: no Ctrl-C could be tested.
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

# What no user's shell has: it hides what a buffer holds back, and everything that a test starts is compiled again.
for variable in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
    os.environ.pop(variable, None)

# Modules and collected tests are hundreds of megabytes that stay; to look for garbage there took a tenth of the CPU.
gc.set_threshold(50_000, 20, 100)

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]  # whole simulations are slow to draw; that is fine
settings.register_profile("test", max_examples=40, deadline=None, derandomize=True, suppress_health_check=SLOW)
settings.register_profile("soak", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=SLOW)
# Whole simulations take minutes to shrink; this one shows the first example it finds.
HUNT = [Phase.explicit, Phase.generate]
settings.register_profile("hunt", max_examples=300, deadline=None, phases=HUNT, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))


@pytest.fixture
def box_port() -> Iterator[int]:
    """For a box server that is no `Machine`."""
    with reserved_port(BOX_PORTS) as port:
        yield port


#: take minutes each, most first; a file's tests run one after the other (docs/testing.md, Times)
LONGEST = (
    "test_examples_on_kubernetes.py",
    "test_kubernetes_story.py",
    "test_rounds.py",
    "test_kubectl.py",
    "test_kubectl_mischief.py",
    "test_installed.py",
    "test_workers_elsewhere.py",
    "test_containers.py",
    "test_hostile.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first: at the end no process waits for another's last file."""
    items.sort(key=begins_after)
    refuse_servers_in_the_fast_tier(items)


def pytest_collection_finish() -> None:
    gc.freeze()


def begins_after(item: pytest.Item) -> int:
    if item.path.name in LONGEST:
        return LONGEST.index(item.path.name)
    return len(LONGEST) + (item.get_closest_marker("slow") is None)


def refuse_servers_in_the_fast_tier(items: list[pytest.Item]) -> None:
    """`make check` starts no server: six tests of a box had no mark, and each started one there."""
    fast = [item for item in items if item.get_closest_marker("slow") is None]
    wrong = [item.nodeid for item in fast if any(map(starts_a_server, functions(item)))]
    if wrong:
        raise pytest.UsageError(f"these start a real server and need @pytest.mark.slow: {', '.join(wrong)}")


def functions(item: pytest.Item) -> Iterator[FunctionType]:
    """The test and every fixture it uses."""
    found: list[Any] = [getattr(item, "function", None)]
    fixtures = getattr(item, "_fixtureinfo", None)
    for definitions in fixtures.name2fixturedefs.values() if fixtures else ():
        found += [definition.func for definition in definitions]
    yield from (one for one in found if isinstance(one, FunctionType))


def starts_a_server(function: FunctionType) -> bool:
    for name in names(function.__code__):
        kind = function.__globals__.get(name)
        if isinstance(kind, type) and issubclass(kind, (Machine, Server)):
            return True
    return False


def names(code: CodeType) -> Iterator[str]:
    """That it uses; annotations are no use."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from names(inner)
