"""Which objects could we not read, and do their users know?

Told on the object itself where it is ours to speak: it asks for our scheduler, and what is in its namespace is ours to
take in. Others' objects are none of our business; they are counted and logged.
"""

from __future__ import annotations

from swell.engines.kubernetes.notices import Target, Word
from swell.engines.kubernetes.resources import NODES
from swell.engines.kubernetes.unreadable import Unreadable
from swell.telling.scene import Scene
from swell.telling.waits import REMIND_S

KIND = "Unreadable"


class Unread:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._due: dict[str, Unreadable] = {}  #: by uid
        self._told: dict[str, tuple[str, float, int]] = {}  #: uid → what was said, when, and how often

    def look(self) -> None:
        now = self._scene.monotonic()
        found = {one.uid: one for one in self._scene.cluster.unreadable() if self._is_ours(one)}
        self._told = {uid: told for uid, told in self._told.items() if uid in found}
        self._due = {uid: one for uid, one in found.items() if self._is_news(one, now)}

    def _is_ours(self, one: Unreadable) -> bool:
        return one.is_for_us and one.kind != NODES.kind and self._scene.arrivals.takes(one.namespace)

    def _is_news(self, one: Unreadable, now: float) -> bool:
        said, at, _ = self._told.get(one.uid, ("", 0.0, 0))
        return said != one.problem or now - at >= REMIND_S

    def tell(self) -> bool:
        """One of them; False: there is none."""
        if not self._due:
            return False
        uid, one = next(iter(self._due.items()))
        del self._due[uid]
        count = self._told.get(uid, ("", 0.0, 0))[2] + 1
        self._told[uid] = one.problem, self._scene.monotonic(), count
        target = Target(self._scene.cluster.resources[one.kind], one.namespace, one.name, one.uid)
        word = Word(KIND, f"Swell cannot read it, and leaves it alone until it changes: {one.problem}", is_warning=True)
        self._scene.is_heard(self, one.namespace, lambda: self._scene.say_again(target, KIND, word, count))
        return True
