"""Claims that get a free volume together with the pod's node."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.plugin import Code
from bayplan.plugin.storage import (
    PersistentVolume,
    PersistentVolumeClaim,
)
from bayplan.plugins.volume_binding import (
    REASON_NO_VOLUME,
)
from bayplan.testing.builders import (
    make_expression,
    make_pod,
    make_pv,
    make_pvc,
    make_selector,
)

from .clusters import (
    EXACT,
    FREE,
    HOST,
    LONG_AGO,
    UNBOUND_CLAIM,
    ZONE,
    offered,
    rejected,
    rejections,
    reserved,
)


@pytest.mark.parametrize(
    ("claim", "volume", "fits"),
    [
        pytest.param(UNBOUND_CLAIM, offered(), True, id="an exact match"),
        pytest.param(UNBOUND_CLAIM, offered(capacity="2047Mi"), False, id="too small"),
        pytest.param(UNBOUND_CLAIM, offered(capacity="2G"), False, id="too small by the unit"),
        pytest.param(UNBOUND_CLAIM, offered(storage_class="other"), False, id="of another class"),
        pytest.param(UNBOUND_CLAIM, offered(phase="Released"), False, id="not available"),
        pytest.param(UNBOUND_CLAIM, offered(phase="Pending"), False, id="not yet available"),
        pytest.param(UNBOUND_CLAIM, offered(deleted=LONG_AGO), False, id="being deleted"),
        pytest.param(UNBOUND_CLAIM, offered(access_modes=["ReadOnlyMany"]), False, id="another access mode"),
        pytest.param(
            UNBOUND_CLAIM,
            offered(access_modes=["ReadOnlyMany", "ReadWriteOnce"]),
            True,
            id="more access modes",
        ),
        pytest.param(UNBOUND_CLAIM, offered(volume_mode="Block"), False, id="a block device"),
        pytest.param(UNBOUND_CLAIM, offered(volume_mode=None), True, id="a file system is the default"),
        pytest.param(UNBOUND_CLAIM, offered(claim=make_pvc("other")), False, id="of another claim"),
        pytest.param(
            replace(
                UNBOUND_CLAIM, spec=replace(UNBOUND_CLAIM.spec, selector=make_selector({"speed": "fast"}))
            ),
            offered(labels={"speed": "fast"}),
            True,
            id="with the required labels",
        ),
        pytest.param(
            replace(
                UNBOUND_CLAIM, spec=replace(UNBOUND_CLAIM.spec, selector=make_selector({"speed": "fast"}))
            ),
            offered(),
            False,
            id="without them",
        ),
        pytest.param(
            replace(UNBOUND_CLAIM, spec=replace(UNBOUND_CLAIM.spec, volume_attributes_class_name="gold")),
            offered(),
            False,
            id="without the required attributes",
        ),
    ],
)
def test_a_claim_takes_a_free_volume_that_will_do(
    claim: PersistentVolumeClaim, volume: PersistentVolume, fits: bool
) -> None:
    found = rejections(make_pod(claims=["c"]), claim, volume)
    assert found == ({} if fits else dict.fromkeys("nm", rejected(REASON_NO_VOLUME)))


@pytest.mark.parametrize(
    ("volumes", "fitting"),
    [
        pytest.param([reserved()], "nm", id="a volume that is kept for the claim"),
        pytest.param([reserved(phase="Bound")], "nm", id="whatever its phase"),
        pytest.param([reserved(access_modes=[])], "nm", id="and its access modes"),
        pytest.param([reserved(uid=UNBOUND_CLAIM.uid)], "nm", id="for this very claim"),
        pytest.param([reserved(uid="another")], "", id="for an earlier claim of that name"),
        pytest.param([reserved(capacity="1Gi")], "", id="but too small"),
        pytest.param([reserved(storage_class="x")], "", id="but of another class"),
        pytest.param([reserved(on_nodes_with={ZONE: ["a"]})], "n", id="in one zone"),
        pytest.param([reserved(on_nodes_with={ZONE: ["a"]}), FREE], "n", id="no other will do then"),
        pytest.param([reserved(capacity="1Gi"), FREE], "nm", id="unless it would never have done"),
        pytest.param([reserved(uid="another"), FREE], "nm", id="or is not the claim's"),
    ],
)
def test_a_volume_that_is_kept_for_the_claim_is_taken_or_none(
    volumes: list[PersistentVolume], fitting: str
) -> None:
    found = rejections(make_pod(claims=["c"]), UNBOUND_CLAIM, *volumes)
    assert found == {name: rejected(REASON_NO_VOLUME) for name in "nm" if name not in fitting}


def test_each_volume_is_given_once() -> None:
    claims = [replace(UNBOUND_CLAIM, metadata=make_pvc(name).metadata) for name in "cd"]
    on_n = [make_pv(f"v{i}", on_nodes_with={HOST: ["n"]}, **EXACT) for i in range(2)]
    pod, short = make_pod(claims=["c", "d"]), rejected(REASON_NO_VOLUME)
    assert rejections(pod, *claims, on_n[0]) == {"n": short, "m": short}
    assert rejections(pod, *claims, *on_n) == {"m": short}
    assert rejections(pod, *claims, on_n[0], FREE) == {"m": short}


def test_a_selector_that_is_invalid_is_an_error() -> None:
    claim = replace(
        UNBOUND_CLAIM,
        spec=replace(UNBOUND_CLAIM.spec, selector=make_selector(None, make_expression("k", "Near"))),
    )
    text = (
        "error creating internal label selector for claim: default/c: "
        '"Near" is not a valid label selector operator'
    )
    found = rejections(make_pod(claims=["c"]), claim)
    assert found == dict.fromkeys("nm", (Code.ERROR, frozenset({text})))
