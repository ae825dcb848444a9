{{- define "bayplan.account" -}}
{{- .Values.serviceAccount.name | default .Release.Name -}}
{{- end }}

{{- define "bayplan.schedulerName" -}}
{{- if eq .Values.mode "replacement" }}default-scheduler{{ else }}{{ .Values.schedulerName }}{{ end -}}
{{- end }}

{{- /* Which lease the Role allows: that of the default configuration. */ -}}
{{- define "bayplan.lease" -}}
{{- if eq .Values.mode "replacement" }}kube-scheduler{{ else }}{{ .Release.Name }}{{ end -}}
{{- end }}

{{- define "bayplan.image" -}}
{{- .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion -}}
{{- end }}
