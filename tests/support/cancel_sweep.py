"""Cancel an operation at its k-th step, for every k, and check an invariant after each.

trio has no such tool (python-trio/trio#77); an Instrument that counts the steps of the operation's task and
of all tasks below it does. The world around the operation (servers, networks) is not counted and goes on
living, so that a check can see what the cancelled operation left behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal, TypeVar

import trio
import trio.testing

World = TypeVar("World")
Cause = Literal["cancel", "deadline"]


class _CancelAt(trio.abc.Instrument):
    def __init__(self, step: int, scope: trio.CancelScope, root: trio.lowlevel.Task, cause: Cause) -> None:
        self.steps = 0
        self._step = step
        self._scope = scope
        self._root = root
        self._cause = cause

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """The task has just parked at a checkpoint."""
        if not self._is_below_root(task):
            return
        self.steps += 1
        if self.steps != self._step:
            return
        if self._cause == "cancel":
            self._scope.cancel(reason=f"sweep, step {self._step}")
        else:
            self._scope.deadline = trio.current_time()

    def _is_below_root(self, task: trio.lowlevel.Task) -> bool:
        ancestor: trio.lowlevel.Task | None = task
        while ancestor is not None and ancestor is not self._root:
            ancestor = ancestor.parent_nursery.parent_task if ancestor.parent_nursery else None
        return ancestor is self._root


def sweep(
    world: Callable[[], AbstractAsyncContextManager[World]],
    operation: Callable[[World], Awaitable[object]],
    check: Callable[[World, bool], Awaitable[object]],
    *,
    cause: Cause = "cancel",
    limit: int = 2000,
    stride: int = 1,
) -> int:
    """Run `operation` in a new `world` under a jumping clock, once for each step where it can be cancelled.

    `check` gets the world and whether the operation was cancelled; it runs after the operation, outside the
    cancelled scope, and raises AssertionError. `stride` > 1 visits every so-manieth step only.

    Returns the number of steps of an undisturbed operation.
    Raises AssertionError naming every step that broke.
    """
    failures: list[tuple[int, AssertionError]] = []
    for step in range(1, limit, stride):
        # The scheduler's only source of chance: with it fixed, step k is the same step in every run.
        trio._core._run._r.seed(0)
        clock = trio.testing.MockClock(autojump_threshold=0)
        steps = trio.run(_once, world, operation, check, step, cause, failures, clock=clock)
        if steps < step:
            _report(failures)
            return steps
    raise RuntimeError(f"the operation takes more than {limit} steps")


async def _once(
    world: Callable[[], AbstractAsyncContextManager[World]],
    operation: Callable[[World], Awaitable[object]],
    check: Callable[[World, bool], Awaitable[object]],
    step: int,
    cause: Cause,
    failures: list[tuple[int, AssertionError]],
) -> int:
    steps = 0
    cancelled = False

    async def counted(state: World) -> None:
        nonlocal steps, cancelled
        with trio.CancelScope() as scope:
            probe = _CancelAt(step, scope, trio.lowlevel.current_task(), cause)
            trio.lowlevel.add_instrument(probe)
            try:
                await operation(state)
            finally:
                trio.lowlevel.remove_instrument(probe)
                steps = probe.steps
        cancelled = scope.cancelled_caught

    async with world() as state:
        # A task of its own, so that nothing of the world counts as below it.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(counted, state)
        try:
            await check(state, cancelled)
        except AssertionError as error:
            failures.append((step, error))
    return steps


def _report(failures: list[tuple[int, AssertionError]]) -> None:
    if not failures:
        return
    lines = "\n".join(f"  step {step}: {error}" for step, error in failures)
    raise AssertionError(f"broken when cancelled at:\n{lines}") from failures[0][1]
