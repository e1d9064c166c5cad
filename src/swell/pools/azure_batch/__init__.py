"""Workers as tasks of Azure Batch.

options     what such a pool is told          render      an order → a task
parse       tasks → workers; errors           backend     sends and receives; the only file that knows azure-batch
"""

from __future__ import annotations

from typing import Any

from swell.errors import Rejected
from swell.pools.azure_batch.options import FLAGS, AzureBatchOptions, read
from swell.pools.backend import PoolBackend
from swell.pools.image import mounted_folders
from swell.pools.kinds import LegacyCommand, PoolKind
from swell.pools.options import PoolOptions

HELP = """Run workers as tasks of Azure Batch.

\b
swell pool start azure-batch --server https://box.lab:8443 --token-file pool.token --fingerprint SHA256 \\
    --image swelllab.azurecr.io/swell-torch:1 --account-name swelllab --account-key-file batch.key \\
    --service-url https://swelllab.westeurope.batch.azure.com --job-id swell-workers \\
    --log-container-url 'https://swelllab.blob.core.windows.net/logs?SAS' --cpus 6 --memory 50GiB --gpus 1

The pool needs azure-batch (`pip install 'swell[azure]'`). Whoever has the account's key can read the environment of
its tasks, and in it the token of the workers.
"""


def connect(pool: PoolOptions, options: Any) -> PoolBackend:
    assert isinstance(options, AzureBatchOptions)
    try:
        from swell.pools.azure_batch.backend import AzureBatchBackend
    except ImportError as error:
        raise Rejected(
            f"a pool on Azure Batch needs azure-batch 15 ({error}); install it: pip install 'swell[azure]'"
        ) from error
    return AzureBatchBackend(pool.name, options)


KIND = PoolKind(
    name="azure-batch",
    help=HELP,
    flags=FLAGS,
    read=read,
    connect=connect,
    legacy=LegacyCommand(name="azure-batch", named_after=("job_id",), shared_folders=mounted_folders),
)
