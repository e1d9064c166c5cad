"""What an operator writes into config.json is taken whole, or refused with the mistake named."""

from __future__ import annotations

import json

import pytest

from swell.config import Cluster, Config, Door, Limits, parse_config, read_config
from swell.errors import Rejected

DAY_S = 86400.0


def test_a_file_that_is_not_there_means_the_defaults(tmp_path):
    assert read_config(tmp_path / "config.json") == Config()
    assert Config().limits_of("anna") == Limits(gpus=None, running=None, queued=None)
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
    assert config.limits_of("anna") == Limits(gpus=8, running=8, queued=None)
    assert config.limits_of("ben") == Limits(gpus=4, running=8, queued=100)
    assert (config.half_life_s, config.admin_group, config.keep_s, config.gpus) == (2 * DAY_S, "ops", None, 2)


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


@pytest.mark.parametrize(
    ("document", "cluster"),
    [
        ({}, Cluster(None, None, None, stand_ins=True)),
        ({"namespace": "ml", "stand_ins": False}, Cluster(namespace="ml", stand_ins=False)),
        ({"kubeconfig": "/k", "context": "lab", "stand_ins": True}, Cluster("/k", "lab", None, stand_ins=True)),
    ],
)
def test_jobs_that_wait_call_a_clusters_autoscaler_unless_it_says_otherwise(document, cluster):
    assert parse_config({"cluster": document}) == Config(cluster=cluster)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"cluster": {"stand_ins": "no"}}', "cluster.stand_ins must be true or false, but is 'no'"),
        ('{"cluster": {"stand_in": true}}', "cluster has no 'stand_in'; did you mean 'stand_ins'?"),
        ('{"admins": "eva"}', "admins must be a list of names, but is 'eva'"),
        ('{"allowed_hosts": [""]}', "allowed_hosts must be a list of names, but is ['']"),
        ('{"listen": 8080}', "listen must be an address, or null, but is 8080"),
        ('{"doors": {}}', "doors must be a list, but is {}"),
        ('{"doors": [{"name": "genai", "port": 1}]}', "doors[0] needs 'user': which door, at which port, and in whose"),
        ('{"doors": [{"name": "genai", "port": 0, "user": "a"}]}', "doors[0].port must be a whole number from 1 to"),
        ('{"doors": [{"name": "genai", "port": 1, "user": ""}]}', "doors[0].user must be a name, but is ''"),
        ('{"doors": [{"nam": "genai"}]}', "doors[0] has no 'nam'; did you mean 'name'?"),
        ("{", "is not valid JSON: Expecting property name"),
        ("[]", "the file must be a table {...}, but is []"),
        ('{"limit": {}}', "the file has no 'limit'; did you mean 'limits'?"),
        ('{"limits": {"everybody": {}}}', "limits has no 'everybody'; there are: default, users"),
        ('{"limits": {"default": {"gpu": 1}}}', "limits.default has no 'gpu'; did you mean 'gpus'?"),
        ('{"limits": {"users": {"anna": {"gpus": -1}}}}', "limits.users.anna.gpus must be a whole number from 0 to"),
        ('{"limits": {"users": {"anna": {"gpus": true}}}}', "limits.users.anna.gpus must be a whole number from 0 to"),
        ('{"limits": {"users": []}}', "limits.users must be a table {...}, but is []"),
        ('{"fair_share": {"half_life": "soon"}}', "fair_share.half_life: 'soon' is not a duration"),
        ('{"admin_group": ""}', "admin_group must be a group's name, but is ''"),
        ('{"keep_s": 0}', "keep_s must be a number of seconds, or null for ever, but is 0"),
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
