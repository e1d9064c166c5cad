"""Which planning policies are there, by name? `planner/policies` has what each of them does."""

from __future__ import annotations

DEFAULT_POLICY = "swell"
POLICY_NAMES = (DEFAULT_POLICY, "fifo", "backfill", "srtf", "tiresias", "optimus", "genai", "kube-default")
