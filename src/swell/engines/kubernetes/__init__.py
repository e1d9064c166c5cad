"""Kubernetes as the engine: its API as plain documents, and a picture of the cluster that stays true.

    access, credentials     where the API server is, and who we are

Public: `find_access`. What pods mean to Swell does not belong into these files.
"""

from swell.engines.kubernetes.access import Access, find_access

__all__ = ["Access", "find_access"]
