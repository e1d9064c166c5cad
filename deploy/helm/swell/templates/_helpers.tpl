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

{{- define "swell.selector" -}}
app.kubernetes.io/name: swell
app.kubernetes.io/instance: {{ .Release.Name }}
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
