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
NO_COMMAND_OF_TORCH = "spec.pytorchReplicaSpecs.Master.template.spec.containers[0] has no command"
NO_KIND = "nothing here can run 'apiVersion: kubeflow.org/v1, kind: {}'"
NOT_OF_A_JOB = "nothing here can run 'apiVersion: v1, kind: {}'"
IRIS, RABIT = "examples/xgboost/xgboost-dist/xgboostjob_v1_iris", "examples/xgboost/smoke-dist/xgboostjob"
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
    (JOBSET, "config/samples/jobset_v1alpha1_configuration.yaml"): (
        "nothing here can run 'apiVersion: jobset.x-k8s.io/v1alpha1, kind: Configuration'"
    ),
    (TRAINING, "examples/jax/jax-dist-spmd-mnist/jaxjob_dist_spmd_mnist_gloo.yaml"): NO_KIND.format("JAXJob"),
    (TRAINING, "examples/paddlepaddle/simple-cpu.yaml"): NO_KIND.format("PaddleJob"),
    (TRAINING, "examples/paddlepaddle/simple-gpu.yaml"): NO_KIND.format("PaddleJob"),
    (TRAINING, "examples/pytorch/mnist/v1/pytorch_job_mnist_gloo.yaml"): NO_COMMAND_OF_TORCH,
    (TRAINING, "examples/pytorch/mnist/v1/pytorch_job_mnist_mpi.yaml"): NO_COMMAND_OF_TORCH,
    (TRAINING, "examples/pytorch/mnist/v1/pytorch_job_mnist_nccl.yaml"): NO_COMMAND_OF_TORCH,
    (TRAINING, "examples/pytorch/smoke-dist/pytorch_job_sendrecv.yaml"): NO_COMMAND_OF_TORCH,
    (TRAINING, "examples/tensorflow/simple.yaml"): NO_KIND.format("TFJob"),
    (TRAINING, "examples/tensorflow/dist-mnist/tf_job_mnist.yaml"): NO_KIND.format("TFJob"),
    (TRAINING, "examples/tensorflow/distribution_strategy/multi_worker_tfjob.yaml"): NO_KIND.format("TFJob"),
    (TRAINING, "examples/tensorflow/distribution_strategy/pvc.yaml"): NOT_OF_A_JOB.format("PersistentVolumeClaim"),
    (TRAINING, "examples/tensorflow/mnist_with_summaries/tf_job_mnist.yaml"): NO_KIND.format("TFJob"),
    (TRAINING, "examples/tensorflow/mnist_with_summaries/tfevent-volume/tfevent-pv.yaml"): (
        NOT_OF_A_JOB.format("PersistentVolume")
    ),
    (TRAINING, "examples/tensorflow/mnist_with_summaries/tfevent-volume/tfevent-pvc.yaml"): (
        NOT_OF_A_JOB.format("PersistentVolumeClaim")
    ),
    (TRAINING, "examples/xgboost/lightgbm-dist/xgboostjob_v1_lightgbm_dist_training.yaml"): (
        NO_KIND.format("XGBoostJob")
    ),
    (TRAINING, f"{RABIT}_v1_rabit_test.yaml"): NO_KIND.format("XGBoostJob"),
    (TRAINING, f"{RABIT}_v1alpha1_rabit_test.yaml"): NO_KIND.format("XGBoostJob"),
    (TRAINING, f"{IRIS}_predict.yaml"): NO_KIND.format("XGBoostJob"),
    (TRAINING, f"{IRIS}_predict_local.yaml"): NO_KIND.format("XGBoostJob"),
    (TRAINING, f"{IRIS}_train.yaml"): NO_KIND.format("XGBoostJob"),
    (TRAINING, f"{IRIS}_train_local.yaml"): NO_KIND.format("XGBoostJob"),
}
#: where a module has its samples
FOLDERS = {JOBSET: "config/samples", TRAINING: "examples", MPI: "examples"}
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


@pytest.mark.parametrize("name", FOLDERS)
def test_every_sample_of_a_module_is_named_here(name):
    folder = module(name) / FOLDERS[name]
    found = {
        (name, str(file.relative_to(module(name))))
        for file in folder.rglob("*")
        if file.suffix in (".yaml", ".yml", ".json")
    }
    assert found == {key for key in (*READ, *REFUSED) if key[0] == name}


@pytest.mark.parametrize("key", READ, ids=str)
def test_a_published_sample_is_read(key):
    assert read(key) == READ[key]


@pytest.mark.parametrize("key", CREATED, ids=str)
def test_a_published_sample_is_read_the_same_for_a_cluster(key):
    assert read(key, on_cluster=True) == READ[key]


#: whose images know what to run → their pods on Kubernetes
GANGS = {
    (TRAINING, "examples/pytorch/mnist/v1/pytorch_job_mnist_gloo.yaml"): [("pytorch-dist-mnist-gloo", 2)],
    (TRAINING, "examples/pytorch/mnist/v1/pytorch_job_mnist_mpi.yaml"): [("pytorch-dist-mnist-mpi", 2)],
    (TRAINING, "examples/pytorch/mnist/v1/pytorch_job_mnist_nccl.yaml"): [("pytorch-dist-mnist-nccl", 2)],
    (TRAINING, "examples/pytorch/smoke-dist/pytorch_job_sendrecv.yaml"): [("pytorch-dist-basic-sendrecv", 4)],
    (MPI, "examples/v2beta1/pi/pi.yaml"): [("pi", 3)],
    (MPI, "examples/v2beta1/pi/pi-mpich.yaml"): [("pi", 3)],
    (MPI, "examples/v2beta1/pi/pi-intel.yaml"): [("pi", 3)],
    (MPI, "examples/v2beta1/tensorflow-benchmarks/tensorflow-benchmarks.yaml"): [("tensorflow-benchmarks", 3)],
    (MPI, "examples/v2beta1/horovod/tensorflow-mnist.yaml"): [("tensorflow-mnist", 3)],
}


@pytest.mark.parametrize("key", GANGS, ids=str)
def test_a_published_sample_without_a_command_is_a_gang_of_its_pods_on_a_cluster(key):
    assert read(key, on_cluster=True) == GANGS[key]


@pytest.mark.parametrize("key", REFUSED, ids=str)
def test_a_published_sample_that_cannot_be_run_is_refused_by_the_name_of_its_field(key):
    with pytest.raises(Rejected) as refusal:
        read(key)
    said = str(refusal.value)
    assert REFUSED[key] in said, said
