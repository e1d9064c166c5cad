"""Where do the pods of an attempt come from, and whose are they?

It decides who may make and remove them: an object of ours is created and deleted by us; one that came by kubectl is
only suspended, resumed and bound; plain pods that came by kubectl are their users', except those that an earlier
attempt had to take away, which are made again.
"""

from __future__ import annotations

from enum import Enum


class Origin(Enum):
    """Who makes an attempt's pods, and who made what they come from."""

    OUR_OBJECT = "our object"  # its controller makes the pods; we made it
    FOUND_OBJECT = "object that came by kubectl"  # its controller makes the pods; somebody else made it
    OUR_PODS = "our pods"  # plain pods that we make
    FOUND_PODS = "pods that came by kubectl"  # plain pods that somebody else has made
    REMADE_PODS = "pods that came by kubectl, made again"  # an earlier attempt took away what it had bound of them

    @property
    def has_object(self) -> bool:
        """Are the pods made by an object's controller?"""
        return self in (Origin.OUR_OBJECT, Origin.FOUND_OBJECT)

    @property
    def is_ours(self) -> bool:
        """Did we make the object, or the pods, so that we may remove them?"""
        return self in (Origin.OUR_OBJECT, Origin.OUR_PODS)

    @property
    def is_remade(self) -> bool:
        """Do we make pods again that came by kubectl?"""
        return self is Origin.REMADE_PODS
