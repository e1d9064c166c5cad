"""The files of deploy/pools and the commands of docs/pools: would the clouds take them, and do they fit our code?"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from azure.batch.models import BatchJobCreateOptions, BatchPoolCreateOptions
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from docs.blocks import ROOT, command_blocks
from swell.cli.root import swell as swell_command
from swell.machine.worker_options import FlagKind, read_flags, read_options
from swell.pools.aws_batch.render import parameter_name
from swell.pools.kinds import KINDS, find_kind
from swell.pools.kubernetes.render import APP
from swell.pools.options import POOL_FLAGS, read_pool_options

DEPLOY = ROOT / "deploy/pools"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
PAGES = ("docs/pools/aws.md", "docs/pools/azure.md", "docs/pools/kubernetes.md")
AWS_REQUESTS = {
    "launch-template.json": ("ec2", "CreateLaunchTemplate"),
    "compute-environment-gpu.json": ("batch", "CreateComputeEnvironment"),
    "compute-environment-cpu.json": ("batch", "CreateComputeEnvironment"),
    "job-queue-gpu.json": ("batch", "CreateJobQueue"),
    "job-queue-cpu.json": ("batch", "CreateJobQueue"),
}


def loaded(path: str) -> Any:
    return json.loads((DEPLOY / path).read_text())


def manifests(file: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one]


# -- AWS ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", AWS_REQUESTS)
def test_every_field_of_a_request_is_one_that_aws_knows(file: str) -> None:
    service, operation = AWS_REQUESTS[file]
    shape = ServiceModel(Loader().load_service_model(service, "service-2")).operation_model(operation).input_shape
    report = ParamValidator().validate(loaded(f"aws/{file}"), shape)
    assert not report.has_errors(), report.generate_report()


def test_the_queues_and_environments_of_aws_name_each_other_and_scale_to_zero() -> None:
    template = loaded("aws/launch-template.json")
    for kind in ("cpu", "gpu"):
        environment = loaded(f"aws/compute-environment-{kind}.json")
        queue = loaded(f"aws/job-queue-{kind}.json")
        assert queue["computeEnvironmentOrder"][0]["computeEnvironment"] == environment["computeEnvironmentName"]
        resources = environment["computeResources"]
        assert (resources["minvCpus"], resources["type"]) == (0, "SPOT")
        assert resources["launchTemplate"]["launchTemplateName"] == template["LaunchTemplateName"]


def test_a_container_on_aws_reaches_the_spot_notice_and_has_time_to_save() -> None:
    data = loaded("aws/launch-template.json")["LaunchTemplateData"]
    assert data["MetadataOptions"]["HttpPutResponseHopLimit"] == 2
    user_data = base64.b64decode(data["UserData"])
    assert user_data == (DEPLOY / "aws/user-data.txt").read_bytes()
    assert b"ECS_CONTAINER_STOP_TIMEOUT=110s" in user_data


def test_the_policies_of_aws_allow_what_is_called_and_nothing_else() -> None:
    def allowed(file: str) -> set[str]:
        return {action for one in loaded(f"aws/{file}")["Statement"] for action in one["Action"]}

    assert allowed("pool-policy.json") == {
        "batch:ListJobs",
        "batch:DescribeJobs",
        "batch:DescribeJobDefinitions",
        "batch:RegisterJobDefinition",
        "batch:SubmitJob",
        "batch:TerminateJob",
        "batch:TagResource",
        "iam:PassRole",
        "logs:GetLogEvents",
        "ssm:PutParameter",
    }
    everywhere = [
        action
        for file in ("pool-policy.json", "execution-policy.json")
        for one in loaded(f"aws/{file}")["Statement"]
        if one["Resource"] == "*"
        for action in one["Action"]
    ]
    assert sorted(everywhere) == [  # those that AWS grants for all or not at all
        "batch:DescribeJobDefinitions",
        "batch:DescribeJobs",
        "batch:ListJobs",
        "ecr:GetAuthorizationToken",
    ]
    (token,) = (one for one in loaded("aws/execution-policy.json")["Statement"] if one["Sid"] == "Token")
    assert parameter_name("lab").startswith(token["Resource"].partition(":parameter")[2].removesuffix("*"))


# -- Azure -------------------------------------------------------------------------------------------------------------


def unknown_fields(model: Any, document: dict[str, Any], path: str = "") -> Iterator[str]:
    names = {field._rest_name: name for name, field in type(model)._attr_to_rest_field.items()}
    for key, value in document.items():
        if key not in names:
            yield f"{path}{key}"
            continue
        inner = getattr(model, names[key])
        for found, given in zip(*((inner, value) if isinstance(value, list) else ([inner], [value])), strict=True):
            if isinstance(given, dict):
                yield from unknown_fields(found, given, f"{path}{key}.")


def test_every_field_of_azures_files_is_one_that_azure_knows() -> None:
    for file, kind in (("pool.json", BatchPoolCreateOptions), ("job.json", BatchJobCreateOptions)):
        document = loaded(f"azure/{file}")
        assert list(unknown_fields(kind(document), document)) == []
    assert list(unknown_fields(BatchJobCreateOptions({"poolInfo": {"id": "x"}}), {"poolInfo": {"id": "x"}})) == [
        "poolInfo.id"
    ]


def test_azures_job_runs_on_its_pool_which_scales_to_zero_by_the_formula_beside_it() -> None:
    pool, job = loaded("azure/pool.json"), loaded("azure/job.json")
    assert job["poolInfo"]["poolId"] == pool["id"]
    assert job["onAllTasksComplete"] == "noaction"
    assert pool["autoScaleFormula"] == (DEPLOY / "azure/autoscale.txt").read_text()
    assert pool["taskSlotsPerNode"] == 1
    assert "$TargetDedicatedNodes = 0;" in pool["autoScaleFormula"]


# -- Kubernetes --------------------------------------------------------------------------------------------------------


def test_the_role_allows_what_is_called_and_nothing_else() -> None:
    (role,) = (one for one in manifests(DEPLOY / "kubernetes/role.yaml") if one["kind"] == "Role")
    assert [(rule["apiGroups"], rule["resources"], rule["verbs"]) for rule in role["rules"]] == [
        ([""], ["pods"], ["create", "list", "delete"]),
        ([""], ["pods/log"], ["get"]),
        ([""], ["secrets"], ["create", "patch"]),
    ]


def test_what_belongs_together_is_in_one_namespace_and_named_alike() -> None:
    namespaces = {
        one["metadata"].get("namespace")
        for file in KUBERNETES
        if file.name in ("role.yaml", "limits.yaml", "nfs-server.yaml", "nfs-volume.yaml")
        for one in manifests(file)
        if one["kind"] not in ("Namespace", "PersistentVolume")
    }
    assert namespaces == {"swell-workers"}
    volume, claim = manifests(DEPLOY / "kubernetes/nfs-volume.yaml")
    assert (claim["metadata"]["name"], claim["spec"]["volumeName"]) == ("nfs-claim", volume["metadata"]["name"])
    (policy,) = (one for one in manifests(DEPLOY / "kubernetes/limits.yaml") if one["kind"] == "NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == {"app": APP}


# -- the documents -----------------------------------------------------------------------------------------------------


def pool_commands() -> list[list[str]]:
    shown = (one.bare for block in command_blocks() if block.file in PAGES for one in block.shown)
    return [words for words in map(shlex.split, shown) if words[:3] == ["swell", "pool", "start"]]


@pytest.mark.parametrize("words", pool_commands(), ids=lambda words: str(words[3]))
def test_a_pool_of_the_documents_can_be_started_as_it_is_written(words: list[str], tmp_path: Path) -> None:
    kind = find_kind(words[3])
    flags = {f"--{flag.name}": flag for flag in (*kind.flags, *POOL_FLAGS)}
    rest, given = iter(words[4:]), dict[str, Any]()
    for word in rest:
        flag = flags[word]
        given[flag.field] = True if flag.kind is FlagKind.SWITCH else next(rest)
    if "account_key_file" in given:
        key = tmp_path / "batch.key"
        key.write_text("a2V5")
        given["account_key_file"] = str(key)
    kind.read(read_flags(kind.flags, given))
    assert read_pool_options(kind.name, given, folder=tmp_path).worker.server == "https://10.0.0.1:8443"


def service_words(path: str) -> list[str]:
    """What the unit runs."""
    text = (ROOT / path).read_text().replace("\\\n", " ")
    (line,) = (line for line in text.splitlines() if line.startswith("ExecStart="))
    return shlex.split(line.removeprefix("ExecStart=").replace("%h", "/home/ann"))


@pytest.mark.parametrize("path", ["deploy/slurm/swell-pool.service", "deploy/worker/swell-worker.service"])
def test_the_command_of_a_service_is_one_that_swell_takes(path: str) -> None:
    words = service_words(path)
    command, context = swell_command, click.Context(swell_command)
    rest = words[1:]
    while isinstance(command, click.Group):
        found = command.get_command(context, rest[0])
        assert found is not None, rest[0]
        command, rest = found, rest[1:]
    given = command.make_context(command.name, rest).params
    assert given["server"].startswith("https://")
    if command.name == "worker":
        assert read_options(given).passes_termination


def test_a_service_leaves_the_tasks_of_a_worker_that_was_killed_to_the_next_one() -> None:
    """By default systemd ends all processes of a service whose main process has ended."""
    unit = ConfigParser(strict=False, interpolation=None)
    unit.read(ROOT / "deploy/worker/swell-worker.service")
    kept = {name: unit["Service"][name] for name in ("KillMode", "Restart")}
    assert kept == {"KillMode": "process", "Restart": "always"}


def test_every_kind_in_containers_has_a_page_with_a_command_that_starts_one() -> None:
    assert {words[3] for words in pool_commands()} == {kind for kind in KINDS if kind != "slurm"}
