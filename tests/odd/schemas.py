"""What may be in an object of a kind, as the API server itself describes it, and what somebody may make of that.

The description is `/openapi/v3`: of Kubernetes' own kinds and of every CRD that is installed.
"""

from __future__ import annotations

import copy
import random
from typing import Any

from cluster.api import Api
from swell.manifests.affinity import VALUE

Document = dict[str, Any]
DEPTH_MAX = 6  # of what is made at one place
TEXTS = (
    *("", "0", "1", "-1", "0.5", "500m", "1e9", "1e999999999", "9" * 400, "9" * 63, "0x10", "٣", "true", "NaN"),
    *("swell", "default", "kube-system", "a/b", "../..", "a b", "7", "7.1", "zone", "node-0", "Always", "Never"),
    *("2026-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "0-999999999", '{"swell_attempt":', "w" * 300),
)
NUMBERS = (0, 1, 2, 3, -1, 7, 100, 2**31 - 1, -(2**31))  # a larger one in a status stops the operators themselves
LARGE = (2**63 - 1, -(2**63))
LABELS = [text for text in TEXTS if VALUE.fullmatch(text)]  # an API server takes no others
#: What Swell, and the controllers beside it, read on objects of others.
NAMES = (
    *(f"swell.dev/{name}" for name in ("job", "store", "attempt", "rank", "suspended", "server", "gpu", "gpu-number")),
    *(f"swell.dev/{name}" for name in ("priority", "gpus", "tasks", "gpu-memory", "time", "resize", "on-member-lost")),
    *(f"swell.dev/{name}" for name in ("shared-volume", "stand-in", "reservation", "checkpoints", "state")),
    *("scheduling.x-k8s.io/pod-group", "fluence.group-size", "jobset.sigs.k8s.io/jobset-name"),
    *("jobset.sigs.k8s.io/job-index", "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-key"),
    *("batch.kubernetes.io/job-completion-index", "alpha.jobset.sigs.k8s.io/exclusive-topology"),
    *("training.kubeflow.org/job-name", "training.kubeflow.org/operator-name", "kueue.x-k8s.io/queue-name"),
    *("leaderworkerset.sigs.k8s.io/size", "leaderworkerset.sigs.k8s.io/group-key", "nvidia.com/gpu.memory"),
)


class Schemas:
    """Of one API server; asked once for each group."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._paths: Document = api.get("/openapi/v3")["paths"]
        self._groups: dict[str, Document] = {}

    def of(self, api_version: str, kind: str) -> Document:
        """The schema of a kind; references in it are resolved by `resolved`."""
        group, _, version = api_version.rpartition("/")
        for schema in self._group(api_version).values():
            for one in schema.get("x-kubernetes-group-version-kind", ()):
                if (one["group"], one["version"], one["kind"]) == (group, version, kind):
                    return dict(schema)
        raise AssertionError(f"the API server does not describe {api_version} {kind}")

    def _group(self, api_version: str) -> Document:
        if api_version not in self._groups:
            path = f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"
            found = self._api.get(self._paths[path]["serverRelativeURL"])
            self._groups[api_version] = found["components"]["schemas"]
        return self._groups[api_version]

    def resolved(self, schema: Document, api_version: str) -> Document:
        """One step: properties of it may be references again."""
        while True:
            if "$ref" in schema:
                schema = self._group(api_version)[schema["$ref"].rpartition("/")[2]]
            elif len(schema.get("allOf", ())) == 1 and "properties" not in schema:
                schema = schema["allOf"][0]
            else:
                return schema


class Fuzz:
    """Documents that an API server may take, made from one that it does take."""

    def __init__(self, schemas: Schemas, lots: random.Random) -> None:
        self._schemas = schemas
        self._lots = lots

    def changed(self, document: Document, part: str, *, times: int) -> Document:
        """With so many places of one part (`spec`, `status` …) written anew, as its schema has them."""
        made = copy.deepcopy(document)
        version = made["apiVersion"]
        schema = self._schemas.of(version, made["kind"]).get("properties", {}).get(part)
        for _ in range(times if schema is not None else 0):
            made[part] = self._descend(made.get(part), schema, version, DEPTH_MAX)
        return made

    def annotations(self, count: int) -> dict[str, str]:
        return {name: self._lots.choice(TEXTS) for name in self._lots.sample(NAMES, count)}

    def labels(self, count: int) -> dict[str, str]:
        return {name: self._lots.choice(LABELS) for name in self._lots.sample(NAMES, count)}

    def _descend(self, value: Any, schema: Document, version: str, depth: int) -> Any:
        """Further down, or here and now."""
        schema = self._schemas.resolved(schema, version)
        properties = schema.get("properties")
        if depth and isinstance(value, dict) and properties and self._lots.random() < 0.9:
            name = self._lots.choice(sorted(properties))
            if value and self._lots.random() < 0.5:
                name = self._lots.choice(sorted(set(value) & set(properties)) or [name])
            if self._lots.random() < 0.1:
                return {key: one for key, one in value.items() if key != name}
            return {**value, name: self._descend(value.get(name), properties[name], version, depth - 1)}
        if depth and isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict) and value:
            name = self._lots.choice([*sorted(value), "new"])
            inside = schema["additionalProperties"]
            return {**value, name: self._descend(value.get(name), inside, version, depth - 1)}
        if depth and isinstance(value, list) and value and "items" in schema and self._lots.random() < 0.8:
            number = self._lots.randrange(len(value))
            one = self._descend(value[number], schema["items"], version, depth - 1)
            return [*value[:number], one, *value[number + 1 :]]
        return self.made(schema, version, depth)

    def made(self, schema: Document, version: str, depth: int) -> Any:
        """Something new of that schema."""
        lots, schema = self._lots, self._schemas.resolved(schema, version)
        if "enum" in schema and lots.random() < 0.9:
            return lots.choice(schema["enum"])
        if schema.get("x-kubernetes-int-or-string") or "oneOf" in schema or "anyOf" in schema:
            return lots.choice((lots.choice(TEXTS), lots.choice(NUMBERS)))
        kind = schema.get("type")
        if kind == "string":
            return lots.choice(TEXTS)
        if kind in ("integer", "number"):
            return lots.choice((*NUMBERS, *LARGE) if schema.get("format") == "int64" else NUMBERS)
        if kind == "boolean":
            return lots.random() < 0.5
        if kind == "array":
            return [
                self.made(schema["items"], version, depth - 1) for _ in range(lots.randint(0, 2) if depth > 0 else 0)
            ]
        properties = schema.get("properties", {})
        if properties:
            needed = set(schema.get("required", ()))
            some = (
                set(lots.sample(sorted(properties), min(len(properties), lots.randint(0, 3)))) if depth > 0 else set()
            )
            return {name: self.made(properties[name], version, depth - 1) for name in sorted(needed | some)}
        inside = schema.get("additionalProperties")
        if isinstance(inside, dict) and depth > 0:
            names = lots.sample((*NAMES, "cpu", "memory", "nvidia.com/gpu", "a"), lots.randint(0, 2))
            return {name: self.made(inside, version, depth - 1) for name in names}
        return {}
