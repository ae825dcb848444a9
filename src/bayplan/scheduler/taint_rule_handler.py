"""DeviceTaintRules: each change of a rule is a change of the ResourceSlices whose devices it taints."""

from __future__ import annotations

from collections.abc import Callable

from bayplan.api.devices import DeviceTaintRule, ResourceSlice
from bayplan.api.meta import Object
from bayplan.api.release import device_features
from bayplan.dra.state import TaintRules, has_equal_taints
from bayplan.framework.events import Action, Resource
from bayplan.scheduler.context import Context
from bayplan.scheduler.handlers import ObjectHandler


class TaintRuleHandler(ObjectHandler):
    """Handles events of DeviceTaintRules. No plugin registers these: the queue gets events of slices."""

    def __init__(self, context: Context, changed: Callable[[], None]) -> None:
        super().__init__(context, Resource.RESOURCE_SLICE, changed)
        self._rules = TaintRules(device_features(context.cluster.release))

    def added(self, item: Object) -> None:
        self._replace(None, item)

    def updated(self, old: Object, new: Object) -> None:
        self._replace(old, new)

    def deleted(self, item: Object) -> None:
        self._replace(item, None)

    def _replace(self, old: Object | None, new: Object | None) -> None:
        objects, rules = self._context.cluster.objects, self._rules
        replaced = [rule for rule in (old, new) if isinstance(rule, DeviceTaintRule)]
        slices = [item for item in objects.of(ResourceSlice) if rules.may_taint(replaced, item)]
        before = [rules.tainted(item) for item in slices]
        for rule in replaced:
            if rule is new:
                rules.put(rule)
                objects.put(rule)
            elif new is None:
                rules.remove(rule.name)
                objects.remove(rule)
        for item, was in zip(slices, before, strict=True):
            tainted = rules.tainted(item)
            if not has_equal_taints(was, tainted):
                self._notify_queue(Action.UPDATE, was, tainted)
