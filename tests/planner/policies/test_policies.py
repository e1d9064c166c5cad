"""A policy is chosen by its name."""

from tests.planner.world import node, queued, world

from swell.planner import make_plan
from swell.planner.policies import DEFAULT_POLICY, POLICIES


def test_the_default_policy_is_the_planner_of_the_server() -> None:
    snapshot = world(node("a", gpus=4), queued(1, gpus=2))
    assert POLICIES[DEFAULT_POLICY](snapshot) == make_plan(snapshot)
