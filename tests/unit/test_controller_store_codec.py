"""What a store keeps: the same after any way there and back, in any clock, also as the first version wrote it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.events import ControllerEvent
from controller.model.budget import Budget, BudgetKey
from controller.model.instance import Hold, Holder, Instance, abandon, hold, terminate, unreachable
from controller.model.member import InstanceKey
from controller.model.relaunch.dispatch import record
from controller.model.relaunch.run import RunRecord, RunStep
from controller.store import codec
from controller.store.codec import CannotDecode, Clocks
from tests.unit.controller_gang import Drive, assembled, serving

WRITER = Clocks(monotonic=100.0, utc=1_790_000_000.0)
A_MINUTE_LATER = Clocks(monotonic=5.0, utc=1_790_000_060.0)
"""Another process, whose monotonic clock begins anew."""

GANGS = {
    "assembled": assembled(),
    "serving": serving(3),
    "held": hold(serving(), Hold(Holder.BUDGET, "too often")),
    "terminating": terminate(serving(), "no longer needed"),
    "abandoned": abandon(serving(), 90.0),
}


def round_trip(instance: Instance, reader: Clocks = A_MINUTE_LATER) -> Instance:
    return codec.decode_instance(codec.encode_instance(instance, WRITER), reader)


def timeless(instance: Instance) -> Instance:
    members = tuple(replace(m, observation=None, unreachable_since=None, registered_at=0.0) for m in instance.members)
    return replace(instance, members=members, since=0.0, abandoned_at=0.0, last_registration_at=0.0)


@pytest.mark.parametrize("instance", GANGS.values(), ids=GANGS)
def test_everything_of_an_instance_comes_back_but_what_was_seen_of_its_members(instance: Instance) -> None:
    assert timeless(round_trip(instance)) == timeless(instance)
    silent = unreachable(instance, instance.members[0].key, 95.0)
    assert all(m.unreachable_since is None and m.observation is None for m in round_trip(silent).members)


def test_a_loaded_member_counts_as_heard_of_just_then() -> None:
    assert [m.last_heard for m in round_trip(serving(2)).members] == [A_MINUTE_LATER.monotonic] * 2


def test_a_status_is_as_old_as_it_was_and_the_time_between() -> None:
    since = replace(serving(), since=70.0)
    assert A_MINUTE_LATER.monotonic - round_trip(since).since == pytest.approx(30 + 60)


def test_a_clock_that_was_set_back_makes_nothing_of_the_future() -> None:
    earlier = Clocks(monotonic=5.0, utc=WRITER.utc - 3600)
    assert round_trip(replace(serving(), since=70.0), earlier).since == 5.0
    kept = codec.encode_run(record(Drive.open(serving()).run, WRITER.monotonic), WRITER)
    assert codec.decode_run(kept, earlier).opened_at == 5.0


@pytest.mark.parametrize("step", [RunStep.PROBE, RunStep.PREPARE, RunStep.START, RunStep.AWAIT])
def test_a_run_comes_back_with_what_is_left_of_its_step(step: RunStep) -> None:
    drive = Drive.open(serving(), now=WRITER.monotonic).to(step)
    written = record(drive.run, drive.now)
    read = codec.decode_run(codec.encode_run(written, WRITER), Clocks(5.0, WRITER.utc + 4.0))
    assert read.remaining_sec == pytest.approx(max(0.0, written.remaining_sec - 4.0))
    assert [each.step for each in read.history] == [each.step for each in written.history]
    assert timeless_run(read) == timeless_run(written)


def timeless_run(written: RunRecord) -> RunRecord:
    return replace(written, remaining_sec=0.0, opened_at=0.0, history=())


@given(passed=st.floats(-1e6, 1e6), remaining=st.floats(0, 1e5))
def test_what_is_left_is_never_more_than_it_was_and_never_less_than_nothing(passed: float, remaining: float) -> None:
    written = replace(record(Drive.open(serving()).run, 0.0), remaining_sec=remaining)
    read = codec.decode_run(codec.encode_run(written, WRITER), Clocks(0.0, WRITER.utc + passed))
    assert 0.0 <= read.remaining_sec <= remaining


@given(st.integers(0, 9), st.integers(0, 9), st.none() | st.text(), st.text())
def test_a_budget_comes_back(runs: int, phase2s: int, digest: str | None, run_id: str) -> None:
    budget = Budget(BudgetKey(InstanceKey("default", "llama"), digest), runs, phase2s, spent_by=run_id)
    assert codec.decode_budget(codec.encode_budget(budget, WRITER)) == budget


def test_an_event_comes_back() -> None:
    event = ControllerEvent(id=7, at="2026-01-01T00:00:00.000Z", kind="run", level="info", message="x", epoch=4)
    assert codec.decode_event(codec.encode_event(event, WRITER)) == event


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"{}", b'{"version":1,"written_at":0,"value":{}}', b"\xff"])
def test_what_cannot_be_read_is_one_kind_of_error(body: bytes) -> None:
    for decode in (codec.decode_budget, codec.decode_event):
        with pytest.raises(CannotDecode):
            decode(body)
    with pytest.raises(CannotDecode):
        codec.decode_instance(body, WRITER)
    with pytest.raises(CannotDecode):
        codec.decode_run(body, WRITER)


def test_a_later_version_is_refused_before_it_is_guessed_at() -> None:
    later = codec.encode_instance(serving(), WRITER).replace(b'"version":1', b'"version":2')
    with pytest.raises(CannotDecode, match="version 2, this program knows 1"):
        codec.decode_instance(later, WRITER)


def test_unknown_fields_of_a_later_minor_version_are_ignored() -> None:
    raw = msgspec.json.decode(codec.encode_instance(serving(), WRITER))
    raw["value"]["mood"] = "good"
    assert timeless(codec.decode_instance(msgspec.json.encode(raw), A_MINUTE_LATER)) == timeless(serving())


FIRST_INSTANCE = b"""{"version": 1, "written_at": 1790000000.0, "value": {"id": 3,
 "key": {"namespace": "default", "job_name": "llama"},
 "spec": {"model_name": "llama-70b", "role": "union", "nnodes": 1, "parallel": {"dp_size": 1},
          "endpoints_per_node": 1, "config_digest": "sha256:1"},
 "members": [{"key": {"namespace": "default", "job_name": "llama", "node": "#0"}, "ip": "10.0.0.1", "port": 1026,
   "node_rank": 0, "registered_at": 1789999900.0, "business_ports": ["10000"], "mgmt_ports": ["10001"],
   "boot_id": "boot-0-1", "node_index": 0, "features": ["prepare", "epoch"], "in_epoch": true}],
 "epoch": 4, "highest_epoch": 5, "status": "active", "since": 1789999950.0, "held": null, "terminating": ""}}"""
FIRST_RUN = b"""{"version": 1, "written_at": 1790000000.0, "value": {"run_id": "run-1",
 "instance": {"namespace": "default", "job_name": "llama"}, "instance_id": 3, "term": 7, "epoch": 5, "base_epoch": 4,
 "cause": {"reason": "fault", "text": "dead"}, "opened_at": 1789999990.0, "step": "await", "remaining_sec": 100.0,
 "backoff_sec": 0.0, "prepare_sent": true, "phase": 1, "members": [{"node": "#0", "address": "10.0.0.1:1026",
 "boot_id": "boot-0-1", "started": true, "farewell": "none"}], "history": [], "closing": null, "outcome": null,
 "message": ""}}"""
FIRST_BUDGET = b"""{"version": 1, "written_at": 1790000000.0, "value": {"key": {"instance":
 {"namespace": "default", "job_name": "llama"}, "config_digest": "sha256:1"}, "runs": 2, "phase2s": 1}}"""


def test_what_the_first_version_wrote_is_still_read() -> None:
    """Never change these bytes: they lie on somebody's disk."""
    instance = codec.decode_instance(FIRST_INSTANCE, A_MINUTE_LATER)
    assert (instance.id, instance.epoch, instance.highest_epoch, instance.status) == (3, 4, 5, "active")
    assert instance.members[0].in_epoch
    run = codec.decode_run(FIRST_RUN, A_MINUTE_LATER)
    assert (run.run_id, run.step, run.remaining_sec, run.members[0].started) == ("run-1", RunStep.AWAIT, 40.0, True)
    budget = codec.decode_budget(FIRST_BUDGET)
    assert (budget.runs, budget.phase2s) == (2, 1)
