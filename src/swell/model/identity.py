"""Who is somebody, where a cluster says so?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Identity:
    """A user as Kubernetes' authentication names them; all of it counts when their rights are reviewed."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""  #: empty: the cluster gives none
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  #: what else its authenticator says, such as a token's scopes


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """What is to be created, and where."""

    api_version: str
    kind: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.api_version}) in namespace {self.namespace!r}"
