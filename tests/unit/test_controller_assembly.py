"""Who joins an instance, at which rank, and where its engines then stand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from controller.model import assembly
from controller.model.assembly import Joined, Life, Rejected, find_member
from controller.model.instance import Hold, Holder, Instance, delete, strand
from controller.model.need import run_needed
from controller.model.placement import placement, ranktable
from supervisor.wire import (
    DeviceInfo,
    Endpoint,
    ErrorCode,
    ParallelConfig,
    Ranktable,
    RanktableServer,
    RegisterMsg,
    ReregisterMsg,
    block_size,
    rendezvous_port,
)
from tests.unit.controller_gang import INSTANCE_SETTINGS, SETTINGS, assembled, begun, joined, registration, serving


def register(instance: Instance | None, message: RegisterMsg, now: float = 0.0) -> Joined | Rejected:
    return assembly.register(instance, message, now=now, new_id=3, settings=INSTANCE_SETTINGS)


def rejected(instance: Instance | None, message: RegisterMsg, now: float = 0.0) -> Rejected:
    answer = register(instance, message, now)
    assert isinstance(answer, Rejected), answer
    return answer


# --- joining ------------------------------------------------------------------------------------------------


@given(order=st.permutations(range(4)))
def test_it_is_complete_when_all_have_registered_and_node_index_is_the_rank(order: list[int]) -> None:
    instance = None
    for count, index in enumerate(order):
        if instance:
            assert not instance.complete
            assert assembly.missing(instance).startswith(f"{count} of 4 members")
        instance = joined(instance, registration(index, 4))
    assert instance is not None
    assert instance.complete
    assert assembly.missing(instance) == ""
    assert [member.ip for member in instance.members] == [f"10.0.0.{rank + 1}" for rank in range(4)]


def test_without_node_index_the_order_of_registration_is_the_rank_and_stays() -> None:
    instance = None
    for name in ("c", "a", "b"):
        instance = joined(instance, registration(ord(name) - 97, 3, node_index=None, pod_name=name))
    instance = joined(instance, registration(2, 3, node_index=None, pod_name="c", boot_id="another"))
    assert instance is not None
    assert [member.pod_name for member in instance.members] == ["c", "a", "b"]


def test_the_same_boot_again_changes_nothing_that_was_seen() -> None:
    instance = serving()
    answer = register(instance, registration(1), now=5.0)
    assert isinstance(answer, Joined)
    assert answer.life is Life.SAME
    assert answer.instance.members[1].observation == instance.members[1].observation
    assert answer.instance.members[1].in_epoch


@pytest.mark.parametrize(
    "changes",
    [
        {"boot_id": "boot-1-2"},
        {"boot_id": None, "pod_uid": "another pod"},
        {"boot_id": "boot-1-2", "pod_ip": "10.0.7.7"},
    ],
)
def test_a_new_boot_supersedes_the_old_at_once(changes: dict[str, object]) -> None:
    instance = serving(pod_uid="a pod") if "pod_uid" in changes else serving()
    answer = register(instance, structs.replace(registration(1), **changes), now=5.0)
    assert isinstance(answer, Joined)
    assert (answer.life, answer.place) == (Life.NEW_BOOT, instance.members[1].key)
    newcomer = answer.instance.members[1]
    assert (newcomer.observation, newcomer.in_epoch, newcomer.node_rank) == (None, False, 1)


def test_an_unextended_peer_that_registers_while_its_engines_should_run_has_restarted() -> None:
    cold = assembled(features=(), boot_id=None)
    message = registration(1, features=(), boot_id=None)
    again, later = register(cold, message), register(begun(cold, 1), message)
    assert isinstance(again, Joined)
    assert isinstance(later, Joined)
    assert (again.life, later.life) == (Life.SAME, Life.NEW_BOOT)


def test_a_recreated_pod_with_a_new_name_takes_the_place_of_the_one_that_is_gone() -> None:
    instance = None
    for name in ("a", "b"):
        instance = joined(instance, registration(ord(name) - 97, node_index=None, pod_name=name), now=0.0)
    newcomer = registration(7, node_index=None, pod_name="c")
    assert "alive" in rejected(instance, newcomer, now=5.0).message
    assert instance is not None
    instance = joined(instance, registration(0, node_index=None, pod_name="a"), now=15.0)
    answer = register(instance, newcomer, now=20.0)
    assert isinstance(answer, Joined)
    assert (answer.life, answer.place.node, answer.member.node) == (Life.NEW_BOOT, "b", "c")
    assert [member.pod_name for member in answer.instance.members] == ["a", "c"]


@pytest.mark.parametrize(
    "changes, both",
    [
        ({"model_name": "qwen"}, ("qwen", "llama-70b")),
        ({"role": "decode"}, ("decode", "union")),
        ({"parallel_config": ParallelConfig(dp_size=2, tp_size=8)}, ("tp_size is 8", "not 1")),
        ({"config_digest": "sha256:2"}, ("sha256:2", "sha256:1")),
        ({"business_port": ("1", "2"), "mgmt_port": ("3", "4")}, ("endpoints is 2", "not 1")),
        ({"nnodes": 4, "parallel_config": ParallelConfig(dp_size=4)}, ("nnodes is 4", "not 2")),
    ],
)
def test_a_member_that_disagrees_is_refused_with_both_values(changes: dict[str, object], both: tuple[str, str]) -> None:
    instance = joined(None, registration(0))
    answer = rejected(instance, structs.replace(registration(1), **changes))
    assert answer.code is ErrorCode.CONFLICT
    assert all(value in answer.message for value in both), answer.message
    assert answer.instance is None


def test_both_is_union() -> None:
    assert joined(joined(None, registration(0)), registration(1, role="both")).complete


@pytest.mark.parametrize(
    "changes, field",
    [
        ({"nm_port": "http"}, "nm_port"),
        ({"nm_port": "99999999"}, "nm_port"),
        ({"pod_ip": "[zz]"}, "pod_ip"),
        ({"pod_ip": "10.0.0.1/x"}, "pod_ip"),
        ({"business_port": ("eighty",)}, "business_port"),
        ({"mgmt_port": ("0",)}, "mgmt_port"),
        ({"nnodes": 0}, "nnodes"),
        ({"nnodes": 1_000_000_000}, "nnodes"),
        ({"role": "judge"}, "role"),
        ({"node_index": 2}, "node_index"),
        ({"business_port": ()}, "business_port"),
        ({"mgmt_port": ("1", "2")}, "mgmt_port"),
        ({"rendezvous_ports": "29599-29500"}, "rendezvous_ports"),
        ({"rendezvous_ports": "many"}, "rendezvous_ports"),
        ({"parallel_config": ParallelConfig(dp_size=3)}, "dp_size"),
    ],
)
def test_what_cannot_be_right_is_malformed(changes: dict[str, object], field: str) -> None:
    answer = rejected(None, structs.replace(registration(0), **changes))
    assert answer.code is ErrorCode.MALFORMED
    assert field in answer.message


def test_a_rank_that_the_gang_does_not_have_is_malformed() -> None:
    answer = reregister(None, reregistration(0, node_rank=2))
    assert isinstance(answer, Rejected)
    assert (answer.code, "node_rank" in answer.message) == (ErrorCode.MALFORMED, True)


def test_who_sits_by_order_alone_gives_way_to_who_has_an_index() -> None:
    peer = joined(None, registration(1, node_index=None, pod_name="peer"))
    assert [member.node_rank for member in peer.members] == [0]
    both = joined(peer, registration(0))
    assert [(member.key.node, member.node_rank) for member in both.members] == [("#0", 0), ("peer", 1)]


def test_who_runs_engines_at_a_rank_keeps_it() -> None:
    peer = begun(joined(None, registration(1, node_index=None, pod_name="peer")), 1)
    answer = register(peer, registration(0))
    assert isinstance(answer, Rejected)
    assert "node rank 0" in answer.message
    assert "10.0.0.2:1026" in answer.message


# --- rollouts and rebirth -----------------------------------------------------------------------------------


def test_F03_a_refused_new_boot_still_proves_that_the_old_life_is_over() -> None:
    instance = serving()
    answer = rejected(instance, registration(1, boot_id="boot-1-2", config_digest="sha256:2"), now=5.0)
    assert answer.superseded == instance.members[1].key
    assert answer.instance is not None
    assert answer.instance.members[1].superseded
    assert not answer.instance.complete


def test_a_refused_new_boot_of_a_stranded_member_strands_it_no_more() -> None:
    """Its container did restart, which is all that was waited for."""
    instance = strand(serving(), {serving().members[1].key})
    answer = rejected(instance, registration(1, boot_id="boot-1-2", config_digest="sha256:2"), now=5.0)
    assert answer.instance is not None
    assert not answer.instance.members[1].stranded


def test_a_new_configuration_is_accepted_once_nobody_of_the_old_lives() -> None:
    instance: Instance | None = serving()
    changes = {"config_digest": "sha256:2", "nnodes": 1, "parallel_config": ParallelConfig()}
    first = rejected(instance, structs.replace(registration(0, boot_id="x"), **changes), now=5.0)
    assert first.instance is not None
    held = replace(first.instance, held=Hold(Holder.BUDGET, "its budget is spent"))
    reborn = joined(held, structs.replace(registration(0, boot_id="x"), **changes), now=30.0)
    assert reborn.complete
    assert (reborn.spec.config_digest, reborn.held) == ("sha256:2", None)
    assert reborn.highest_epoch == 4


def test_a_deleted_instance_has_a_successor_whose_epoch_goes_on() -> None:
    answer = register(delete(serving(epoch=4), "terminated", 1.0), registration(0), now=2.0)
    assert isinstance(answer, Joined)
    assert (answer.instance.id, answer.instance.epoch, answer.instance.highest_epoch) == (3, 0, 4)


def test_an_epoch_that_a_supervisor_remembers_is_never_commanded_again() -> None:
    assert joined(joined(None, registration(0)), registration(1, epoch=17)).highest_epoch == 17


# --- taking over after a restart of the controller ------------------------------------------------------------


def reregistration(index: int, *, instance_id: int = 9, epoch: int = 5, **changes: object) -> ReregisterMsg:
    message = ReregisterMsg(
        job_name="llama",
        model_name="llama-70b",
        role="union",
        pod_ip=f"10.0.0.{index + 1}",
        nm_port="1026",
        nnodes=2,
        parallel_config=ParallelConfig(dp_size=2),
        boot_id=f"boot-{index}-1",
        config_digest="sha256:1",
        features=("prepare", "epoch"),
        instance_id=instance_id,
        endpoints=(Endpoint(id=index, ip=f"10.0.0.{index + 1}", business_port="10000", mgmt_port="10001"),),
        node_rank=index,
        epoch=epoch,
    )
    return structs.replace(message, **changes)


def reregister(instance: Instance | None, message: ReregisterMsg) -> Joined | Rejected:
    return assembly.reregister(instance, message, now=0.0, new_id=3, settings=INSTANCE_SETTINGS)


def test_F07_running_engines_are_taken_over_as_they_are() -> None:
    instance = None
    for index in (1, 0):
        answer = reregister(instance, reregistration(index))
        assert isinstance(answer, Joined), answer
        instance = answer.instance
    assert instance is not None
    assert (instance.id, instance.epoch, instance.complete) == (9, 5, True)
    assert all(member.in_epoch for member in instance.members)
    assert [member.node_rank for member in instance.members] == [0, 1]


@pytest.mark.parametrize(
    "instance, message",
    [
        (replace(serving(epoch=6), id=9), reregistration(1, epoch=5)),
        (replace(serving(epoch=5), id=8), reregistration(1, epoch=5)),
        (delete(replace(serving(epoch=5), id=9), "terminated", 1.0), reregistration(1, epoch=5)),
    ],
    ids=["older epoch", "another instance", "deleted"],
)
def test_engines_nobody_waits_for_are_to_be_stopped(instance: Instance, message: ReregisterMsg) -> None:
    answer = reregister(instance, message)
    assert isinstance(answer, Rejected)
    assert answer.code is ErrorCode.STALE_EPOCH
    assert "register anew" in answer.message


ALONE: dict[str, object] = {"nnodes": 1, "node_index": 0, "parallel_config": ParallelConfig(), "instance_id": 0}


@pytest.mark.parametrize(
    "instance, id_, highest_epoch",
    [
        (None, 3, 2),
        (delete(serving(1, epoch=7), "all members were silent", 1.0), 3, 7),
        (serving(1, epoch=1), serving(1).id, 2),
        # Its state directory did not survive: it counts from the beginning, and nobody else runs engines of this key.
        (serving(1, epoch=7), serving(1).id, 7),
    ],
    ids=["unknown", "deleted", "known", "known in a later epoch"],
)
def test_an_engine_that_was_started_without_a_controller_is_taken_over(
    instance: Instance | None, id_: int, highest_epoch: int
) -> None:
    answer = reregister(instance, structs.replace(reregistration(0, epoch=2, boot_id="boot-0-2"), **ALONE))
    assert isinstance(answer, Joined), answer
    found = answer.instance
    assert (found.id, found.epoch, found.highest_epoch) == (id_, 2, highest_epoch)
    assert [member.in_epoch for member in found.members] == [True]
    assert run_needed(found, SETTINGS) is None


def test_members_of_different_epochs_are_not_taken_for_a_gang() -> None:
    first = reregister(None, reregistration(0, epoch=5))
    assert isinstance(first, Joined)
    second = reregister(first.instance, reregistration(1, epoch=6))
    assert isinstance(second, Joined)
    assert second.instance.epoch == 6
    # The first is unknown at its next heartbeat; so it registers again, and is told to give its engine up.
    assert [member.node_rank for member in second.instance.members] == [1]
    again = reregister(second.instance, reregistration(0, epoch=5))
    assert isinstance(again, Rejected)
    assert again.code is ErrorCode.STALE_EPOCH


# --- whose message is it --------------------------------------------------------------------------------------


def test_a_member_is_found_by_boot_then_pod_then_address() -> None:
    instance = serving(pod_uid="uid")
    second = instance.members[1]
    assert find_member(instance, ip="10.9.9.9", port=None, boot_id="boot-1-1") == second
    assert find_member(instance, ip="10.0.0.2", port="1026", boot_id="unknown") == second
    assert find_member(instance, ip="10.0.0.2", port="1027") is None
    assert find_member(instance, ip="10.0.0.9", port=None) is None
    assert find_member(instance, ip="10.0.0.9", port=None, pod_uid="uid") == instance.members[0]


# --- placement ------------------------------------------------------------------------------------------------


@given(nnodes=st.integers(1, 8), each=st.integers(1, 4), dp=st.integers(1, 64), epochs=st.integers(1, 300))
def test_ids_are_unique_ranks_cover_all_and_ports_rotate(nnodes: int, each: int, dp: int, epochs: int) -> None:
    ports = tuple(str(port) for port in range(each))
    message = registration(0, nnodes, business_port=ports, mgmt_port=ports, parallel_config=ParallelConfig(dp_size=dp))
    if isinstance(register(None, message), Rejected):
        return
    instance = assembled(nnodes, business_port=ports, mgmt_port=ports, parallel_config=ParallelConfig(dp_size=dp))
    starts = [placement(instance, member, epoch=epochs, run_id="r", term=1) for member in instance.members]
    endpoints = [endpoint for start in starts for endpoint in start.endpoints]
    assert [endpoint.id for endpoint in endpoints] == list(range(nnodes * each))
    covered = {
        rank
        for endpoint in endpoints
        for rank in range((endpoint.ranks or (endpoint.id, 1))[0], sum(endpoint.ranks or (endpoint.id, 1)))
    }
    assert covered == set(range(dp))
    assert {(start.master_dp_ip, start.master_port, start.node_addrs) for start in starts} == {
        ("10.0.0.1", 29500 + epochs % 10 * 10, tuple(f"10.0.0.{rank + 1}" for rank in range(nnodes)))
    }
    assert [start.node_rank for start in starts] == list(range(nnodes))


def test_an_endpoint_that_spans_nodes_is_headless_on_all_but_the_first() -> None:
    instance = assembled(2, parallel_config=ParallelConfig(dp_size=1, tp_size=16))
    headless = [placement(instance, m, epoch=1, run_id="r", term=1).endpoints[0].headless for m in instance.members]
    assert headless == [False, True]


def test_the_master_port_is_another_one_in_the_next_epoch() -> None:
    instance = assembled(2, rendezvous_ports="30000-30001")
    ports = [placement(instance, instance.members[1], epoch=e, run_id="r", term=1).master_port for e in (4, 5, 6)]
    assert ports == [30000, 30001, 30000]


@given(first=st.integers(1, 65000), length=st.integers(2, 500), epoch=st.integers(0, 10_000))
def test_neighbouring_epochs_share_no_rendezvous_port(first: int, length: int, epoch: int) -> None:
    ports = range(first, first + length)
    before, after = (
        {*range(port, port + block_size(ports))}
        for port in (rendezvous_port(ports, epoch), rendezvous_port(ports, epoch + 1))
    )
    assert not before & after
    assert before | after <= {*ports}


def test_one_server_means_that_whole_ranks_may_be_headless() -> None:
    """Data-parallel ranks on every node, one HTTP port for all of them."""
    instance = assembled(2, parallel_config=ParallelConfig(dp_size=4), one_server=True)
    placed = [placement(instance, m, epoch=1, run_id="r", term=1).endpoints[0] for m in instance.members]
    assert [(endpoint.headless, endpoint.ranks) for endpoint in placed] == [(False, (0, 2)), (True, (2, 2))]


def test_ranktables_are_merged_in_rank_order_and_devices_shared_out() -> None:
    def table(index: int) -> Ranktable:
        devices = tuple(DeviceInfo(device_id=str(d), rank_id=str(d)) for d in range(4))
        server = RanktableServer(server_id=f"node-{index}", container_ip=f"10.0.0.{index + 1}", device=devices)
        return Ranktable(server_count="1", server_list=(server,))

    instance = None
    for index in (1, 0):
        changes = {"ranktable": table(index), "business_port": ("1", "2"), "mgmt_port": ("3", "4")}
        instance = joined(instance, structs.replace(registration(index), **changes))
    assert instance is not None
    merged = ranktable(instance)
    assert merged is not None
    assert merged.server_count == "2"
    assert [d.rank_id for s in merged.server_list for d in s.device] == [str(rank) for rank in range(8)]
    last = placement(instance, instance.members[1], epoch=1, run_id="r", term=1).endpoints[1]
    assert [device.rank_id for device in last.device_infos] == ["6", "7"]
    assert ranktable(assembled()) is None
