"""The structured allocator: which devices ResourceClaims get on a node. It does not depend on scheduling.

    ResourceSlices ──► Inventory ──► pools of a node ─┐
    ResourceClaims ──► AllocatedState ────────────────┼─► Allocator.allocate(node, claims)
    DeviceClasses, claims to allocate ────────────────┘       │
                                                              ├─► one AllocationResult for each claim
                                                              ├─► NoFit(reason)
                                                              └─► raises AllocationError

`DeviceState` is an inventory and the allocated state, kept up to date with small calls and a log of changes:

    state = DeviceState(features, clock)
    state.put_slice(resource_slice)                       # came or changed; remove_slice(name)
    state.put_taint_rule(rule)                            # came or changed; remove_taint_rule(rule)
    state.put_claim(claim.uid, claim.key, allocation)     # or about to have it; remove_claim(uid)
    state.changes.nodes, state.changes.everywhere         # on the clock: where devices changed

An `Allocator` is created for one scheduling attempt, for all its nodes; the state must not change meanwhile.
The budget limits its searches (`budget.py`):

    allocator = Allocator(state.inventory, state.allocated, classes.get, budget=budget)
    found = allocator.allocate(node, claims)              # claims without allocation, in order

A result depends on the claims' specs, not on their names (errors name them), on their classes, and on what
the node sees. So it may be used for another pod with claims of equal specs as long as the
devices of the node, its labels and the classes are the same. After such a use `put_claim` records a change of
the node, so that no share id is used twice. An `AllocationCache`, the third argument, keeps what
searches for claims of equal specs have in common, and finds results by the devices that are taken.

`explain(state.inventory, state.allocated, classes.get, node, claims)` returns for every request why devices
do not satisfy it; `why_not` selects the requests that matter. This is slow and meant for display.

The search, its order and its texts are kube-scheduler's, so that the same devices are chosen. `features` are
those of a release (`device_features`): where releases differ, its `rules` decide.
"""
