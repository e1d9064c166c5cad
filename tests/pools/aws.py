"""AWS on loopback for tests: moto in a process of its own, a queue in it, and a proxy that fails as told before it."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import botocore.session
import pytest

from pools.unsteady import Trouble, Unsteady
from swell.pools.aws_batch.backend import AwsBatchBackend
from swell.pools.aws_batch.options import AwsBatchOptions

TESTS = Path(__file__).parent.parent
REGION = "us-east-1"
EXECUTION_ROLE = "arn:aws:iam::123456789012:role/swell-execution"
# Every session reads the descriptions of the services from the disk again, which is most of what a test uses.
botocore.session.create_loader = functools.cache(botocore.session.create_loader)
OPTIONS = AwsBatchOptions(image="registry.lab/swell-torch:1", job_queue="swell", execution_role=EXECUTION_ROLE)


class Moto:
    """The process; one for many tests, each with a queue of its own."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pools.moto_server", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=TESTS,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, "moto has not started"
        self._clients: dict[str, Any] = {}
        self.environment = self._make_environment()
        self._queues = 0

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def client(self, service: str) -> Any:
        """To moto itself, past the proxy."""
        if service not in self._clients:
            keys = {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
            self._clients[service] = boto3.client(service, region_name=REGION, endpoint_url=self.url, **keys)
        return self._clients[service]

    def queue(self) -> str:
        """Another one."""
        self._queues += 1
        order = [{"order": 1, "computeEnvironment": self.environment}]
        name = f"swell-{self._queues}"
        self.client("batch").create_job_queue(
            jobQueueName=name, state="ENABLED", priority=1, computeEnvironmentOrder=order
        )
        return name

    def _make_environment(self) -> str:
        role = self.client("iam").create_role(RoleName="batch", AssumeRolePolicyDocument="{}")["Role"]["Arn"]
        network = self.client("ec2").create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = self.client("ec2").create_subnet(VpcId=network, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
        group = self.client("ec2").create_security_group(GroupName="swell", Description="workers", VpcId=network)
        profile = self.client("iam").create_instance_profile(InstanceProfileName="ecsInstanceRole")
        resources = {
            "type": "EC2",
            "minvCpus": 0,
            "maxvCpus": 8,
            "instanceTypes": ["m5.large"],
            "subnets": [subnet],
            "securityGroupIds": [group["GroupId"]],
            "instanceRole": profile["InstanceProfile"]["Arn"],
        }
        made = self.client("batch").create_compute_environment(
            computeEnvironmentName="swell", type="MANAGED", computeResources=resources, serviceRole=role
        )
        return str(made["computeEnvironmentArn"])

    def change(self, job: str, **told: Any) -> None:
        self._post(f"/test/jobs/{job}", told)

    def _post(self, path: str, body: Any) -> None:
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=30):
            pass


def point_sdk_at(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As its users do, and nothing of this machine's own account."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_BATCH"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)


class AwsWorld:
    def __init__(self, moto: Moto) -> None:
        self.moto = moto
        self.proxy = Unsteady(moto.url)
        queue = moto.queue()
        self.options = replace(OPTIONS, job_queue=queue, job_definition_name=f"worker-{queue}")

    def backend(self, pool: str, *, answer_s: float = 10.0) -> AwsBatchBackend:
        return AwsBatchBackend(pool, self.options, answer_s=answer_s)

    def start(self, backend_id: str) -> None:
        self.moto.change(backend_id, status="RUNNING")

    def end(self, backend_id: str, exit_code: int) -> None:
        self.moto.change(backend_id, exit_code=exit_code)

    def write_log(self, backend_id: str, text: bytes) -> None:
        self.moto.change(backend_id, log=text.decode())

    def cut(self) -> None:
        self.proxy.always = Trouble.CUT

    def refuse(self) -> None:
        """From the next order on; what only reads is answered."""
        self.options = replace(self.options, job_queue="unknown")

    def close(self) -> None:
        self.proxy.close()
