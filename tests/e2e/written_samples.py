"""Manifests as the documentation of Kubernetes, JobSet and Kueue has them people write, in words of our own.

The modules that the tests pin carry no samples of these; each is small, and names images that nobody pulls here.
"""

from __future__ import annotations

INDEXED_JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: indexed}
spec:
  completions: 3
  parallelism: 3
  completionMode: Indexed
  backoffLimitPerIndex: 1
  template:
    spec:
      restartPolicy: Never
      containers:
        - {name: worker, image: docker.io/library/busybox, command: [sh, -c, "echo $JOB_COMPLETION_INDEX; sleep 600"]}
"""

CRON_JOB = """\
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "* * * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers: [{name: report, image: docker.io/library/busybox:1.28, command: [/bin/sh, -c, date; sleep 600]}]
"""

STATEFUL_SET = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  serviceName: web
  replicas: 3
  podManagementPolicy: Parallel
  template:
    metadata:
      labels: {app: web, scheduling.x-k8s.io/pod-group: web, fluence.group-size: "3"}
    spec:
      containers: [{name: nginx, image: registry.k8s.io/nginx-slim:0.24, ports: [{containerPort: 80, name: web}]}]
"""

JOBSET_OF_TWO_ROLES = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: two-roles}
spec:
  successPolicy: {operator: All, targetReplicatedJobs: [driver]}
  failurePolicy: {maxRestarts: 3}
  replicatedJobs:
    - name: driver
      template:
        spec:
          template:
            spec:
              restartPolicy: Never
              containers: [{name: driver, image: docker.io/library/bash, command: [bash, -c, sleep 600]}]
    - name: workers
      replicas: 2
      template:
        spec:
          parallelism: 2
          completions: 2
          backoffLimit: 0
          template:
            spec:
              restartPolicy: Never
              containers: [{name: worker, image: docker.io/library/bash, command: [bash, -c, sleep 600]}]
"""

QUEUED_JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: queued
  labels: {kueue.x-k8s.io/queue-name: team-queue}
spec:
  parallelism: 3
  completions: 3
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: sleeps
          image: registry.k8s.io/e2e-test-images/agnhost:2.53
          args: [entrypoint-tester, hello, world]
          resources: {requests: {cpu: "1", memory: 200Mi}}
"""

#: File, as the table names it → text.
WRITTEN = {
    "an Indexed Job with a back-off for each index": INDEXED_JOB,
    "a CronJob": CRON_JOB,
    "a StatefulSet whose pods are a group": STATEFUL_SET,
    "a JobSet of a driver and workers": JOBSET_OF_TWO_ROLES,
    "a Job for a queue of Kueue's": QUEUED_JOB,
}
