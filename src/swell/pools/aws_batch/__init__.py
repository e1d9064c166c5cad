"""Workers as jobs of AWS Batch.

options     what such a pool is told          render      an order → a job definition and a job
parse       jobs → workers; errors            backend     sends and receives; the only file that knows boto3
"""

from __future__ import annotations

from typing import Any

from swell.errors import Rejected
from swell.pools.aws_batch.options import FLAGS, AwsBatchOptions, read
from swell.pools.backend import PoolBackend
from swell.pools.image import mounted_folders
from swell.pools.kinds import LegacyCommand, PoolKind
from swell.pools.options import PoolOptions

HELP = """Run workers as jobs of AWS Batch.

\b
swell pool start aws-batch --server https://box.lab:8443 --token-file pool.token --fingerprint SHA256 \\
    --image 123456789012.dkr.ecr.us-east-1.amazonaws.com/swell-torch:1 --job-queue swell-gpu --gpus 1 \\
    --cpus 4 --memory 15GiB --execution-role arn:aws:iam::123456789012:role/swell-execution

The pool needs boto3 (`pip install 'swell[aws]'`), the credentials that the AWS command line uses, and the rights of
deploy/pools/aws/pool-policy.json.
"""


def connect(pool: PoolOptions, options: Any) -> PoolBackend:
    assert isinstance(options, AwsBatchOptions)
    try:
        from swell.pools.aws_batch.backend import AwsBatchBackend
    except ImportError as error:
        raise Rejected(f"a pool on AWS Batch needs boto3 ({error}); install it: pip install 'swell[aws]'") from error
    return AwsBatchBackend(pool.name, options)


KIND = PoolKind(
    name="aws-batch",
    help=HELP,
    flags=FLAGS,
    read=read,
    connect=connect,
    legacy=LegacyCommand(
        name="aws-batch",
        defaults={"job_definition_name": "codalab-worker", "job_queue": "codalab-batch-cpu"},
        named_after=("job_queue",),
        shared_folders=mounted_folders,
    ),
)
