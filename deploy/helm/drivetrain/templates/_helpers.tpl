{{- define "drivetrain.fullname" -}}
{{- if contains "drivetrain" .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}{{ else }}{{ printf "%s-drivetrain" .Release.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "drivetrain.selector" -}}
app.kubernetes.io/name: drivetrain
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "drivetrain.labels" -}}
{{ include "drivetrain.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "drivetrain.secretName" -}}
{{- .Values.secret.existingSecret | default (printf "%s-secret" (include "drivetrain.fullname" .)) }}
{{- end }}

{{- define "drivetrain.mastersDomain" -}}
{{ include "drivetrain.fullname" . }}-masters.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end }}

{{- define "drivetrain.masters" -}}
{{- $root := . }}
{{- $all := list }}
{{- range $number := until (int .Values.masters.replicas) }}
{{- $all = append $all (printf "%s-masters-%d.%s:%d" (include "drivetrain.fullname" $root) $number (include "drivetrain.mastersDomain" $root) (int $root.Values.ports.master)) }}
{{- end }}
{{- join "," $all }}
{{- end }}

{{- define "drivetrain.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "drivetrain.podMeta" -}}
annotations:
  checksum/configuration: {{ include (print .Template.BasePath "/configuration.yaml") . | sha256sum }}
{{- end }}

{{- define "drivetrain.podCommon" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "drivetrain.env" -}}
- name: DRIVETRAIN_CONFIG
  value: /etc/drivetrain/drivetrain.toml
- name: DRIVETRAIN_SECRET
  valueFrom:
    secretKeyRef: {name: {{ include "drivetrain.secretName" . }}, key: secret}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
- name: POD_IP
  valueFrom:
    fieldRef: {fieldPath: status.podIP}
{{- end }}

{{- define "drivetrain.mounts" -}}
- {name: configuration, mountPath: /etc/drivetrain, readOnly: true}
- {name: temporary, mountPath: /tmp}
{{- end }}

{{- define "drivetrain.volumes" -}}
- name: configuration
  configMap: {name: {{ include "drivetrain.fullname" . }}-configuration}
- name: temporary
  emptyDir: {}
{{- end }}

{{- define "drivetrain.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 2
  failureThreshold: 60
readinessProbe:
  httpGet: {path: /readyz, port: {{ . }}}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  httpGet: {path: /healthz, port: {{ . }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{- define "drivetrain.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
