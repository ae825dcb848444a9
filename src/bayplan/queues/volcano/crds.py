"""CustomResourceDefinitions of Volcano's objects, for a cluster without Volcano.

They accept every field: what a Queue or PodGroup may contain is checked where it is read.
"""

from __future__ import annotations

from typing import Final

CRDS: Final = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: queues.scheduling.volcano.sh
spec:
  group: scheduling.volcano.sh
  scope: Cluster
  names: {kind: Queue, listKind: QueueList, plural: queues, singular: queue, shortNames: [q]}
  versions:
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: WEIGHT, type: integer, jsonPath: .spec.weight}
    - {name: STATE, type: string, jsonPath: .status.state}
    - {name: PARENT, type: string, jsonPath: .spec.parent}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: podgroups.scheduling.volcano.sh
spec:
  group: scheduling.volcano.sh
  scope: Namespaced
  names: {kind: PodGroup, listKind: PodGroupList, plural: podgroups, singular: podgroup, shortNames: [pg]}
  versions:
  - name: v1beta1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: STATUS, type: string, jsonPath: .status.phase}
    - {name: MINMEMBER, type: integer, jsonPath: .spec.minMember}
    - {name: QUEUE, type: string, jsonPath: .spec.queue}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
