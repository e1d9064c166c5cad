{{/* One release, one name. */}}
{{- define "swell.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "swell.account" -}}
{{- default (include "swell.name" .) .Values.serviceAccount.name -}}
{{- end -}}

{{/* Roles are of the whole cluster: two releases of one name in two namespaces must not share them. */}}
{{- define "swell.clusterName" -}}
{{- printf "%s-%s" .Release.Namespace (include "swell.name" .) | trunc 58 | trimSuffix "-" -}}
{{- end -}}

{{/* Of jobs that name none. */}}
{{- define "swell.jobsNamespace" -}}
{{- $name := default (printf "%s-jobs" (.Release.Namespace | trunc 58 | trimSuffix "-")) .Values.jobsNamespace -}}
{{- if eq $name .Release.Namespace -}}
{{- fail (printf "jobsNamespace is %s, the release's own namespace: whoever may create pods there can mount the server's secrets; name another" $name) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* Where it may create jobs, unless it may everywhere. */}}
{{- define "swell.namespaces" -}}
{{- if and .Values.clusterWide .Values.namespaces -}}
{{- fail "clusterWide is true and namespaces are named: Swell may create jobs in all namespaces, or in those that are named" -}}
{{- end -}}
{{- append .Values.namespaces (include "swell.jobsNamespace" .) | uniq | toJson -}}
{{- end -}}

{{- define "swell.selector" -}}
app.kubernetes.io/name: swell
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Of all its pods the one that serves; the server writes the label. */}}
{{- define "swell.serving" -}}
{{ include "swell.selector" . }}
swell.dev/serves: "true"
{{- end -}}

{{/* Pods that share a disk of one node are on that node. */}}
{{- define "swell.affinity" -}}
{{- $affinity := deepCopy .Values.affinity -}}
{{- if gt (int .Values.replicas) 1 -}}
{{- $term := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "swell.selector" . | fromYaml)) -}}
{{- $pods := default dict $affinity.podAffinity -}}
{{- $terms := append (default list $pods.requiredDuringSchedulingIgnoredDuringExecution) $term -}}
{{- $_ := set $affinity "podAffinity" (set $pods "requiredDuringSchedulingIgnoredDuringExecution" $terms) -}}
{{- end -}}
{{- $affinity | toYaml -}}
{{- end -}}

{{/* Labels and annotations by which Swell knows what is of which job; what users may write (swell.dev/priority) is not here. */}}
{{- define "swell.reserved" -}}
{{- list "job" "store" "attempt" "rank" "suspended" "server" "gpu" "gpu-number" "gpu-memory-mib" "gpu-total-mib" "node" "reservation" "stand-in" "stand-in-role" "serves" | toJson -}}
{{- end -}}

{{/* In CEL: the pod templates of an object of any kind that the policy looks at. */}}
{{- define "swell.templates" -}}
{{- $spec := printf "%s.?spec" . -}}
{{- $one := printf "(%s.?template.hasValue() ? [%s.spec.template] : [])" $spec . -}}
{{- $cron := printf "(%s.?jobTemplate.?spec.?template.hasValue() ? [%s.spec.jobTemplate.spec.template] : [])" $spec . -}}
{{- $sets := printf "%s.?replicatedJobs.orValue([]).map(one, one.?template.?spec.?template.orValue({}))" $spec -}}
{{- $torch := printf "%s.?pytorchReplicaSpecs.orValue({}).map(one, %s.spec.pytorchReplicaSpecs[one].?template.orValue({}))" $spec . -}}
{{- $mpi := printf "%s.?mpiReplicaSpecs.orValue({}).map(one, %s.spec.mpiReplicaSpecs[one].?template.orValue({}))" $spec . -}}
{{- list $one $cron $sets $torch $mpi | join " + " -}}
{{- end -}}

{{- define "swell.labels" -}}
{{ include "swell.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "swell.claim" -}}
{{- default (include "swell.name" .) .Values.persistence.existingClaim -}}
{{- end -}}

{{/* By which names a Service is called from inside the cluster. */}}
{{- define "swell.hosts" -}}
{{- $name := .service -}}
{{- $namespace := .root.Release.Namespace -}}
{{- list $name (printf "%s.%s" $name $namespace) (printf "%s.%s.svc" $name $namespace) (printf "%s.%s.svc.%s" $name $namespace .root.Values.clusterDomain) | toJson -}}
{{- end -}}

{{- define "swell.doors" -}}
{{- $root := . -}}
{{- $doors := list -}}
{{- if .Values.doors.enabled -}}
{{- $user := required "doors.user is needed: whoever reaches a door acts as this user of the cluster" .Values.doors.user -}}
{{- if not .Values.networkPolicy.enabled -}}
{{- fail "doors.enabled needs networkPolicy.enabled: the doors want no token, and nothing else keeps strangers away" -}}
{{- end -}}
{{- $address := trimAll "[]" .Values.listenAddress -}}
{{- range list .Values.doors.manager .Values.doors.monitor .Values.doors.jobMetadata -}}
{{- $hosts := list -}}
{{- range prepend (.aliases | default list) .service -}}
{{- $hosts = concat $hosts (include "swell.hosts" (dict "root" $root "service" .) | fromJsonArray) -}}
{{- end -}}
{{- $doors = append $doors (dict "name" "genai" "port" (int .port) "user" $user "address" $address "hosts" $hosts) -}}
{{- end -}}
{{- end -}}
{{- $doors | toJson -}}
{{- end -}}

{{- define "swell.config" -}}
{{- $doors := include "swell.doors" . | fromJsonArray -}}
{{- $config := deepCopy .Values.config -}}
{{- if $doors -}}{{- $_ := set $config "doors" $doors -}}{{- end -}}
{{- $config | toPrettyJson -}}
{{- end -}}

{{- define "swell.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
