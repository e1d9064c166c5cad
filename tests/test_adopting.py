"""What came by kubectl: what Swell can do for it, and what not."""

from __future__ import annotations

import pytest

from specs import spec
from swell.adopting import refuse_shares, rigid
from swell.errors import Rejected
from swell.model.job import JobSpec, Role
from swell.model.resources import Resources

SHARES = spec(roles=(Role("worker", ("true",), Resources(1000, 0, 0, 6144), 1),))
WHOLE = spec(roles=(Role("worker", ("true",), Resources(1000, 0, 1, 6144), 1),))


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet", "PodGroup"])
def test_pods_that_are_there_cannot_be_told_which_gpu_they_share(kind: str) -> None:
    with pytest.raises(Rejected) as refused:
        refuse_shares(kind, SHARES)
    assert str(refused.value) == (
        f"swell.dev/gpu-memory asks for a share of a GPU, which a {kind} can have only through `swell submit -f`: "
        "nothing can be added to pods that kubectl has made; submit it, or leave the annotation out and ask for "
        "nvidia.com/gpu"
    )


def test_a_pytorchjob_is_suspended_and_changed_and_whole_gpus_need_nothing() -> None:
    assert [is_refused("PyTorchJob", SHARES), is_refused("Pod", WHOLE)] == [False, False]


@pytest.mark.parametrize("kind", ["Pod", "Job", "JobSet"])
def test_what_cannot_be_made_again_has_one_width_and_says_so(kind: str) -> None:
    elastic = spec(width_min=1, width_max=4, notes=("before",))
    note = (
        f"it came by kubectl as a {kind}, whose size cannot be changed while it exists: it runs at 1, and the range "
        "1..4 has no effect; to have it resized, delete it with kubectl and submit it with `swell submit -f`"
    )
    assert rigid(kind, elastic) == spec(notes=("before", note))


def test_a_pytorchjob_keeps_its_range_and_what_asks_for_none_is_told_nothing() -> None:
    elastic = spec(width_min=1, width_max=4)
    assert [rigid("PyTorchJob", elastic), rigid("Job", spec())] == [elastic, spec()]


def is_refused(kind: str, asked: JobSpec) -> bool:
    try:
        refuse_shares(kind, asked)
    except Rejected:
        return True
    return False
