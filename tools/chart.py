"""Writes the templates of the Helm chart from the manifests in `deploy/`, so that both have one source.

    python tools/chart.py [--check]

A template is a manifest in which some lines are replaced by values. Each replacement has to match, so a
manifest that changes cannot silently leave the chart behind; `--check` fails if a template is not up to date.
Those without a manifest in `deploy/` are written by hand: network-policy.yaml, pod-monitor.yaml.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from bayplan import __version__

DEPLOY: Final = Path(__file__).parents[1] / "deploy"
SECOND: Final = DEPLOY / "second-scheduler"
CHART: Final = DEPLOY / "chart"
NAME: Final = "{{ .Release.Name }}"
ACCOUNT: Final = '{{ include "bayplan.account" . }}'
NAMESPACE: Final = "{{ .Release.Namespace }}"

Replacements = Iterable[tuple[str, str]]
"""Regular expressions, in which ^ and $ match at lines, and what takes the place of each match."""

_SUBJECT: Final = "ServiceAccount, name: {}, namespace: {}"

EVERYWHERE: Final = (
    (r"^  name: bayplan(?=-|$)", f"  name: {NAME}"),
    (r"Role, name: bayplan\b", f"Role, name: {NAME}"),
    (_SUBJECT.format("bayplan", "kube-system"), _SUBJECT.format(ACCOUNT, NAMESPACE)),
    (r"app\.kubernetes\.io/name: bayplan\b", f"app.kubernetes.io/name: {NAME}"),
    (r"^  resourceNames: \[bayplan\]", '  resourceNames: [{{ include "bayplan.lease" . }}]'),
)
"""In every manifest, where it occurs."""


def with_values(text: str, replacements: Replacements, *, required: bool = True) -> str:
    for pattern, replacement in replacements:
        text, count = re.subn(pattern, lambda _, new=replacement: new, text, flags=re.MULTILINE)  # type: ignore[misc]
        if required and count == 0:
            raise SystemExit(f"no manifest line matches {pattern!r}")
    return text


def template(file: Path, replacements: Replacements = (), condition: str = "") -> str:
    """All objects of a file, each behind the condition."""
    documents = (
        _object(document, condition)
        for document in with_values(file.read_text(), replacements).split("---\n")
    )
    return "---\n".join(documents)


def _object(text: str, condition: str) -> str:
    # A Role is where the lease and the CAs of client certificates are, wherever the release is.
    if re.search(r"^kind: Role(Binding)?$", text, re.MULTILINE) is None:
        text = text.replace("\n  namespace: kube-system\n", f"\n  namespace: {NAMESPACE}\n")
    text = with_values(text, EVERYWHERE, required=False)
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n" if condition else text


def optional(value: str, field: str, column: int = 6) -> str:
    """Lines for a field that is left out if its value is empty."""
    indent = " " * column
    return (
        f"{indent}{{{{- with .Values.{value} }}}}\n"
        f"{indent}{field}:\n"
        f"{indent}  {{{{- toYaml . | nindent {column + 2} }}}}\n"
        f"{indent}{{{{- end }}}}"
    )


TRACING_ARGS: Final = """\
        {{- if .Values.tracing.enabled }}
        - --tracing-config-file=/etc/bayplan/tracing.yaml
        {{- with .Values.tracing.headersSecret.name }}
        env:
        - name: OTEL_EXPORTER_OTLP_HEADERS
          valueFrom: {secretKeyRef: {name: {{ . }}, key: {{ $.Values.tracing.headersSecret.key }}}}
        {{- end }}
        {{- end }}"""
TRACING_FILE: Final = """\
{{- with .Values.tracing }}
{{- if .enabled }}
  tracing.yaml: |
    apiVersion: apiserver.config.k8s.io/v1
    kind: TracingConfiguration
    endpoint: {{ required "tracing.endpoint: name the receiver" .endpoint | quote }}
    samplingRatePerMillion: {{ int .samplingRatePerMillion }}
{{- end }}
{{- end }}
"""


def deployment() -> str:
    checksum = '{{ include (print $.Template.BasePath "/config-map.yaml") . | sha256sum }}'
    extra = ("imagePullSecrets", "nodeSelector", "tolerations", "affinity")
    replacements = (
        (r"^  replicas: 2$", "  replicas: {{ .Values.replicas }}"),
        (
            r"^    spec:\n      serviceAccountName: bayplan$",
            "      annotations:\n"
            # A changed configuration rolls out like a changed image.
            f"        checksum/configuration: {checksum}\n"
            "        {{- with .Values.podAnnotations }}\n"
            "        {{- toYaml . | nindent 8 }}\n"
            "        {{- end }}\n"
            f"    spec:\n      serviceAccountName: {ACCOUNT}\n"
            + "\n".join(optional(name, name) for name in extra),
        ),
        (
            r"^      priorityClassName: .*$",
            "      priorityClassName: {{ .Values.priorityClassName | quote }}",
        ),
        (
            r"^        image: .*$",
            '        image: {{ include "bayplan.image" . }}\n'
            "        {{- with .Values.image.pullPolicy }}\n"
            "        imagePullPolicy: {{ . }}\n"
            "        {{- end }}",
        ),
        (r"^        - -v=2$", "        {{- toYaml .Values.extraArgs | nindent 8 }}\n" + TRACING_ARGS),
        (r"^        resources:\n          requests: .*$", optional("resources", "resources", 8)),
        (r"configMap: \{name: bayplan\}", f"configMap: {{name: {NAME}}}"),
    )
    return template(SECOND / "deployment.yaml", replacements)


def config_map() -> str:
    replacements = (
        (r"^# Only for `kubectl apply -f`.*\n", ""),
        (
            r"^  scheduler\.yaml: \|\n",
            "  scheduler.yaml: |\n{{- with .Values.configuration }}\n{{ . | indent 4 }}\n{{- else }}\n",
        ),
        (r"resourceName: bayplan", 'resourceName: {{ include "bayplan.lease" . }}'),
        (r"schedulerName: bayplan\n", 'schedulerName: {{ include "bayplan.schedulerName" . }}\n{{- end }}\n'),
    )
    return template(SECOND / "config-map.yaml", replacements) + TRACING_FILE


def rbac() -> str:
    account, roles = (SECOND / "rbac.yaml").read_text().split("---\n", 1)
    parts = [
        _object(account, ".Values.serviceAccount.create").replace(f"name: {NAME}\n", f"name: {ACCOUNT}\n", 1)
    ]
    parts += [_object(role, ".Values.rbac.create") for role in roles.split("---\n")]
    for file in sorted((DEPLOY / "optional").glob("*-rbac.yaml")):
        plugin = file.name.removesuffix("-rbac.yaml")
        parts.append(
            template(file, condition=f'and .Values.rbac.create (has "{plugin}" .Values.rbac.plugins)')
        )
    return "---\n".join(parts)


def disruption_budget() -> str:
    file = SECOND / "disruption-budget.yaml"
    value = (r"^  maxUnavailable: 1$", "  maxUnavailable: {{ .Values.disruptionBudget.maxUnavailable }}")
    return template(file, [value], ".Values.disruptionBudget.enabled")


_PULL: Final = (
    "\n        {{- with .Values.image.pullPolicy }}\n        imagePullPolicy: {{ . }}\n        {{- end }}"
)


def descheduler() -> str:
    name = f"{NAME}-descheduler"
    replacements = (
        (r"^# .*\n# \.\./optional.*\n", ""),
        (
            _SUBJECT.format("bayplan-descheduler", "kube-system"),
            _SUBJECT.format(name, NAMESPACE),
        ),
        (
            r"^  policy\.yaml: \|\n",
            "  policy.yaml: |\n{{- with .Values.descheduler.policy }}\n{{ . | indent 4 }}\n{{- else }}\n",
        ),
        (r"(?<=TopologySpreadConstraint\]\n)---$", "{{- end }}\n---"),
        (r"^  replicas: 2$", "  replicas: {{ .Values.descheduler.replicas }}"),
        (r"serviceAccountName: bayplan-descheduler", f"serviceAccountName: {name}"),
        (
            r"^      priorityClassName: .*$",
            "      priorityClassName: {{ .Values.priorityClassName | quote }}",
        ),
        (r"^        image: .*$", '        image: {{ include "bayplan.image" . }}' + _PULL),
        (r"--interval=5m", "--interval={{ .Values.descheduler.interval }}"),
        (r"configMap: \{name: bayplan-descheduler\}", f"configMap: {{name: {name}}}"),
    )
    roles = template(DEPLOY / "optional" / "descheduler.yaml", condition=".Values.descheduler.enabled")
    own = template(DEPLOY / "descheduler" / "descheduler.yaml", replacements, ".Values.descheduler.enabled")
    return f"{roles}---\n{own}"


def estimator() -> str:
    each = "{{- range .Values.estimator.members }}"
    replacements = (
        (r"^# bayplan fleet estimator(?:.*\n#)*.*\n", ""),
        (r"^  namespace: karmada-system$", f"  namespace: {NAMESPACE}"),
        (
            r"^        image: bayplan-fleet:.*$",
            "        image: {{ .Values.estimator.image.repository }}:"
            "{{ .Values.estimator.image.tag | default .Chart.AppVersion }}" + _PULL,
        ),
        (
            r"^        - --context=member1$",
            f"        {each}\n        - --context={{{{ . }}}}\n        {{{{- end }}}}",
        ),
        (r"secretName: bayplan-estimator", "secretName: {{ .Values.estimator.kubeconfigSecret }}"),
        (
            r"secretName: karmada-scheduler-estimator-cert",
            "secretName: {{ .Values.estimator.certificateSecret }}",
        ),
    )
    text = template(DEPLOY / "estimator" / "estimator.yaml", replacements)
    workload, service = text.split("---\n")
    service = with_values(
        service,
        (
            (r"-member1$", "-{{ . }}"),
            (r"\.Release\.", "$.Release."),
        ),
    )
    services = f"{each}\n---\n{service}{{{{- end }}}}\n"
    return f"{{{{- if .Values.estimator.enabled }}}}\n{workload}{services}{{{{- end }}}}\n"


def files() -> dict[Path, str]:
    """What is generated, by path."""
    about = CHART / "Chart.yaml"
    versions = [
        (r"^version: .*$", f"version: {__version__}"),
        (r"^appVersion: .*$", f"appVersion: {__version__}"),
    ]
    return {
        about: with_values(about.read_text(), versions),
        CHART / "templates" / "config-map.yaml": config_map(),
        CHART / "templates" / "deployment.yaml": deployment(),
        CHART / "templates" / "descheduler.yaml": descheduler(),
        CHART / "templates" / "estimator.yaml": estimator(),
        CHART / "templates" / "disruption-budget.yaml": disruption_budget(),
        CHART / "templates" / "rbac.yaml": rbac(),
        CHART / "templates" / "service.yaml": template(
            SECOND / "service.yaml", condition=".Values.service.enabled"
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the templates of deploy/chart from deploy/.")
    parser.add_argument("--check", action="store_true", help="only say which files are not up to date")
    check = parser.parse_args().check
    stale = {path: text for path, text in files().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(f"{'not up to date' if check else 'written'}: {path.relative_to(DEPLOY.parent)}")
        if not check:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
