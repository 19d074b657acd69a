"""What a run is before its first step: made of the instance as that is now, and of what another life has left of it.

Nothing is decided and nobody is told anything yet; it may be opened, resumed or withdrawn.
"""

from __future__ import annotations

from dataclasses import replace

from controller.model.budget import Budget
from controller.model.instance import Instance
from controller.model.member import Member, MemberKey
from controller.model.need import lost_members
from controller.model.relaunch.answers import life_over
from controller.model.relaunch.resume import rows_of
from controller.model.relaunch.run import Cause, Progress, Run, RunRecord, RunStep
from controller.model.settings import InstanceSettings, RelaunchSettings


def new_run(
    instance: Instance,
    cause: Cause,
    *,
    run_id: str,
    term: int,
    budget: Budget,
    settings: RelaunchSettings,
    instance_settings: InstanceSettings,
    no_phase_two: str = "",
    now: float,
) -> Run:
    return Run(
        id=run_id,
        instance=instance,
        cause=cause,
        term=term,
        epoch=_next_epoch(instance),
        base_epoch=instance.epoch,
        budget=budget,
        settings=settings,
        instance_settings=instance_settings,
        members=_rows(instance, cause, lost_members(instance) is not None),
        opened_at=now,
        no_phase_two=no_phase_two,
    )


def recorded_run(
    instance: Instance,
    record: RunRecord,
    *,
    term: int,
    budget: Budget,
    settings: RelaunchSettings,
    instance_settings: InstanceSettings,
    no_phase_two: str = "",
    now: float,
) -> Run:
    """By the same run id and epoch; one that was only promised has none yet, and knows which it is to replace.

    Whose boot is not the recorded one is lost to the run.
    """
    if record.step is RunStep.OPEN:
        run = new_run(
            instance,
            record.cause,
            run_id=record.run_id,
            term=term,
            budget=budget,
            settings=settings,
            instance_settings=instance_settings,
            no_phase_two=no_phase_two,
            now=now,
        )
        return replace(run, base_epoch=record.base_epoch, resumed=True)
    return Run(
        id=record.run_id,
        instance=instance,
        cause=record.cause,
        term=term,
        epoch=record.epoch,
        base_epoch=record.base_epoch,
        budget=budget,
        settings=settings,
        instance_settings=instance_settings,
        no_phase_two=no_phase_two,
        members=rows_of(instance, record, now),
        opened_at=record.opened_at,
        backoff_sec=record.backoff_sec,
        prepare_sent=record.prepare_sent,
        starts_lost=record.starts_lost,
        resumed=True,
        phase=record.phase,
        history=record.history,
        closing=record.closing,
        message=record.message,
    )


def _next_epoch(instance: Instance) -> int:
    reported = [member.observation.epoch for member in instance.members if member.observation]
    return max(instance.epoch, instance.highest_epoch, *reported, 0) + 1


def _rows(instance: Instance, cause: Cause, lost: bool) -> dict[MemberKey, Progress]:
    return {member.key: _row(member, cause, lost) for member in instance.members}


def _row(member: Member, cause: Cause, lost: bool) -> Progress:
    seen = member.observation
    frozen = member.key == cause.reporter or (seen is not None and seen.freeze_remaining_sec > 0)
    row = Progress(member=member, seen=seen, heartbeat=seen, may_be_frozen=frozen)
    if lost and (member.superseded or not member.in_epoch):
        return life_over(row, None if member.superseded else member)
    if lost and member.unreachable_since is not None:
        return replace(row, gone=f"{member.address} cannot be reached")
    return row
