"""What comes by kubectl, and what its users see.

    adoption, adopted_objects, pod_groups   objects that somebody applied become jobs
    conditions, events, annotations         how a job stands, on its pods and objects
    messages, status_objects                pure: the words, and the documents that carry them
    status_view, recorder                   what can be told, and the thread that tells it
    placeholder_pods                        pods that make a cluster's autoscaler add nodes

The recorder writes at a bounded pace, only the newest word on each object, and nothing waits for it.
Public: `StatusView`, `StatusRecorder`.
"""

from swell.kubectl.recorder import StatusRecorder
from swell.kubectl.status_view import StatusView

__all__ = ["StatusRecorder", "StatusView"]
