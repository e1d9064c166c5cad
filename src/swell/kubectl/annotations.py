"""Do the annotations under `swell.dev/` say how their job stands?"""

from __future__ import annotations

from swell.kubectl.messages import annotations_of
from swell.kubectl.status_objects import ObjectTarget, annotations_patch
from swell.kubectl.status_view import StatusView
from swell.model.job import JobId
from swell.store import Outline

Annotations = dict[str, str | None]


class AnnotationWriter:
    def __init__(self, view: StatusView) -> None:
        self._view = view
        self._due: dict[JobId, None] = {}
        self._before: dict[JobId, Outline] = {}  #: as of the last look
        self._said: dict[JobId, tuple[str, Annotations]] = {}  #: uid of its object and what it says

    def look(self) -> None:
        outlines = self._view.outlines
        ended = [event.job_id for event in self._view.news if event.kind == "Ended" and event.job_id is not None]
        self._due |= dict.fromkeys(ended)
        self._due |= dict.fromkeys(self._said.keys() - outlines.keys())
        for job, outline in outlines.items():
            is_settled = self._before.get(job) == outline  # of what lasts a moment nobody hears
            if is_settled and job not in self._due and self._change(outline) is not None:
                self._due[job] = None
        self._before = outlines

    def tell(self) -> bool:
        """One of them; False: there is none."""
        if not self._due:
            return False
        job = next(iter(self._due))
        del self._due[job]
        outline = self._outline(job)
        change = None if outline is None else self._change(outline)
        if change is not None:
            target, wanted = change
            patch = annotations_patch(target, wanted)
            write = self._view.port.patch
            self._view.is_heard(
                self, target.namespace, lambda: write(target.resource, target.name, patch, target.namespace)
            )
            self._said[job] = (target.uid, wanted)  # refused, it would be refused again
        if outline is None or outline.state.has_ended:
            self._said.pop(job, None)
        return True

    def _outline(self, job: JobId) -> Outline | None:
        if job in self._view.outlines:
            return self._view.outlines[job]
        record = self._view.record(job)
        return None if record is None else Outline.of(record)

    def _change(self, outline: Outline) -> tuple[ObjectTarget, Annotations] | None:
        """None: its object says so already, or there is none."""
        target = self._view.target(outline.id, attempts=outline.attempts)
        wanted = annotations_of(outline)
        if target is None or self._said.get(outline.id) == (target.uid, wanted):
            return None
        return target, wanted
