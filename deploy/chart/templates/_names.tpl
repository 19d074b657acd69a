{{- define "podvisor.labels" -}}
app.kubernetes.io/name: podvisor
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "podvisor.engine.labels" -}}
{{ include "podvisor.labels" . }}
app.kubernetes.io/component: engine
{{- end }}

{{- define "podvisor.controller.labels" -}}
{{ include "podvisor.labels" . }}
app.kubernetes.io/component: controller
{{- end }}

{{/* What only Helm knows, on objects alone: selectors never change. */}}
{{- define "podvisor.chart.labels" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "podvisor.scheme" -}}
{{ if .Values.tlsSecretName }}https{{ else }}http{{ end }}
{{- end }}

{{- define "podvisor.controllerUrl" -}}
{{ .Values.controllerUrl | default (printf "%s://%s-controller:1026" (include "podvisor.scheme" .) .Release.Name) }}
{{- end }}

{{/* The unit file of the engine: one that the values bring, else podvisor's. */}}
{{- define "podvisor.engine.unit" -}}
{{- $file := printf "%s.toml" .Values.engine.name -}}
{{ get .Values.engine.units $file | default (.Files.Get (printf "files/units/%s" $file)) }}
{{- end }}

{{/* The default is vLLM's, which no other engine is in. */}}
{{- define "podvisor.engine.image" -}}
{{- $engine := .Values.engine -}}
{{- if and (ne $engine.name "vllm") (eq $engine.image "vllm/vllm-openai") -}}
{{- fail (printf "engine.name is %s and engine.image vLLM's: put --values deploy/chart/values-%s.yaml before your own values" $engine.name $engine.name) -}}
{{- end -}}
{{ $engine.image }}
{{- end }}

{{/* For a unit file that asks for it: all GPUs of an instance. Nothing where none of NVIDIA's are asked for. */}}
{{- define "podvisor.engine.tensorParallelSize" -}}
{{- $gpus := get (.Values.engine.resources.limits | default dict) "nvidia.com/gpu" -}}
{{- if and $gpus (contains "${TENSOR_PARALLEL_SIZE" (include "podvisor.engine.unit" .)) -}}
{{- $stages := get .Values.engine.env "PIPELINE_PARALLEL_SIZE" | default 1 -}}
{{ div (mul .Values.engine.nnodes (int $gpus)) (int $stages | default 1) | max 1 }}
{{- end }}
{{- end }}

{{/* Where the engine serves: BasePort of its unit file. */}}
{{- define "podvisor.engine.port" -}}
{{ regexFind "(?m)^BasePort = [0-9]+" (include "podvisor.engine.unit" .) | trimPrefix "BasePort = " | required "engine.units: the engine's unit file must set BasePort" }}
{{- end }}

{{/* Which of an instance's pods takes requests, in the labels of the platform; nothing where every pod does. */}}
{{- define "podvisor.engine.rankZero" -}}
{{- if eq .Values.engine.platform "leaderworkerset" -}}
leaderworkerset.sigs.k8s.io/worker-index: "0"
{{- else if gt (int .Values.engine.nnodes) 1 -}}
{{- if eq .Values.engine.platform "statefulset" -}}
apps.kubernetes.io/pod-index: "0"
{{- else -}}
volcano.sh/task-index: "0"
{{- end }}
{{- end }}
{{- end }}

{{/* Of a pod whose containers run as the user that is given. */}}
{{- define "podvisor.securityContext.pod" -}}
runAsNonRoot: {{ ne . 0 }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "podvisor.securityContext.container" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
{{- end }}

{{- define "podvisor.tls.env" -}}
- {name: PODVISOR_TLS__CERT, value: /etc/podvisor/tls/tls.crt}
- {name: PODVISOR_TLS__KEY, value: /etc/podvisor/tls/tls.key}
- {name: PODVISOR_TLS__CLIENT_CA, value: /etc/podvisor/tls/ca.crt}
{{- end }}

{{/*
The variables of a container: `shipped`, a list of them as text, and `own`, name to value, of which those of a shipped
one's name take its place. Kubernetes resolves $(NAME) only to what stands before it: what refers to others comes last.
*/}}
{{- define "podvisor.env" -}}
{{- $plain := list -}}
{{- $referring := list -}}
{{- $all := list -}}
{{- range fromYamlArray .shipped -}}
{{- if not (hasKey $.own .name) -}}
{{- $all = append $all . -}}
{{- end -}}
{{- end -}}
{{- range $name, $value := .own -}}
{{- $all = append $all (dict "name" $name "value" $value) -}}
{{- end -}}
{{- range $all -}}
{{- if contains "$(" (get . "value") -}}
{{- $referring = append $referring . -}}
{{- else -}}
{{- $plain = append $plain . -}}
{{- end -}}
{{- end -}}
{{ toYaml (concat $plain $referring) }}
{{- end }}
