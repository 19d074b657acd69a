"""The operator of a supervisor's engine, cancelled at every checkpoint (seed S33), with effects that take time.

Two kinds of cancel are real: the request that asked goes away, and the supervisor itself ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest
import trio
from msgspec.structs import replace
from trio.testing import MockClock

from supervisor.engine.model.freeze import FreezeLimits
from supervisor.engine.model.operation import EngineRecovery, Operation, OperationSettings
from supervisor.engine.operator import CommandRefused, EffectFailed, Operator
from supervisor.service.credentials import Secrets
from supervisor.wire import (
    Action,
    CommandAnswer,
    Endpoint,
    EndpointStatus,
    EngineRestartMsg,
    ErrorCode,
    RecoveryState,
    StartCmdMsg,
    Step,
)
from tests.support.cancel_sweep import Cause, sweep

pytestmark = pytest.mark.seed("S33")

FREEZE = FreezeLimits(duration_sec=720, silence_sec=60)


def placement(epoch: int) -> StartCmdMsg:
    endpoint = Endpoint(id=0, ip="10.0.0.1", business_port="10000", mgmt_port="10000", status=EndpointStatus.INITIAL)
    return StartCmdMsg(
        job_name="job", role="union", instance_id=7, endpoints=(endpoint,), master_dp_ip="10.0.0.1", epoch=epoch
    )


@dataclass
class SlowEffects:
    """An engine that takes its time; records what was begun and what came to its end."""

    log: list[str] = field(default_factory=list)
    processes: set[int] = field(default_factory=set)
    """Epochs of which processes live."""
    operator: Operator | None = None
    stop_fails: str | None = None
    load_fails: str | None = None
    recovers_in_sec: float = 0.3
    recover_fails: str | None = None

    def misfit(self, given: StartCmdMsg) -> str | None:
        return None if given.job_name == "job" else "another job"

    async def stop_engine(self, reason: str) -> None:
        self.log.append("stop")
        await trio.sleep(0.5)
        if self.stop_fails is not None:
            raise EffectFailed(self.stop_fails)
        self.processes.clear()
        self.log.append("stopped")

    async def take_configuration(self, digest: str) -> None:
        self.log.append(f"take {digest}")

    async def clean(self, given: StartCmdMsg) -> None:
        await trio.sleep(0.2)
        self.log.append("clean")

    def announce_relaunch(self, number: int, given: StartCmdMsg, reason: str) -> None:
        self.log.append(f"banner {number}")

    async def spawn_engine(self) -> None:
        await trio.sleep(0.1)
        assert self.operator is not None
        assert not self.processes, "two epochs of one engine live (I1)"
        self.processes.add(self.operator.state.epoch)
        self.log.append("spawned")

    async def await_handshake(self) -> None:
        await trio.sleep(5)
        if self.load_fails is not None:
            raise EffectFailed(self.load_fails)
        self.log.append("ready")

    async def recover_engine(self, recovery: str | None, fault_code: int | None) -> None:
        self.log.append(f"recover {recovery} {fault_code}")
        await trio.sleep(self.recovers_in_sec)
        if self.recover_fails is not None:
            raise EffectFailed(self.recover_fails)
        self.log.append("recovered")


@dataclass
class World:
    operator: Operator
    effects: SlowEffects
    nursery: trio.Nursery

    async def command(self, action: Action, *, run: str = "run-1", epoch: int = 1) -> CommandAnswer:
        given = placement(epoch) if action is not Action.ABORT else None
        return await self.operator.command(
            EngineRestartMsg(action=action, epoch=epoch, term=1, run_id=run, boot_id="boot", start=given)
        )

    async def reached(self, *steps: Step) -> Operation:
        with trio.fail_after(3600):
            return await self.operator.changed.wait_until(
                lambda: self.operator.state, lambda state: state.step in steps
            )


def make(secrets: Secrets | None = None) -> tuple[Operator, SlowEffects]:
    effects = SlowEffects()
    operation = Operation("boot", booted_at=trio.current_time())
    settings = OperationSettings(enabled=True, freeze=FREEZE, recovers=True)
    operator = Operator(operation, settings, effects, lambda reason: None, secrets=secrets)
    effects.operator = operator
    return operator, effects


@asynccontextmanager
async def world(secrets: Secrets | None = None) -> AsyncIterator[World]:
    operator, effects = make(secrets)
    async with trio.open_nursery() as nursery:
        await nursery.start(operator.run)
        yield World(operator, effects, nursery)
        nursery.cancel_scope.cancel()


Asked = Callable[[World], Awaitable[object]]


async def prepare(here: World) -> None:
    await here.command(Action.PREPARE)


async def prepare_and_start(here: World) -> None:
    await here.command(Action.PREPARE)
    await here.command(Action.START)


async def prepare_and_abort(here: World) -> None:
    await here.command(Action.PREPARE)
    await here.command(Action.ABORT)


@pytest.mark.parametrize("cause", ["cancel", "deadline"])
def test_a_client_that_goes_away_takes_nothing_with_it(cause: Cause) -> None:
    """The same message sent again joins, and the operation comes to its end as if nothing had happened."""

    async def repeated(here: World, cancelled: bool) -> None:
        await prepare_and_start(here)
        state = await here.reached(Step.DONE)
        assert here.effects.log.count("stopped") == 1
        assert here.effects.log.count("spawned") == 1
        assert here.effects.processes == {1}
        assert state.freeze is None
        assert state.relaunch_count == 0

    assert sweep(world, prepare_and_start, repeated, cause=cause) >= 3


def test_an_abort_whose_sender_goes_away_was_taken_or_was_not() -> None:
    async def named(here: World, cancelled: bool) -> None:
        state = await here.reached(Step.PREPARED, Step.ABORTED)
        if state.step is Step.ABORTED:
            assert state.freeze is None
            with pytest.raises(CommandRefused) as refused:
                await here.command(Action.START)
            assert refused.value.code is ErrorCode.ABORTED
        assert here.effects.processes == set()

    assert sweep(world, prepare_and_abort, named) >= 2


@dataclass
class Life:
    operator: Operator
    effects: SlowEffects


@asynccontextmanager
async def outside() -> AsyncIterator[Life]:
    yield Life(*make())


async def whole_life(life: Life) -> None:
    """The operator's own run is what is cancelled: the supervisor ends in the middle of a relaunch."""
    async with trio.open_nursery() as nursery:
        await nursery.start(life.operator.run)
        # A command in the instant of the end is refused (`leaving`), one under way fails with its operation.
        with suppress(CommandRefused):
            await two_starts(World(life.operator, life.effects, nursery))
        nursery.cancel_scope.cancel()


async def two_starts(here: World) -> None:
    await prepare_and_start(here)
    await here.reached(Step.DONE)
    await here.command(Action.PREPARE, run="run-2", epoch=2)
    await here.command(Action.START, run="run-2", epoch=2)
    await here.reached(Step.DONE)


AT_REST = (Step.IDLE, Step.PREPARED, Step.DONE, Step.FAILED, Step.ABORTED)


@pytest.mark.parametrize("cause", ["cancel", "deadline"])
def test_a_supervisor_that_ends_in_a_relaunch_leaves_a_named_state_and_no_freeze_without_its_scope(
    cause: Cause,
) -> None:
    async def named(life: Life, cancelled: bool) -> None:
        state = life.operator.state
        assert state.step in AT_REST, state.step
        # Between prepare and start no effect runs, and the freeze's own deadlines rule.
        assert state.freeze is None or state.step is Step.PREPARED
        assert len(life.effects.processes) <= 1
        if not cancelled:
            assert life.effects.log.count("banner 1") == 1
            assert state.epoch == 2

    assert sweep(outside, whole_life, named, cause=cause) > 20


async def test_a_freeze_ends_by_itself_when_nobody_starts(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as here:
        await here.command(Action.PREPARE)
        began = trio.current_time()
        assert here.operator.state.frozen(began)
        with trio.fail_after(FREEZE.duration_sec + 1):
            await here.operator.changed.wait_until(lambda: here.operator.state, lambda state: state.freeze is None)
        assert trio.current_time() - began <= FREEZE.silence_sec + 1


async def test_a_stop_that_leaves_survivors_fails_and_unfreezes(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as here:
        here.effects.stop_fails = "pid 12 (vllm: in the kernel)"
        with pytest.raises(CommandRefused, match="pid 12") as refused:
            await here.command(Action.PREPARE)
        assert refused.value.code is ErrorCode.FAILED
        assert here.operator.state.freeze is None


async def test_what_goes_wrong_tells_no_secret(autojump_clock: MockClock) -> None:
    secrets = Secrets()
    secrets.remember([("key", "/key")], {"CREDENTIAL:key": "hunter2-hunter2"})
    async with world(secrets) as here:
        here.effects.stop_fails = "port 8000: held by process 7 (serve --api-key hunter2-hunter2)"
        with pytest.raises(CommandRefused) as refused:
            await here.command(Action.PREPARE)
        assert here.operator.state.error == "port 8000: held by process 7 (serve --api-key [redacted key])"
        assert "hunter2" not in refused.value.message


async def test_an_engine_that_dies_loading_fails_the_operation(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as here:
        here.effects.load_fails = "exit status 1"
        await prepare_and_start(here)
        state = await here.reached(Step.FAILED)
        assert state.error == "exit status 1"
        assert state.freeze is None


async def test_a_newer_epoch_overtakes_a_loading_engine(autojump_clock: trio.testing.MockClock) -> None:
    async with world() as here:
        await prepare_and_start(here)
        assert here.operator.state.step is Step.LOADING
        await here.command(Action.PREPARE, run="run-2", epoch=2)
        await here.command(Action.START, run="run-2", epoch=2)
        await here.reached(Step.DONE)
        assert here.effects.processes == {2}
        assert here.effects.log.count("ready") == 1


# --- recovery without a restart: not an operation, and overtaken by each --------------------------------------------


@asynccontextmanager
async def serving() -> AsyncIterator[World]:
    async with world() as here:
        await here.command(Action.PREPARE)
        await here.command(Action.START)
        await here.reached(Step.DONE)
        yield here


def _is_over(recovery: EngineRecovery | None) -> bool:
    return recovery is not None and recovery.state is not RecoveryState.RUNNING


def ask(run: str = "recovery-1", epoch: int = 1, **more: object) -> EngineRestartMsg:
    asked = EngineRestartMsg(action=Action.RECOVER, epoch=epoch, term=1, run_id=run, boot_id="boot")
    return replace(asked, **more)


async def test_a_recovery_is_answered_when_it_is_done_and_the_same_again_joins(autojump_clock: MockClock) -> None:
    async with serving() as here:
        message = ask(recovery="token_reinference", fault_code=0x00F1FEF5)
        answer = await here.operator.command(message)
        assert (answer.recovery, answer.step, answer.epoch) == (RecoveryState.DONE, Step.DONE, 1)
        assert (await here.operator.command(message)).recovery is RecoveryState.DONE
        assert [line for line in here.effects.log if line.startswith("recover ")] == [
            "recover token_reinference 15859445"
        ]
        await here.operator.command(ask("recovery-2"))  # another one is asked for anew
        assert here.effects.log.count("recovered") == 2


async def test_a_recovery_that_fails_is_told_and_changes_nothing_else(autojump_clock: MockClock) -> None:
    async with serving() as here:
        here.effects.recover_fails = "HTTP 500"
        before = here.operator.state
        for _ in range(2):
            with pytest.raises(CommandRefused) as refused:
                await here.operator.command(ask())
            assert refused.value.code is ErrorCode.FAILED
            assert refused.value.message == "the engine did not recover: HTTP 500"
        after = here.operator.state
        assert (after.step, after.epoch, after.serial, after.freeze) == (Step.DONE, 1, before.serial, None)


async def test_a_recovery_is_bounded_and_answered_meanwhile(autojump_clock: MockClock) -> None:
    async with serving() as here:
        here.effects.recovers_in_sec = 600.0
        assert (await here.operator.command(ask())).recovery is RecoveryState.RUNNING
        await here.operator.changed.wait_until(lambda: here.operator.state.recovery, _is_over)
        with pytest.raises(CommandRefused) as refused:
            await here.operator.command(ask())
        assert refused.value.message == "the engine did not recover: not done within 60 s"
        assert "recovered" not in here.effects.log


async def test_a_relaunch_overtakes_a_recovery_and_what_comes_of_it_is_nobody_s(autojump_clock: MockClock) -> None:
    async with serving() as here:
        here.effects.recovers_in_sec = 5.0
        async with trio.open_nursery() as nursery:
            refusals: list[ErrorCode] = []

            async def ask_and_wait() -> None:
                with pytest.raises(CommandRefused) as refused:
                    await here.operator.command(ask())
                refusals.append(refused.value.code)

            nursery.start_soon(ask_and_wait)
            await trio.sleep(1)
            await here.command(Action.PREPARE, run="run-2", epoch=2)
        assert refusals == [ErrorCode.STALE_EPOCH]
        assert here.operator.state.recovery is None
        await trio.sleep(10)
        assert "recovered" not in here.effects.log  # it is not gone on with either
        with pytest.raises(CommandRefused) as refused:
            await here.operator.command(ask(epoch=2))
        assert refused.value.code is ErrorCode.BUSY
