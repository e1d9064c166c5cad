"""Which of a thousand items are this task's? Run by the manifests beside it; alone it counts them all."""

import os

import swell_sdk

items = swell_sdk.shard(1000)
place = [os.environ.get(name, "0") for name in ("JOB_INDEX", "JOB_COMPLETION_INDEX")]
print(os.environ.get("REPLICATED_JOB_NAME", "alone"), *place, f"{items.start + 1}-{items.stop}")
