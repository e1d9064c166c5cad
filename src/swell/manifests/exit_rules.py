"""Which failures does an object of Kubernetes treat otherwise than by its retries?

A Job by `podFailurePolicy`, a JobSet by the rules of its `failurePolicy`, a PyTorchJob by `restartPolicy: ExitCode`.
Here they become rules about exit codes. What a rule says of disruptions is not needed: a job that is preempted, or
whose machine is lost, comes back without using up a retry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from swell.errors import Rejected
from swell.manifests.fields import Fields, shorten, take_choice, take_list, take_mapping, take_text, whole_number
from swell.model.job import ExitAction, ExitRule

POD_FAILURE_POLICY = Fields(used=("rules",))
POD_RULE = Fields(used=("action", "onExitCodes", "onPodConditions"))
EXIT_CODES = Fields(used=("containerName", "operator", "values"))
SET_RULE = Fields(used=("action", "onJobFailureReasons", "targetReplicatedJobs"), idle=("name",))
RULES_MAX = 20  # Kubernetes' own limit
CODES_MAX = 255
POD_ACTIONS = {
    "FailJob": ExitAction.FAIL,
    "FailIndex": ExitAction.FAIL,
    "Ignore": ExitAction.IGNORE,
    "Count": ExitAction.COUNT,
}
SET_ACTIONS = {
    "FailJobSet": ExitAction.FAIL,
    "RestartJobSet": ExitAction.COUNT,
    "RestartJobSetAndIgnoreMaxRestarts": ExitAction.IGNORE,
}
REASONS = ("BackoffLimitExceeded", "PodFailurePolicy", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded")
PERMANENT = tuple(range(1, 128))  # what the training operator does not start again under `restartPolicy: ExitCode`


def read_pod_failure_policy(
    value: object, where: str, *, containers: Sequence[str], is_array: bool
) -> tuple[tuple[ExitRule, ...], tuple[str, ...]]:
    """The rules, and what of them has no effect, in words. `containers`: each is a task, in the order of ranks."""
    if value is None:
        return (), ()
    policy = take_mapping(value, where)
    POD_FAILURE_POLICY.check(policy, where)
    rules: list[ExitRule] = []
    notes: list[str] = []
    for at, given in _entries(policy.get("rules"), f"{where}.rules"):
        POD_RULE.check(given, at)
        named = take_choice(given.get("action"), tuple(POD_ACTIONS), f"{at}.action")
        if given.get("onExitCodes") is None:
            notes += _condition_notes(given, at)
            continue
        if is_array and named in ("FailJob", "Ignore"):
            notes.append(_array_note(named, at))
        rules.append(_exit_codes(given["onExitCodes"], f"{at}.onExitCodes", POD_ACTIONS[named], containers))
    return tuple(rules), tuple(notes)


def _array_note(named: str, at: str) -> str:
    meant = {
        "FailJob": "an index that it fits is not tried again, and the others go on",
        "Ignore": "an index that it fits is tried again, and that counts as a retry",
    }
    return f"{at}.action is {named}, and the tasks are independent here: {meant[named]}"


def _condition_notes(given: dict[str, Any], at: str) -> list[str]:
    conditions = [take_mapping(one, f"{at}.onPodConditions") for one in take_list(given.get("onPodConditions"), at)]
    if not conditions:
        raise Rejected(f"{at} has neither onExitCodes nor onPodConditions; give one of them")
    others = [shorten(str(one.get("type"))) for one in conditions if one.get("type") != "DisruptionTarget"]
    return (
        [f"{at}.onPodConditions {', '.join(others)} has no effect: processes have no such condition"] if others else []
    )


def _exit_codes(value: object, where: str, action: ExitAction, containers: Sequence[str]) -> ExitRule:
    given = take_mapping(value, where)
    EXIT_CODES.check(given, where)
    operator = take_choice(given.get("operator"), ("In", "NotIn"), f"{where}.operator")
    values = take_list(given.get("values"), f"{where}.values")
    if not 0 < len(values) <= CODES_MAX:
        raise Rejected(f"{where}.values has {len(values)} exit codes; give 1 to {CODES_MAX}")
    low = 1 if operator == "In" else 0
    codes = [whole_number(one, f"{where}.values[{number}]", low=low, high=255) for number, one in enumerate(values)]
    return ExitRule(action, tuple(sorted(set(codes))), operator == "NotIn", _ranks(given, where, containers))


def _ranks(given: dict[str, Any], where: str, containers: Sequence[str]) -> tuple[int, int] | None:
    if given.get("containerName") is None:
        return None
    name = take_text(given["containerName"], f"{where}.containerName")
    if name not in containers:
        raise Rejected(f"{where}.containerName {shorten(name)!r} is none of the pod's: {', '.join(containers)}")
    return None if len(containers) == 1 else (containers.index(name), containers.index(name))


def read_set_rules(
    value: object, where: str, *, ranks: dict[str, tuple[int, int]], own: dict[str, tuple[ExitRule, ...]]
) -> tuple[tuple[ExitRule, ...], tuple[str, ...]]:
    """Of a JobSet. `ranks`: those of each replicated Job; `own`: what the pod failure policy of each says."""
    rules: list[ExitRule] = []
    notes: list[str] = []
    for at, given in _entries(value, where):
        SET_RULE.check(given, at)
        action = SET_ACTIONS[take_choice(given.get("action"), tuple(SET_ACTIONS), f"{at}.action")]
        reasons = _reasons(given.get("onJobFailureReasons"), f"{at}.onJobFailureReasons")
        if not {"BackoffLimitExceeded", "PodFailurePolicy"} & set(reasons):
            notes.append(f"{at} has no effect: {', '.join(reasons)} ends a job here whatever is said of it")
        for name in _targets(given.get("targetReplicatedJobs"), f"{at}.targetReplicatedJobs", ranks):
            rules += _for_job(action, reasons, ranks[name], own[name])
    return tuple(rules), tuple(notes)


def _for_job(
    action: ExitAction, reasons: Iterable[str], ranks: tuple[int, int], own: tuple[ExitRule, ...]
) -> list[ExitRule]:
    """A Job fails by its pod failure policy, or because a pod has failed too often."""
    fatal = [rule for rule in own if rule.action is ExitAction.FAIL]
    rules = [replace(rule, action=action, ranks=ranks) for rule in fatal] if "PodFailurePolicy" in reasons else []
    if "BackoffLimitExceeded" in reasons:
        listed = () if rules else tuple(code for rule in fatal if not rule.is_other for code in rule.codes)
        rules.append(ExitRule(action, listed, bool(listed), ranks))
    return rules


def _reasons(value: object, where: str) -> tuple[str, ...]:
    """Nothing said: all of them."""
    given = take_list(value, where)
    return tuple(take_choice(one, REASONS, f"{where}[{number}]") for number, one in enumerate(given)) or REASONS


def _targets(value: object, where: str, ranks: dict[str, tuple[int, int]]) -> tuple[str, ...]:
    named = [take_text(one, f"{where}[{number}]") for number, one in enumerate(take_list(value, where))]
    for name in named:
        if name not in ranks:
            raise Rejected(f"{where} names {shorten(name)!r}, which is none of the replicated Jobs: {', '.join(ranks)}")
    return tuple(named) or tuple(ranks)


def _entries(value: object, where: str) -> list[tuple[str, dict[str, Any]]]:
    given = take_list(value, where)
    if len(given) > RULES_MAX:
        raise Rejected(f"{where} has {len(given)} entries; at most {RULES_MAX}")
    return [(f"{where}[{number}]", take_mapping(one, f"{where}[{number}]")) for number, one in enumerate(given)]
