"""Kubernetes as the engine: its API as plain documents, and a picture of the cluster that stays true.

    access, credentials            where the API server is, and who we are
    connection, pool, exchange     HTTP/1.1 on kept-alive connections; what is asked again
    resources, failures            what is asked for, and what a refusal means
    port                           the verbs
    mirror, reflector              a copy of one resource that follows the cluster
    quotas                         what a namespace may use, and whether its refusal is final
    priorities                     what the cluster calls its priorities
    reviewer                       whose a token is, and what they may create
    logs, logstream                which pods' logs are copied, and how one is read to its end
    loglines, logfile              what of a stream is new, and what of it is on disk
    lease                          whether this is the one server that acts
    picture, quantities            what is kept of pods and nodes
    objects, kinds, numbering      and of the objects that make pods; which task a pod is
    cluster                        all of it in order
    template, ownpods, rules       pure: what a user's pods become, and those that we make
    standins                       pure: pods that call an autoscaler for a job that has none yet
    notices                        pure: what we leave on objects for users of kubectl
    wanted, steps                  pure: what is asked for, and what of it is missing
    sheet, follow, followarray     pure: what has become of an attempt
    lastwords                      pure: what a job said that ended while nobody listened
    life, lives, sight             the attempts, whose turn it is, and what of one is there
    nodes, offers                  what nodes have left for us
    reservations, reservationpod   pure: which GPUs are kept for those who share them
    reserving                      and who keeps them
    refusals                       what controllers say of pods that they cannot make
    leftovers                      what is removed of a job that is over
    hands, carrier                 the calls, and who makes them
    engine                         all of it, as the controller knows it

Public: `KubernetesEngine`, `find_access`, `Port`, `PatchKind`, `Reflector`, `Resource`, `Selection`.
"""

from swell.engines.kubernetes.access import Access, find_access
from swell.engines.kubernetes.engine import KubernetesEngine
from swell.engines.kubernetes.port import PatchKind, Port, Selection
from swell.engines.kubernetes.reflector import Reflector
from swell.engines.kubernetes.resources import Resource

__all__ = ["Access", "KubernetesEngine", "PatchKind", "Port", "Reflector", "Resource", "Selection", "find_access"]
