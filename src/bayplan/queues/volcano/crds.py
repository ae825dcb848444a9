"""CustomResourceDefinitions of Volcano's objects, for a cluster without Volcano.

They accept every field: what an object may contain is checked where it is read.
"""

from __future__ import annotations

from typing import Final

_OPEN: Final = "{type: object, x-kubernetes-preserve-unknown-fields: true}"


def _crd(
    group: str,
    version: str,
    kind: str,
    short: str,
    columns: tuple[tuple[str, str, str], ...] = (),
    *,
    scope: str = "Namespaced",
) -> str:
    """The definition of a kind.

    Args:
        short: its short names, with commas between them.
        columns: name, type and path of what `kubectl get` shows besides the name.
    """
    singular = kind.lower()
    plural = f"{singular}s"
    shown = "".join(f"    - {{name: {name}, type: {of}, jsonPath: {path}}}\n" for name, of, path in columns)
    return f"""\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: {plural}.{group}
spec:
  group: {group}
  scope: {scope}
  names: {{kind: {kind}, listKind: {kind}List, plural: {plural}, singular: {singular}, shortNames: [{short}]}}
  versions:
  - name: {version}
    served: true
    storage: true
    subresources: {{status: {{}}}}
    additionalPrinterColumns:
{shown}    - {{name: AGE, type: date, jsonPath: .metadata.creationTimestamp}}
    schema:
      openAPIV3Schema: {_OPEN}
"""


CRDS: Final = "---\n".join(
    (
        _crd(
            "scheduling.volcano.sh",
            "v1beta1",
            "Queue",
            "q",
            (
                ("WEIGHT", "integer", ".spec.weight"),
                ("STATE", "string", ".status.state"),
                ("PARENT", "string", ".spec.parent"),
            ),
            scope="Cluster",
        ),
        _crd(
            "scheduling.volcano.sh",
            "v1beta1",
            "PodGroup",
            "pg",
            (
                ("STATUS", "string", ".status.phase"),
                ("MINMEMBER", "integer", ".spec.minMember"),
                ("RUNNINGS", "integer", ".status.running"),
                ("QUEUE", "string", ".spec.queue"),
            ),
        ),
        _crd(
            "batch.volcano.sh",
            "v1alpha1",
            "Job",
            "vcjob, vj",
            (
                ("STATUS", "string", ".status.state.phase"),
                ("MINAVAILABLE", "integer", ".status.minAvailable"),
                ("RUNNINGS", "integer", ".status.running"),
            ),
        ),
        _crd("bus.volcano.sh", "v1alpha1", "Command", "cmd"),
    )
)
