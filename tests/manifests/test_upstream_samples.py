"""The samples that the authors of JobSet, the training operator and the MPI operator publish are read, or refused by a
message that names the field."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from cluster.binaries import find_go
from cluster.recipes import recipe_of
from swell.errors import Rejected
from swell.manifests import Context, read_manifests

pytestmark = pytest.mark.cluster  # the modules come with the test cluster's programs
JOBSET, TRAINING, MPI = "jobset", "training-operator", "mpi-operator"
#: module, file → its jobs as (name, tasks) on this machine
READ = {
    (TRAINING, "examples/pytorch/simple.yaml"): [("pytorch-simple", 2)],
    (TRAINING, "examples/pytorch/cpu-demo/demo.yaml"): [("torchrun-cpu", 2)],
    (TRAINING, "examples/pytorch/deepspeed-demo/pytorch_deepspeed_demo.yaml"): [("pytorch-deepspeed-demo", 2)],
    (TRAINING, "examples/pytorch/elastic/echo/echo.yaml"): [("elastic-example-echo", 1)],
    (TRAINING, "examples/pytorch/elastic/imagenet/imagenet.yaml"): [("elastic-example-imagenet", 1)],
    (MPI, "examples/v2beta1/pi/pi.yaml"): [("pi", 1)],
    (MPI, "examples/v2beta1/tensorflow-benchmarks/tensorflow-benchmarks.yaml"): [("tensorflow-benchmarks", 1)],
    (MPI, "examples/v2beta1/horovod/tensorflow-mnist.yaml"): [("tensorflow-mnist", 1)],
}
NO_COMMAND = "spec.mpiReplicaSpecs.Launcher.template.spec.containers[0] has no command"
NO_KIND = "nothing here can run 'apiVersion: kubeflow.org/v1, kind: {}'"
#: module, file → how the refusal begins, after its line
REFUSED = {
    (JOBSET, "config/samples/batch_v1alpha2_jobset.yaml"): "spec must be a mapping of names to values, but is empty",
    (MPI, "examples/v2beta1/pi/pi-mpich.yaml"): NO_COMMAND,
    (MPI, "examples/v2beta1/pi/pi-intel.yaml"): NO_COMMAND,
    (TRAINING, "examples/mpi/tensorflow-mnist.yaml"): NO_KIND.format("MPIJob"),
    (TRAINING, "examples/mpi/tensorflow-mnist-elastic.yaml"): NO_KIND.format("MPIJob"),
    (TRAINING, "examples/jax/cpu-demo/demo.yaml"): NO_KIND.format("JAXJob"),
    (TRAINING, "examples/xgboost/xgboostjob.yaml"): NO_KIND.format("XGBoostJob"),
    (TRAINING, "examples/pytorch/elastic/etcd.yaml"): "document 1 of 3: nothing here can run 'apiVersion: v1, kind: S",
}
#: created as they are on Kubernetes, where the kind has an operator
CREATED = [key for key in READ if key[0] == TRAINING]


@cache
def module(name: str) -> Path:
    """The folder of a pinned Go module; it is fetched if it is not there, and a test fails where that cannot be."""
    wanted = f"{recipe_of(name).module}@v{recipe_of(name).version}"
    done = subprocess.run(
        [find_go(), "mod", "download", "-json", wanted], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"{wanted} cannot be had: {done.stdout}{done.stderr}"
    return Path(json.loads(done.stdout)["Dir"])


def read(key: tuple[str, str], *, on_cluster: bool = False) -> list[tuple[str, int]]:
    text = (module(key[0]) / key[1]).read_text()
    found = read_manifests(text, Context(workdir="/home/ann", on_cluster=on_cluster))
    return [(one.spec.name, one.spec.tasks_total) for one in found]


@pytest.mark.parametrize("key", READ, ids=str)
def test_a_published_sample_is_read(key):
    assert read(key) == READ[key]


@pytest.mark.parametrize("key", CREATED, ids=str)
def test_a_published_sample_is_read_the_same_for_a_cluster(key):
    assert read(key, on_cluster=True) == READ[key]


#: of the MPI operator, whose images know what to run → their pods on Kubernetes
GANGS = {
    (MPI, "examples/v2beta1/pi/pi.yaml"): [("pi", 3)],
    (MPI, "examples/v2beta1/pi/pi-mpich.yaml"): [("pi", 3)],
    (MPI, "examples/v2beta1/pi/pi-intel.yaml"): [("pi", 3)],
    (MPI, "examples/v2beta1/tensorflow-benchmarks/tensorflow-benchmarks.yaml"): [("tensorflow-benchmarks", 3)],
    (MPI, "examples/v2beta1/horovod/tensorflow-mnist.yaml"): [("tensorflow-mnist", 3)],
}


@pytest.mark.parametrize("key", GANGS, ids=str)
def test_a_published_mpijob_is_a_gang_of_its_pods_on_a_cluster(key):
    assert read(key, on_cluster=True) == GANGS[key]


@pytest.mark.parametrize("key", REFUSED, ids=str)
def test_a_published_sample_that_cannot_be_run_is_refused_by_the_name_of_its_field(key):
    with pytest.raises(Rejected) as refusal:
        read(key)
    said = str(refusal.value)
    assert REFUSED[key] in said, said
