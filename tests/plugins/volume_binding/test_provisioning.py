"""Claims for which a volume is provisioned on the chosen node."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bayplan.api.storage import TopologySelectorTerm
from bayplan.plugin import Code, Object
from bayplan.plugins.volume_binding import (
    REASON_NO_ROOM,
    REASON_NO_VOLUME,
)
from bayplan.testing.builders import (
    make_csi_capacity,
    make_csi_driver,
    make_expression,
    make_pod,
    make_pv,
    make_pvc,
    make_selector,
    make_storage_class,
)

from .clusters import DRIVER, HOST, KEEPS_COUNT, MADE, ZONE, allowing, rejected, rejections, room, where


@pytest.mark.parametrize(
    ("storage_class", "fitting"),
    [
        pytest.param(MADE, "nm", id="anywhere"),
        pytest.param(replace(MADE, provisioner=""), "", id="without a driver"),
        pytest.param(
            replace(MADE, provisioner="kubernetes.io/no-provisioner"), "", id="by no provisioner, explicitly"
        ),
        pytest.param(allowing(where(zone=["a"])), "n", id="in one zone"),
        pytest.param(allowing(where(zone=["z"]), where(host=["m"])), "m", id="in one of several places"),
        pytest.param(allowing(where(zone=["a"], host=["m"])), "", id="where all labels agree"),
        pytest.param(allowing(TopologySelectorTerm()), "", id="an empty term matches nothing"),
        pytest.param(allowing(where(zone=[])), "", id="nor one without values"),
    ],
)
def test_volumes_are_made_where_the_class_allows_it(storage_class: Object, fitting: str) -> None:
    found = rejections(make_pod(claims=["c"]), make_pvc("c", storage_class="made"), storage_class)
    assert found == {name: rejected(REASON_NO_VOLUME) for name in "nm" if name not in fitting}


@pytest.mark.parametrize(
    ("objects", "fitting"),
    [
        pytest.param([KEEPS_COUNT, room(capacity="1Gi", on_nodes_with={})], "nm", id="everywhere"),
        pytest.param([KEEPS_COUNT, room(capacity="1Gi", on_nodes_with={ZONE: "a"})], "n", id="in one zone"),
        pytest.param(
            [KEEPS_COUNT, room(capacity="1Gi", on_nodes_with={ZONE: "a", HOST: "m"})],
            "",
            id="labels all count",
        ),
        pytest.param(
            [
                KEEPS_COUNT,
                room(capacity="1Gi", on_nodes_with=make_selector(None, make_expression(ZONE, "NotIn", "a"))),
            ],
            "m",
            id="anywhere but there",
        ),
        pytest.param([KEEPS_COUNT, room(capacity="1023Mi", on_nodes_with={})], "", id="too little"),
        pytest.param([KEEPS_COUNT, room(on_nodes_with={})], "", id="the capacity is unknown"),
        pytest.param(
            [KEEPS_COUNT, room(capacity="5Gi", maximum_volume_size="1Mi", on_nodes_with={})],
            "",
            id="enough, but not in one piece",
        ),
        pytest.param(
            [KEEPS_COUNT, room(capacity="1Mi", maximum_volume_size="1Gi", on_nodes_with={})],
            "nm",
            id="the maximum size of a volume has precedence",
        ),
        pytest.param([KEEPS_COUNT, room(capacity="1Gi")], "", id="reachable from nowhere"),
        pytest.param(
            [KEEPS_COUNT, room(capacity="1Gi", on_nodes_with=make_selector({"no key": "x"}))],
            "",
            id="the topology is unknown",
        ),
        pytest.param(
            [KEEPS_COUNT, room(storage_class="other", capacity="1Gi", on_nodes_with={})],
            "",
            id="of another class",
        ),
        pytest.param([KEEPS_COUNT], "", id="nothing is reported"),
        pytest.param([make_csi_driver(DRIVER)], "nm", id="the driver does not keep count"),
        pytest.param([make_csi_driver(DRIVER, storage_capacity=False)], "nm", id="and declares it"),
        pytest.param([], "nm", id="an unknown driver"),
    ],
)
def test_volumes_are_made_where_the_driver_has_room(objects: list[Object], fitting: str) -> None:
    found = rejections(make_pod(claims=["c"]), make_pvc("c", storage_class="made"), *objects)
    assert found == {name: rejected(REASON_NO_ROOM) for name in "nm" if name not in fitting}


def test_a_claim_of_no_size_needs_no_room() -> None:
    claim = make_pvc("c", storage_class="made")
    claim = replace(claim, spec=replace(claim.spec, resources=replace(claim.spec.resources, requests={})))
    assert rejections(make_pod(claims=["c"]), claim, KEEPS_COUNT) == {}


def test_a_volume_is_made_where_no_free_one_reaches() -> None:
    free = make_pv("v", storage_class="made", on_nodes_with={ZONE: ["a"]})
    pod, claim = make_pod(claims=["c"]), make_pvc("c", storage_class="made")
    assert rejections(pod, claim, free) == {}
    assert rejections(pod, claim, free, KEEPS_COUNT) == {"m": rejected(REASON_NO_ROOM)}


def test_the_first_claim_that_cannot_be_made_decides() -> None:
    """Small ones first, and for each claim topology is checked before capacity."""
    claims = [make_pvc("c", storage_class="made", storage="2Gi"), make_pvc("d", storage_class="elsewhere")]
    elsewhere = make_storage_class("elsewhere", provisioner=DRIVER, allowed=[{ZONE: ["a"]}])
    capacity = make_csi_capacity("k", "elsewhere", capacity="5Gi", on_nodes_with={})
    found = rejections(make_pod(claims=["c", "d"]), *claims, elsewhere, KEEPS_COUNT, capacity)
    assert found == {"n": rejected(REASON_NO_ROOM), "m": rejected(REASON_NO_VOLUME)}


def test_a_volume_that_is_being_made_ties_the_pod_to_its_node() -> None:
    """No free volume is searched any more, and the topology is checked again."""
    claim = make_pvc("c", storage_class="made", selected_node="n")
    pod, free = make_pod(claims=["c"]), make_pv("v", storage_class="made")
    assert rejections(pod, claim, free) == {"m": rejected(REASON_NO_VOLUME)}
    assert rejections(pod, claim, free, KEEPS_COUNT) == {
        "n": rejected(REASON_NO_ROOM),
        "m": rejected(REASON_NO_VOLUME),
    }


def test_on_other_nodes_than_the_selected_one_nothing_else_is_checked() -> None:
    claims = [
        make_pvc("c", storage_class="made", selected_node="n"),
        make_pvc("d", storage_class="static", selector=make_selector(None, make_expression("k", "Near"))),
    ]
    found = rejections(make_pod(claims=["c", "d"]), *claims)
    assert (found["n"][0], found["m"]) == (Code.ERROR, rejected(REASON_NO_VOLUME))
