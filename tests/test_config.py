"""What an operator writes into config.json is taken whole, or refused with the mistake named."""

from __future__ import annotations

import ipaddress
import json
import shutil
from types import SimpleNamespace

import pytest

from swell.config import ClusterSettings, Config, Door, UserLimits, parse_config, read_config, shared_limits
from swell.errors import Rejected
from swell.machine.state_folder import StateFolder
from swell.server.main import Flags

DAY_S = 86400.0


def test_a_file_that_is_not_there_means_the_defaults(tmp_path):
    assert read_config(tmp_path / "config.json") == Config()
    assert Config().limits_of("anna") == UserLimits(
        gpus=None, running=None, queued=20_000, tasks=2_000_000, stored_mib=4096, disk_mib=None, priority=0
    )
    assert (Config().half_life_s, Config().admin_group, Config().keep_s) == (7 * DAY_S, "swell-admin", 30 * DAY_S)


def test_a_user_has_the_default_limits_but_for_what_is_said_of_them(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "limits": {
                    "default": {"gpus": 4, "running": 8, "queued": 100},
                    "users": {"anna": {"gpus": 8, "queued": None}},
                },
                "fair_share": {"half_life": "2d"},
                "admin_group": "ops",
                "keep_s": None,
                "gpus": 2,
            }
        )
    )
    config = read_config(path)
    assert config.limits_of("anna") == UserLimits(gpus=8, running=8, queued=None)
    assert config.limits_of("ben") == UserLimits(gpus=4, running=8, queued=100)
    assert (config.half_life_s, config.admin_group, config.keep_s, config.gpus) == (2 * DAY_S, "ops", None, 2)


@pytest.mark.parametrize(
    ("said", "anna", "ben"),
    [
        ({}, 500, 500),
        ({"limits": {"default": {"gpus": 4}}}, 500, 500),
        ({"limits": {"default": {"disk_mib": 20}}}, 20, 20),
        ({"limits": {"default": {"disk_mib": None}, "users": {"anna": {"disk_mib": 7}}}}, 7, None),
        ({"limits": {"users": {"anna": {"disk_mib": None}}}}, None, 500),
    ],
)
def test_the_disk_is_limited_as_is_said_and_else_as_the_server_thinks_best(said, anna, ben):
    config = parse_config(said, UserLimits(disk_mib=500))
    assert (config.limits_of("anna").disk_mib, config.limits_of("ben").disk_mib) == (anna, ben)
    assert config.limits_disk


def test_nothing_is_counted_where_nobody_has_a_limit_of_the_disk():
    assert not parse_config({"limits": {"default": {"gpus": 4}, "users": {"anna": {"disk_mib": None}}}}).limits_disk


def test_where_users_share_a_disk_each_has_a_quarter_of_it_and_a_tenth_for_what_is_stored(tmp_path):
    total = shutil.disk_usage(tmp_path).total // 1024**2
    assert shared_limits(tmp_path) == UserLimits(disk_mib=total // 4, stored_mib=min(4096, total // 10))


def test_on_a_disk_of_10_gib_as_the_chart_has_it_one_user_is_left_no_more_than_a_third_of_it(tmp_path, monkeypatch):
    """4 GiB of stored jobs were everybody's, so that three users had this disk full."""
    blocks = SimpleNamespace(f_blocks=10 * 1024 * 256, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda _: blocks)
    assert shared_limits(tmp_path) == UserLimits(disk_mib=2560, stored_mib=1024)


@pytest.mark.parametrize("is_said_in", ["the command line", "config.json", "the settings to store"])
def test_a_clusters_server_limits_the_disk_where_its_operator_says_nothing(tmp_path, is_said_in):
    """The logs of all pods are on a disk of the server's, 10 GiB by default: one user alone could fill it."""
    document = {"cluster": {"context": "lab"}}
    engine = ClusterSettings(context="lab") if is_said_in == "the command line" else None
    settings = document if is_said_in == "the settings to store" else {}
    state = StateFolder(tmp_path)
    if is_said_in == "config.json":
        state.config.write_text(json.dumps(document))
    assert config_at_start(state, engine, settings).limits_of("ml") == shared_limits(tmp_path)


def test_a_box_limits_the_disk_and_a_private_server_leaves_it_to_its_owner(tmp_path):
    assert config_at_start(StateFolder(tmp_path, tmp_path / "socket")).limits_of("anna") == shared_limits(tmp_path)
    assert config_at_start(StateFolder(tmp_path)).limits_of("anna") == UserLimits(disk_mib=None)


def config_at_start(state, engine=None, settings=None):
    return Flags(0, None, None, (), None, None, engine, settings=settings or {}).config_of(state)


def test_where_it_listens_which_doors_are_open_and_who_administers_a_cluster():
    door = {"name": "genai", "port": 5000, "user": "anna"}
    elsewhere = {**door, "port": 6000, "address": "0.0.0.0", "hosts": ["monitor"]}
    config = parse_config(
        {
            "listen": "0.0.0.0:8080",
            "advertise": "http://swell:8080",
            "allowed_hosts": ["swell"],
            "admins": ["eva"],
            "token_audiences": ["swell"],
            "doors": [door, elsewhere],
        }
    )
    assert config == Config(
        listen="0.0.0.0:8080",
        advertise="http://swell:8080",
        allowed_hosts=("swell",),
        admins=("eva",),
        token_audiences=("swell",),
        doors=(
            Door("genai", 5000, "anna", "127.0.0.1", ()),
            Door("genai", 6000, "anna", "0.0.0.0", ("monitor",)),
        ),
    )


def test_where_notices_may_go_is_what_addresses_begin_with_and_networks_by_number():
    config = parse_config(
        {
            "notices": {
                "addresses": ["https://hooks.example.org/x", "https://*.chat.example"],
                "networks": ["10.0.0.0/8"],
            }
        }
    )
    assert [str(pattern) for pattern in config.notices.addresses or ()] == [
        "https://hooks.example.org/x",
        "https://*.chat.example/",
    ]
    assert config.notices.networks == (ipaddress.ip_network("10.0.0.0/8"),)
    assert (parse_config({}).notices.addresses, parse_config({"notices": {}}).notices.addresses) == (None, None)
    assert parse_config({"notices": {"addresses": []}}).notices.addresses == ()


@pytest.mark.parametrize(
    ("document", "cluster"),
    [
        ({}, ClusterSettings(None, None, None, stand_ins=True)),
        ({"namespace": "ml", "stand_ins": False}, ClusterSettings(namespace="ml", stand_ins=False)),
        ({"namespace": "ml", "jobs_namespace": "jobs"}, ClusterSettings(namespace="ml", jobs_namespace="jobs")),
        ({"kubeconfig": "/k", "context": "lab", "stand_ins": True}, ClusterSettings("/k", "lab", None, stand_ins=True)),
    ],
)
def test_jobs_that_wait_call_a_clusters_autoscaler_unless_it_says_otherwise(document, cluster):
    assert parse_config({"cluster": document}) == Config(cluster=cluster)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"cluster": {"stand_ins": "no"}}', "cluster.stand_ins must be true or false, but is 'no'"),
        ('{"node_rights": "yes"}', "node_rights must be true or false, but is 'yes'"),
        ('{"cluster": {"stand_in": true}}', "cluster has no 'stand_in'; did you mean 'stand_ins'?"),
        ('{"admins": "eva"}', "admins must be a list of names, but is 'eva'"),
        ('{"allowed_hosts": [""]}', "allowed_hosts must be a list of names, but is ['']"),
        ('{"listen": 8080}', "listen must be an address, or null, but is 8080"),
        ('{"doors": {}}', "doors must be a list, but is {}"),
        ('{"doors": [{"name": "genai", "port": 1}]}', "doors[0] needs 'user': a door has a name, a port and the user"),
        ('{"doors": [{"name": "genai", "port": 0, "user": "a"}]}', "doors[0].port must be a whole number from 1 to"),
        ('{"doors": [{"name": "genai", "port": 1, "user": ""}]}', "doors[0].user must be a name, but is ''"),
        ('{"doors": [{"nam": "genai"}]}', "doors[0] has no 'nam'; did you mean 'name'?"),
        ("{", "is not valid JSON: Expecting property name"),
        ("[]", "the file must be an object {...}, but is []"),
        ('{"limit": {}}', "the file has no 'limit'; did you mean 'limits'?"),
        ('{"limits": {"everybody": {}}}', "limits has no 'everybody'; known fields: default, users"),
        ('{"limits": {"default": {"gpu": 1}}}', "limits.default has no 'gpu'; did you mean 'gpus'?"),
        ('{"limits": {"users": {"anna": {"gpus": -1}}}}', "limits.users.anna.gpus must be a whole number from 0 to"),
        ('{"limits": {"users": {"anna": {"gpus": true}}}}', "limits.users.anna.gpus must be a whole number from 0 to"),
        ('{"limits": {"users": []}}', "limits.users must be an object {...}, but is []"),
        (
            '{"policy": "lottery"}',
            "policy must be one of swell, fifo, backfill, srtf, tiresias, optimus, genai, kube-d",
        ),
        ('{"fair_share": {"half_life": "soon"}}', "fair_share.half_life: 'soon' is not a duration"),
        ('{"admin_group": ""}', "admin_group must be a group's name, but is ''"),
        ('{"notices": []}', "notices must be an object {...}, but is []"),
        ('{"notices": {"address": []}}', "notices has no 'address'; did you mean 'addresses'?"),
        ('{"notices": {"addresses": "https://a/"}}', "notices.addresses must be a list of addresses, or null, but is"),
        ('{"notices": {"addresses": ["*"]}}', "notices.addresses: '*': it does not begin with http:// or https://"),
        ('{"notices": {"addresses": ["https://a/?x"]}}', "notices.addresses: 'https://a/?x': it names a query"),
        ('{"notices": {"networks": ["10.0.0.1/8"]}}', "notices.networks: 10.0.0.1/8 has host bits set; write 10.20"),
        ('{"keep_s": 0}', "keep_s must be a number of seconds, or null for no limit, but is 0"),
        ('{"gpus": "4"}', "gpus must be a whole number from 0 to"),
    ],
)
def test_a_mistake_is_named(tmp_path, text, said):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(Rejected) as caught:
        read_config(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)


def test_what_swell_up_remembers_is_understood():
    assert parse_config({"gpus": None, "cpus_milli": 4000, "gpu_memory_mib": 16384, "keep_s": 60.0}) == Config(
        cpus_milli=4000, gpu_memory_mib=16384, keep_s=60.0
    )
