"""In which namespace are the objects of a job made?

In that which it names, or else in one that is kept for jobs. Never in that of the server's own pod: whoever may create
pods there can mount its Secrets and its state folder, and is an administrator of everything that Swell does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from swell.errors import Rejected

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobPlaces:
    default: str  #: of jobs that name none
    home: str | None = None  #: the server's own, where none are made; None: it has nothing to hide in the cluster

    @classmethod
    def of(cls, jobs: str | None, home: str | None, own: str) -> JobPlaces:
        """`jobs`: what the operator says; `home`: the namespace of our pod; `own`: where our Lease is."""
        hidden = own if home is None and jobs not in (None, own) else home
        if jobs is not None and jobs == hidden:
            raise Rejected(
                f"the namespace for jobs is {jobs!r}, which is the server's own: whoever may create pods there can "
                "mount its secrets; name another with --jobs-namespace (the chart: jobsNamespace)"
            )
        return cls(jobs or own, hidden)

    def namespace(self, document: Document) -> str:
        return str(document["metadata"].get("namespace") or self.default)

    def may_hold(self, document: Document, namespace: str) -> bool:
        """May objects of that job be there? Those that name none were made at home by servers before this one."""
        meant = self.namespace(document)
        return namespace == meant or (meant == self.default and namespace == self.home)

    def refuse(self, namespace: str) -> None:
        if namespace == self.home:
            hint = "" if self.default == self.home else f", or leave it out for {self.default!r}"
            raise Rejected(
                f"jobs are not made in namespace {namespace!r}, which is Swell's own: whoever may create pods there "
                f"can mount its secrets; write metadata.namespace with another{hint} (jobsNamespace in Swell's chart)"
            )
