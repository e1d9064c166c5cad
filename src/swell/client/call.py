"""How does a function call travel into a job, and its result back?

A call is a folder: `call` is written by the caller, `result` by the job, whole or not at all. As with the standard
library's process pools, functions travel by name: the job imports the module that the function is in, also where that
is the caller's script, whose `if __name__ == "__main__":` part is not run again. Both files are read by the user who
wrote them, and nobody else may write into the folder: that is why they may be unpickled.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import runpy
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from swell.errors import Rejected

CALL = "call"
RESULT = "result"
MAIN = "__swell_main__"  # what the caller's script is called in the job


class Call(NamedTuple):
    """What the job needs before it can read the function."""

    search_path: tuple[str, ...]  #: where the caller's modules are
    main: str | None  #: the caller's script, if it is named in the call
    main_module: str | None  #: instead of it, where the caller was started with `python -m`
    function: bytes  #: with its arguments


class Outcome(NamedTuple):
    """What came of it."""

    value: Any
    error: BaseException | None  #: None: it returned the value


def write_call(folder: Path, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        packed = pickle.dumps((function, args, kwargs))
    except (pickle.PicklingError, AttributeError, TypeError) as problem:
        raise Rejected(
            f"{_name(function)} cannot be sent to a job: {problem}; use a function that is defined at the top of a "
            "module, and arguments that pickle can write"
        ) from problem
    search_path = tuple(str(Path(entry).absolute()) for entry in sys.path)
    main, main_module = _find_main(function) if b"__main__" in packed else (None, None)
    (folder / CALL).write_bytes(pickle.dumps((search_path, main, main_module, packed)))


def _find_main(function: Callable[..., Any]) -> tuple[str | None, str | None]:
    main = sys.modules["__main__"]
    if main.__spec__ is not None:
        return None, main.__spec__.name
    path = getattr(main, "__file__", None)
    if path is None or not Path(path).is_file():
        raise Rejected(
            f"{_name(function)}, or one of its arguments, is defined in a console, where a job cannot find it; put it "
            "into a module and import it"
        )
    return str(Path(path).absolute()), None


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or repr(function)


def read_result(folder: Path) -> Outcome | None:
    """None: the job has left none."""
    try:
        packed = (folder / RESULT).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return Outcome(*pickle.loads(packed))  # noqa: S301
    except Exception as problem:  # noqa: BLE001  an object's own code runs here, and may raise anything
        return Outcome(
            None, RuntimeError(f"the result of the call cannot be read: {type(problem).__name__}: {problem}")
        )


def run(folder: Path) -> int:
    """In the job: the call that is in a folder. Its exit code says whether the function returned."""
    call = Call(*pickle.loads((folder / CALL).read_bytes()))  # noqa: S301
    outcome = _outcome(call)
    _write_result(folder, outcome)
    return 0 if outcome.error is None else 1


def _outcome(call: Call) -> Outcome:
    try:
        sys.path[:] = [*call.search_path]
        _import_main(call)
        function, args, kwargs = pickle.loads(call.function)  # noqa: S301
        return Outcome(function(*args, **kwargs), None)
    except BaseException as error:  # noqa: BLE001  also SystemExit: the caller is told, as a pool tells it
        text = traceback.format_exc()
        sys.stderr.write(text)
        error.add_note(f"in the job:\n{text}")
        return Outcome(None, error)


def _import_main(call: Call) -> None:
    """Under a name of its own, so that it does not begin again, and where its functions are looked for."""
    if call.main is None and call.main_module is None:
        return
    module = ModuleType(MAIN)
    sys.modules["__main__"] = sys.modules[MAIN] = module
    if call.main_module is not None:
        module.__dict__.update(runpy.run_module(call.main_module, run_name=MAIN))
    elif call.main is not None:
        module.__dict__.update(runpy.run_path(call.main, run_name=MAIN))


def _write_result(folder: Path, outcome: Outcome) -> None:
    try:
        packed = pickle.dumps(tuple(outcome))
        pickle.loads(packed)  # noqa: S301  some can be written and not read, as exceptions with arguments of their own
    except Exception as problem:  # noqa: BLE001  as above
        what = "exception" if outcome.error is not None else "result"
        said = f"the {what} {_shown(outcome)} cannot be sent back: {type(problem).__name__}: {problem}"
        packed = pickle.dumps((None, RuntimeError(said)))
    beside = folder / f"{RESULT}.{os.getpid()}"
    beside.write_bytes(packed)
    beside.rename(folder / RESULT)


def _shown(outcome: Outcome) -> str:
    with contextlib.suppress(Exception):
        return repr(outcome.value if outcome.error is None else outcome.error)[:200]
    return "of a type that cannot be shown"


if __name__ == "__main__":
    # This module under its own name: what it writes must not be looked for in the caller's script.
    from swell.client import call as own

    sys.exit(own.run(Path(sys.argv[1])))
