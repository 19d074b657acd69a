{{/* The pod of an engine, the same on every platform but for what tells it its place. */}}
{{- define "podvisor.engine.pod" -}}
{{- $engine := .Values.engine -}}
metadata:
  labels:
    {{- include "podvisor.engine.labels" . | nindent 4 }}
spec:
  restartPolicy: {{ eq $engine.platform "volcano" | ternary "OnFailure" "Always" }}
  # Draining is done on SIGTERM, so no preStop hook.
  terminationGracePeriodSeconds: {{ $engine.terminationGracePeriodSeconds }}
  automountServiceAccountToken: false
  # A Service called "vllm" would set VLLM_PORT, which vLLM takes for its own.
  enableServiceLinks: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $engine.nodeSelector }}
  nodeSelector: {{ toYaml . | nindent 4 }}
  {{- end }}
  {{- with $engine.tolerations }}
  tolerations: {{ toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- include "podvisor.securityContext.pod" (int $engine.runAsUser) | nindent 4 }}
  initContainers:
    # Engine images know nothing of podvisor: it comes beside them. Not -a, because the volume itself belongs to root.
    - name: podvisor
      image: {{ .Values.podvisor.image }}
      command: [cp, -R, /opt/podvisor/., /podvisor/]
      securityContext:
        {{- include "podvisor.securityContext.container" . | nindent 8 }}
        readOnlyRootFilesystem: true
      resources:
        requests: {cpu: 100m, memory: 64Mi}
        limits: {memory: 256Mi}
      volumeMounts:
        - {name: podvisor, mountPath: /podvisor}
  containers:
    - name: engine
      image: {{ include "podvisor.engine.image" . }}
      command:
        - /opt/podvisor/bin/podvisor
        - run
        - --config=/etc/podvisor/settings/podvisor.toml
        - --units=/etc/podvisor/units
      env:
        {{- include "podvisor.env" (dict "shipped" (include "podvisor.engine.variables" .) "own" $engine.env) | nindent 8 }}
      {{- with $engine.envFrom }}
      envFrom: {{ toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: http, containerPort: {{ include "podvisor.engine.port" . }}}
        - {name: node-manager, containerPort: 1026}
        - {name: probe, containerPort: 1027}
      startupProbe:
        httpGet: {path: /startupz, port: probe}
        periodSeconds: 5
        failureThreshold: 780
      livenessProbe:
        httpGet: {path: /livez, port: probe}
        periodSeconds: 10
        timeoutSeconds: 5
      readinessProbe:
        httpGet: {path: /readyz, port: probe}
        periodSeconds: 2
        failureThreshold: 1
      securityContext:
        {{- include "podvisor.securityContext.container" . | nindent 8 }}
      resources: {{ toYaml $engine.resources | nindent 8 }}
      volumeMounts:
        - {name: podvisor, mountPath: /opt/podvisor, readOnly: true}
        - {name: settings, mountPath: /etc/podvisor/settings, readOnly: true}
        - {name: units, mountPath: /etc/podvisor/units, readOnly: true}
        - {name: secrets, mountPath: /etc/podvisor/secrets, readOnly: true}
        {{- if .Values.tlsSecretName }}
        - {name: tls, mountPath: /etc/podvisor/tls, readOnly: true}
        {{- end }}
        - {name: run, mountPath: /run/podvisor}
        - {name: shm, mountPath: /dev/shm}
        - {name: cache, mountPath: /var/cache/engine}
        {{- if $engine.model.claimName }}
        - {name: models, mountPath: /models, readOnly: true}
        {{- end }}
  volumes:
    - name: podvisor
      emptyDir: {}
    - name: settings
      configMap: {name: {{ .Release.Name }}-engine-settings}
    - name: units
      configMap: {name: {{ .Release.Name }}-engine-units}
    - name: secrets
      secret: {secretName: {{ .Values.tokenSecretName }}, defaultMode: 0440}
    {{- with .Values.tlsSecretName }}
    - name: tls
      secret: {secretName: {{ . }}, defaultMode: 0440}
    {{- end }}
    # The socket, and what one life of the container leaves for the next.
    - name: run
      emptyDir: {}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $engine.sharedMemory }}}
    - name: cache
      emptyDir: {}
    {{- with $engine.model.claimName }}
    - name: models
      persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
    {{- end }}
{{- end }}

{{- define "podvisor.engine.variables" -}}
{{- $engine := .Values.engine -}}
- {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: POD_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
- {name: PODVISOR_GRACE_PERIOD_SEC, value: {{ $engine.terminationGracePeriodSeconds | quote }}}
- {name: PODVISOR_SUPERVISOR__CONTROLLER_URL, value: {{ include "podvisor.controllerUrl" . | quote }}}
{{- include "podvisor.engine.place" . }}
{{- if .Values.tlsSecretName }}
{{ include "podvisor.tls.env" . }}
{{- end }}
# Caches of compilers and models stay over restarts of the container. The user has no entry in passwd.
- {name: HOME, value: /var/cache/engine}
- {name: USER, value: podvisor}
- {name: MODEL_PATH, value: {{ $engine.model.path | quote }}}
{{- with include "podvisor.engine.tensorParallelSize" . }}
- {name: TENSOR_PARALLEL_SIZE, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* What the platform does not tell by itself. */}}
{{- define "podvisor.engine.place" -}}
{{- if eq .Values.engine.platform "statefulset" }}
- {name: POD_INDEX, valueFrom: {fieldRef: {fieldPath: "metadata.labels['apps.kubernetes.io/pod-index']"}}}
- {name: PODVISOR_SUPERVISOR__NNODES, value: {{ .Values.engine.nnodes | quote }}}
{{- else if eq .Values.engine.platform "volcano" }}
{{- if gt (int .Values.engine.nnodes) 1 }}
- name: PODVISOR_SUPERVISOR__JOB_NAME
  valueFrom: {fieldRef: {fieldPath: "metadata.labels['volcano.sh/job-name']"}}
{{- end }}
- {name: PODVISOR_SUPERVISOR__NNODES, value: {{ .Values.engine.nnodes | quote }}}
# 0 after SIGTERM would complete the task.
- {name: PODVISOR_SUPERVISOR__EXIT_ON_TERM, value: signal}
{{- end }}
{{- end }}
