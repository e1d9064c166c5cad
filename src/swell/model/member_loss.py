"""What becomes of the pods that start together when one of them is lost, or is not ours any more?"""

from __future__ import annotations

from enum import StrEnum

ON_MEMBER_LOST = "swell.dev/on-member-lost"  # annotation of a pod of a group


class MemberLoss(StrEnum):
    RESTART = "restart"  # they stop, and begin again when as many are there as start together
    WAIT = "wait"  # they go on, and the pod that replaces the lost one gets its place
    GO_ON = "go-on"  # they go on without it, as long as as many run as start together


CHANGED = "a change of its pod group"  # by what a job is cancelled whose pods are grouped anew
OTHER = "another scheduler"  # by whom a job is cancelled whose pods are not all ours to place any more
GIVEN_UP_BY = (CHANGED, OTHER)  #: nobody asked for it, and what is left and waits becomes another job
