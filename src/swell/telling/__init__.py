"""What a user of kubectl sees of Swell: conditions of waiting pods, Events and annotations of jobs' objects.

    words        pure: what is said of a job, and in which words
    scene        what is there to be told, and why a job waits
    conditions   pods that wait
    history      what has happened to a job, once each
    waits        why an object's job waits, as long as it does
    marks        `swell.dev/` annotations
    unread       objects that could not be read
    teller       the thread that says one thing after the other

Nothing here is needed by anything else, and nothing waits for it. It is said at a bounded pace, only the newest word on
each pod or object, and dropped where there is nobody to be told. Public: `Scene`, `Teller`.
"""

from swell.telling.scene import Scene
from swell.telling.teller import Teller

__all__ = ["Scene", "Teller"]
