"""Can a function that has saved once save again at any step?

Nobody can tell for certain: it may write a copy that the script made for it at the end of an epoch, and to take that
for the state of a later step would lose the steps in between without a word. So a function counts as repeatable only
if nothing that it refers to can be such a copy: it refers to objects that know how to write themselves (a model, an
optimizer), to modules, functions, words and numbers, but to no dictionary, list, tensor or array.
"""

from __future__ import annotations

import functools
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Iterator, Set

CONTAINERS = (dict, list, tuple, set, frozenset, bytes, bytearray, memoryview)


def is_repeatable(write: Any) -> bool:
    """`write(path)`: a function, a method of an object, or an object that can be called."""
    try:
        return not any(_may_be_copy(one) for one in _referred_to(write, set()))
    except Exception:  # noqa: BLE001  whatever an object of the script's does when it is looked at: it is not known
        return False


def _referred_to(write: Any, known: Set[CodeType]) -> Iterator[Any]:
    """What the function can reach by a name of its own, and by those of functions of the same file that it names."""
    if isinstance(write, functools.partial):
        yield from (*write.args, *write.keywords.values())
        yield from _referred_to(write.func, known)
    elif isinstance(write, FunctionType):
        known.add(write.__code__)
        for value in _named(write):
            if isinstance(value, FunctionType) and value.__globals__ is write.__globals__:
                yield from () if value.__code__ in known else _referred_to(value, known)
            else:
                yield value
    else:
        yield getattr(write, "__self__", write)


def _named(write: FunctionType) -> Iterator[Any]:
    yield from write.__defaults__ or ()
    yield from (write.__kwdefaults__ or {}).values()
    for cell in write.__closure__ or ():
        yield cell.cell_contents
    yield from (write.__globals__[name] for name in _names(write.__code__) if name in write.__globals__)


def _names(code: CodeType) -> Iterator[str]:
    """Of globals, in functions inside it, too. Names of attributes are among them, which does no harm."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _may_be_copy(value: Any) -> bool:
    """Is it data, rather than something that has data?"""
    if isinstance(value, (ModuleType, type)):
        return False
    if isinstance(value, (MethodType, BuiltinMethodType)):
        return _may_be_copy(value.__self__)
    return isinstance(value, CONTAINERS) or (hasattr(value, "dtype") and hasattr(value, "shape"))
