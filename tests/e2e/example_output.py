"""What does each task of an example print? The same on every engine, but for addresses and devices."""

from __future__ import annotations

CUTS = (0, 66, 133, 200)  # of the part of each of five Jobs, among its three completions

Tasks = tuple[tuple[str, ...], ...]  #: of each task its lines, sorted


def _part(job: int, completion: int) -> tuple[str, ...]:
    low, high = CUTS[completion], CUTS[completion + 1]
    return (f"worker {job} {completion} {job * 200 + low + 1}-{job * 200 + high}",)


#: `{master}`: where the tasks meet; `{gpu}`: the device that the only task has
OUTPUT: dict[str, Tasks] = {
    "aichor/scenario-1.yaml": tuple((f"worker {job} 0 {job * 200 + 1}-{job * 200 + 200}",) for job in range(5)),
    "aichor/scenario-2.yaml": (
        *((f"worker {job} 0 {300 + job * 100 + 1}-{300 + job * 100 + 100}",) for job in range(7)),
        ("worker-heavy 0 0 1-300",),
    ),
    "aichor/scenario-3.yaml": tuple(_part(job, completion) for job in range(5) for completion in range(3)),
    "aichor/scenario-4.yaml": tuple(_part(job, completion) for completion in range(3) for job in range(5)),
    "aichor/pytorch.yaml": (("rank 0 of 2: all have 3",), ("rank 1 of 2: all have 3",)),
    "aichor/jax.yaml": tuple((f"process {process} of 2, coordinator {{master}}",) for process in range(2)),
    "aichor/xgboost.yaml": tuple((f"rank {rank} of 3, workers at {{master}}",) for rank in range(3)),
    "kubernetes/pod.yaml": (("hello from GPU {gpu}",),),
    "kubernetes/job.yaml": tuple((f"case {index}",) for index in range(10)),
    "kubernetes/pytorchjob.yaml": (("all 2 have come", "rank 1 is here", "rank 2 is here"), (), ()),
    "kubernetes/jobset.yaml": (
        tuple(f"job {job} of 2, pod {pod}, {job + 1} overall" for job in range(2) for pod in range(2)),
        *((),) * 4,
    ),
    "kubernetes/trainjob.yaml": tuple((f"node {node} of 2, at {{master}}",) for node in range(2)),
    "mpi/mpijob.yaml": (("rank 0 of 2", "rank 1 of 2"),),
    "mpi/minicluster.yaml": (tuple(f"task {rank} of 4" for rank in range(4)),),
    "native/array.yaml": tuple((f"task {index} of 6",) for index in range(6)),
    "native/roles.yaml": (
        ("hello from the reader, rank 0 of 3",),
        *((f"hello from a trainer, rank {rank} of 3 with 1 GPU",) for rank in (1, 2)),
    ),
}


def expected(example: str, **places: str) -> Tasks:
    return tuple(tuple(line.format(**places).rstrip() for line in lines) for lines in OUTPUT[example])
