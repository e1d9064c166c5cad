"""What does each field of a foreign document mean, and how is it written?

Beside the tables of fields that the readers check documents with, by the mapping that a field is in: the type of its
value in a JSON Schema, and one sentence. A field that is itself such a mapping has its type from there.
"""

from __future__ import annotations

from swell.model.kubernetes_quantity import GPU
from swell.model.placement_fields import REQUIRED

Words = dict[str, tuple[str, str]]  #: a field → type of its value, and what it means

METADATA: Words = {
    "name": ("text", "Name of the object."),
    "generateName": ("text", "Beginning of a name that is completed when it is created."),
    "namespace": ("text", "Namespace of the object, on Kubernetes."),
    "annotations": ("map", "Names and values; those under swell.dev/ say what Kubernetes has no field for."),
    "labels": ("map", "Names and values, which selectors find the object by."),
}

# -- pods ----------------------------------------------------------------------------------------------------

TEMPLATE: Words = {
    "metadata": ("map", "Labels and annotations of the pods."),
    "spec": ("map", "What the pods are."),
}
POD: Words = {
    "containers": ("list", "The programs of the pod; on a machine each is a task."),
    "restartPolicy": ("text", "OnFailure and Always try it again after a failure, Never does not."),
    "activeDeadlineSeconds": ("amount", "Time limit of one attempt in seconds."),
    "terminationGracePeriodSeconds": ("amount", "Seconds between SIGTERM and SIGKILL."),
    "priority": ("amount", "A higher number goes first."),
    "priorityClassName": ("text", "Name of a priority, which a cluster knows the number of."),
    "nodeSelector": ("map", "Labels that a node must have."),
    "affinity": ("map", "Rules for nodes, and for which pods may share one."),
    "tolerations": ("list", "Taints of nodes that are tolerated."),
    "workloadRef": ("map", "The pod group of a Workload that the pod belongs to."),
    "schedulingGroup": ("map", "The PodGroup that the pod belongs to."),
}
CONTAINER: Words = {
    "name": ("text", "Name of the container, and of its role."),
    "command": ("words", "The program and its arguments; without it, on Kubernetes, the image's own."),
    "args": ("words", "Words behind the command."),
    "env": ("list", "Variables of the program."),
    "workingDir": ("text", "Working directory; on a machine relative to the caller's."),
    "resources": ("map", "What the container asks for."),
}
VARIABLE: Words = {
    "name": ("text", "Name of the variable."),
    "value": ("amount", "Its value; $(NAME) is that of a variable before it."),
    "valueFrom": ("map", "Where its value comes from, instead of value."),
}
VALUE_FROM: Words = {
    "fieldRef": ("map", "A field of the pod."),
    "secretKeyRef": ("map", "A Secret; on a machine the variable of this name in the caller's environment."),
    "configMapKeyRef": ("map", "A ConfigMap; on a machine the variable of this name in the caller's environment."),
}
FIELD_REF: Words = {"fieldPath": ("text", "The field, as in metadata.name or metadata.labels['NAME'].")}
KEY_REF: Words = {
    "name": ("text", "Name of the Secret or ConfigMap."),
    "key": ("text", "Which of its values."),
    "optional": ("truth", "true: the job can do without."),
}
RESOURCES: Words = {
    "requests": ("map", "The least that it needs; what it is planned with."),
    "limits": ("map", "The most that it may use; of GPUs above the request, a range."),
}
AMOUNTS: Words = {
    "cpu": ("amount", "CPUs, as in 500m or 2."),
    "memory": ("amount", "Memory, as in 512Mi or 8Gi."),
    GPU: ("amount", "Whole GPUs."),
}
TOLERATION: Words = {
    "key": ("text", "Key of the taint; without it any taint is tolerated."),
    "operator": ("text", "Equal, or Exists for any value."),
    "value": ("text", "Value of the taint, for Equal."),
    "effect": ("text", "NoSchedule, PreferNoSchedule or NoExecute; without it all of them."),
}
AFFINITY: Words = {
    "nodeAffinity": ("map", "Which nodes its pods may be on."),
    "podAffinity": ("map", "Which pods must be on the same node."),
    "podAntiAffinity": ("map", "Which pods must not be on the same node."),
}
KIND_OF_AFFINITY: Words = {REQUIRED: ("list", "Rules that are kept when a pod is placed.")}
NODE_SELECTOR: Words = {"nodeSelectorTerms": ("list", "A node must fulfil one of them.")}
NODE_TERM: Words = {
    "matchExpressions": ("list", "Conditions for labels, all of which must hold."),
    "matchFields": ("list", "Conditions for fields, of which there is metadata.name."),
}
EXPRESSION: Words = {
    "key": ("text", "The label, or the field."),
    "operator": ("text", "In, NotIn, Exists, DoesNotExist, and for nodes Gt or Lt."),
    "values": ("list", "What the value is compared with."),
}
POD_TERM: Words = {
    "labelSelector": ("map", "Which pods are meant."),
    "topologyKey": ("text", "Label that tells one place from another: kubernetes.io/hostname is a node."),
    "namespaces": ("list", "Namespaces of the pods that are meant; its own when left out."),
    "namespaceSelector": ("map", "The same, by labels of namespaces."),
    "matchLabelKeys": ("list", "Labels whose value must be that of the pod itself."),
    "mismatchLabelKeys": ("list", "Labels whose value must not be that of the pod itself."),
}
LABEL_SELECTOR: Words = {
    "matchLabels": ("map", "Labels and values that a pod must have."),
    "matchExpressions": ("list", "Conditions for labels, all of which must hold."),
}

# -- kinds of Kubernetes -------------------------------------------------------------------------------------

JOB: Words = {
    "template": ("map", "What its pods are."),
    "completions": ("amount", "Above 1: an array of so many independent tasks."),
    "parallelism": ("amount", "Tasks at once; 1 when left out."),
    "completionMode": ("text", "Indexed or NonIndexed; tasks are numbered with either."),
    "backoffLimit": ("amount", "How many failures of all tasks together are tried again; 6 when left out."),
    "backoffLimitPerIndex": ("amount", "How many failures of each index are tried again."),
    "activeDeadlineSeconds": ("amount", "Time limit of one attempt in seconds."),
    "podFailurePolicy": ("map", "What becomes of a failure, by its exit code."),
    "suspend": ("truth", "true: the job is held."),
}
POD_FAILURE_POLICY: Words = {"rules": ("list", "The first that fits a failure counts.")}
POD_RULE: Words = {
    "action": ("text", "FailJob, FailIndex, Ignore or Count."),
    "onExitCodes": ("map", "The exit codes that it is about."),
    "onPodConditions": ("list", "Conditions of a pod; those about disruption are kept without a rule."),
}
EXIT_CODES: Words = {
    "containerName": ("text", "Of which container; of any when left out."),
    "operator": ("text", "In or NotIn."),
    "values": ("list", "Exit codes, at most 255."),
}
RUN_POLICY: Words = {
    "activeDeadlineSeconds": ("amount", "Time limit of one attempt in seconds."),
    "backoffLimit": ("amount", "How often it is tried again after a failure."),
    "suspend": ("truth", "true: the job is held."),
}
REPLICA: Words = {
    "replicas": ("amount", "How many pods of this type; 1 when left out."),
    "restartPolicy": ("text", "Always, OnFailure, Never, or of a PyTorchJob ExitCode."),
    "template": ("map", "What its pods are."),
}
PYTORCHJOB: Words = {
    "pytorchReplicaSpecs": ("map", "The Master and the Workers, which start together."),
    "elasticPolicy": ("map", "How many Workers there may be."),
    "nprocPerNode": ("amount", "Processes of each pod: a number, auto, gpu or cpu."),
    "runPolicy": ("map", "How long it may run, and how often it is tried again."),
}
TORCH_TYPES: Words = {
    "Master": ("map", "Rank 0."),
    "Worker": ("map", "The other ranks."),
}
ELASTIC: Words = {
    "minReplicas": ("amount", "The fewest Workers."),
    "maxReplicas": ("amount", "The most Workers."),
    "nProcPerNode": ("amount", "Processes of each pod."),
}
JOBSET: Words = {
    "replicatedJobs": ("list", "Its Jobs by name, all of which start together."),
    "successPolicy": ("map", "Which Jobs must succeed."),
    "failurePolicy": ("map", "How often it is started again, and after which failures."),
    "startupPolicy": ("map", "The order in which its Jobs start on Kubernetes."),
    "suspend": ("truth", "true: the job is held."),
    "coordinator": ("map", "The pod whose address all pods are told."),
    "network": ("map", "Names of pods, on Kubernetes."),
}
REPLICATED_JOB: Words = {
    "name": ("text", "Name of these Jobs, and of their role."),
    "replicas": ("amount", "How many such Jobs; 1 when left out."),
    "template": ("map", "What each of these Jobs is."),
    "dependsOn": ("list", "Jobs that are there before these start, on Kubernetes."),
}
JOB_TEMPLATE: Words = {
    "metadata": ("map", "Labels and annotations of the Jobs."),
    "spec": ("map", "What the Jobs are."),
}
DEPENDENCY: Words = {
    "name": ("text", "Name of the replicated Job that comes first."),
    "status": ("text", "Ready, when its pods run; Complete is refused."),
}
SUCCESS: Words = {
    "operator": ("text", "All or Any."),
    "targetReplicatedJobs": ("list", "The replicated Jobs that count; all when left out."),
}
FAILURE: Words = {
    "maxRestarts": ("amount", "How often the whole set is started again."),
    "rules": ("list", "The first that fits the failure of a Job counts."),
}
SET_RULE: Words = {
    "action": ("text", "FailJobSet, RestartJobSet or RestartJobSetAndIgnoreMaxRestarts."),
    "onJobFailureReasons": ("list", "Why a Job failed: BackoffLimitExceeded, PodFailurePolicy and others."),
    "targetReplicatedJobs": ("list", "Of which replicated Jobs; of all when left out."),
}
STARTUP: Words = {"startupPolicyOrder": ("text", "AnyOrder or InOrder.")}
COORDINATOR: Words = {
    "replicatedJob": ("text", "The replicated Job that it is in."),
    "jobIndex": ("amount", "The number of its Job; 0 when left out."),
    "podIndex": ("amount", "The number of the pod in its Job; 0 when left out."),
}
MPIJOB: Words = {
    "slotsPerWorker": ("amount", "Ranks that a Worker has room for; 1 when left out."),
    "runLauncherAsWorker": ("truth", "true: ranks are started beside the Launcher, too."),
    "mpiReplicaSpecs": ("map", "The Launcher and the Workers, which start together."),
    "runPolicy": ("map", "How long it may run, and how often it is tried again."),
    "mpiImplementation": ("text", "OpenMPI, Intel or MPICH."),
}
MPI_TYPES: Words = {
    "Launcher": ("map", "The pod whose command starts the ranks."),
    "Worker": ("map", "The pods that the ranks run in."),
}
TRAINJOB: Words = {
    "runtimeRef": ("map", "The runtime, of which torch-distributed is known."),
    "trainer": ("map", "What each node runs."),
    "suspend": ("truth", "true: the job is held."),
}
RUNTIME: Words = {"name": ("text", "Name of the runtime.")}
TRAINER: Words = {
    "command": ("words", "The program and its arguments."),
    "args": ("words", "Words behind the command."),
    "env": ("list", "Variables of the program."),
    "numNodes": ("amount", "Nodes, each of which is a task; 1 when left out."),
    "numProcPerNode": ("amount", "Processes that torchrun starts on each node: a number, auto, gpu or cpu."),
    "resourcesPerNode": ("map", "What each node asks for."),
}
MINICLUSTER: Words = {
    "size": ("amount", "Pods; 1 when left out."),
    "minSize": ("amount", "The fewest pods of a Flux instance; here all start together."),
    "maxSize": ("amount", "The most pods of a Flux instance."),
    "tasks": ("amount", "Ranks that mpirun starts; 1 when left out."),
    "containers": ("list", "One container, with the command that is run."),
    "deadlineSeconds": ("amount", "Time limit of one attempt in seconds."),
}
MINICLUSTER_CONTAINER: Words = {
    "name": ("text", "Name of the container."),
    "command": ("text", "The program and its arguments, split as a shell does."),
    "environment": ("map", "Variables: names and values."),
    "launcher": ("truth", "true: the command starts the ranks itself."),
    "resources": ("map", "What each pod asks for."),
    "runFlux": ("truth", "true: Flux runs in it, which is so when left out."),
    "workingDir": ("text", "Working directory; on a machine relative to the caller's."),
}

# -- AIchor --------------------------------------------------------------------------------------------------

AICHOR: Words = {
    "apiVersion": ("text", "Version of the manifest."),
    "kind": ("text", "Always AIchorManifest."),
    "name": ("text", "Of the experiment; without it, that of its image."),
    "builder": ("map", "How the image is built: swell submit --build."),
    "spec": ("map", "What is run."),
}
BUILDER: Words = {
    "image": ("text", "Name of the image; the same as spec.image."),
    "dockerfile": ("text", "Its Dockerfile; Dockerfile when left out."),
    "context": ("text", "The folder that is built; . when left out."),
    "buildArgs": ("map", "Arguments of the build: names and values."),
    "target": ("text", "Which stage is built."),
    "skipBuild": ("map", "Whether the image that is there is taken."),
}
SKIP_BUILD: Words = {"enabled": ("truth", "true: the image that is there is taken.")}
AICHOR_SPEC: Words = {
    "operator": ("text", "jobset, pytorch, jax or xgboost."),
    "image": ("text", "The image that its tasks run in, on Kubernetes and with --build."),
    "command": ("any", "A line for a shell, or a list of words."),
    "types": ("map", "Kinds of tasks by name. Of pytorch and xgboost: Master and Worker; of jax: Worker."),
    "tensorboard": ("map", "Whether TensorBoard runs beside it."),
    "storage": ("map", "Volumes, on Kubernetes."),
    "env": ("map", "Variables of every task: names and values."),
    "timeout": ("amount", "Time limit, as in 6h or 1d."),
    "activeDeadlineSeconds": ("amount", "Time limit in seconds; timeout wins."),
    "restartPolicy": ("map", "How often it is started again."),
}
AICHOR_TYPE: Words = {
    "count": ("amount", "Jobs of this type; 1 when left out."),
    "completions": ("amount", "Tasks of each Job; 1 when left out."),
    "parallelisms": ("amount", "Tasks of each Job at once; 1 when left out."),
    "resources": ("map", "What each task asks for."),
}
AICHOR_RESOURCES: Words = {
    "cpus": ("amount", "CPUs, as in 4 or 0.5."),
    "ramRatio": ("amount", "GB of memory for each CPU."),
    "memory": ("amount", "GB of memory, instead of ramRatio."),
    "shmSizeGB": ("amount", "GB of /dev/shm, on Kubernetes and with --build."),
    "cpuLimitRatio": ("amount", "The most CPUs, as a multiple of cpus; 2 when left out."),
    "accelerators": ("map", "GPUs."),
    "extraSelectors": ("map", "Labels of the nodes of a cluster that it may go to."),
    "extraTolerations": ("list", "Taints of nodes of a cluster that it tolerates, as of a pod."),
}
ACCELERATORS: Words = {"gpu": ("map", "GPUs of each task.")}
AICHOR_GPU: Words = {
    "count": ("amount", "How many; none when left out."),
    "type": ("text", "gpu, which is a whole one; others are refused."),
    "product": ("text", "On Kubernetes the label of the GPUs, nvidia.com/gpu.product."),
}
STORAGE: Words = {
    "sharedVolume": ("map", "A volume that is made for the job, and deleted when it has ended."),
    "attachExistingPVCs": ("list", "Claims that are there."),
}
SHARED_VOLUME: Words = {
    "mountPoint": ("text", "Where its tasks see it."),
    "sizeGB": ("amount", "Its size in GB."),
    "storageClass": ("text", "Its class; the cluster's default when left out."),
    "accessMode": ("text", "ReadWriteMany when left out; or ReadWriteOnce, ReadOnlyMany."),
}
EXISTING_CLAIM: Words = {
    "name": ("text", "Name of the claim."),
    "mountPoint": ("text", "Where its tasks see it."),
}
RESTART_POLICY: Words = {"backoffLimit": ("amount", "So often after a failure; preemptions do not count.")}
TENSORBOARD: Words = {"enabled": ("truth", "true: it reads AICHOR_TENSORBOARD_PATH.")}
