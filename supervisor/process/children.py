"""The only code that forks, and the only code that reaps.

Rules, each with a bug of somebody behind it (research: trio-notes §1 and §2, process-managers §3):

* A managed child's death is *observed* with waitid(WNOWAIT) and told to its owner; the zombie stays until the owner
  calls `release()`. As long as it stays, the kernel gives its number to nobody, so signals to the pid and to the
  group of that number hit the right ones.
* A child nobody manages (an orphan we adopted) is reaped at once.
* A process that a managed child has handed over to is managed as well, before it may ever become our child: its
  status can be had if its parent is gone by the time it ends. Else that goes to the parent, and is unknown to us.
* While a spawn is in flight an unknown zombie may be our own newborn, whose status must not be stolen: CPython would
  report it as exit 0. It is left alone unless it is certainly something else.

Nothing else may call `subprocess`, `os.fork`, `os.waitpid` or `os.waitid`; an architecture test enforces it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import trio

from supervisor.process import procfs
from supervisor.process.attribution import certainly_not_newborn
from supervisor.process.brand import Branding
from supervisor.process.cgroup import Cgroups
from supervisor.process.child import Child, ExitStatus, exit_status
from supervisor.process.handover import Handover
from supervisor.process.pidfd import is_reaped, signal_process, wait_all_dead
from supervisor.process.procfs import Identity
from supervisor.process.spawn import Credentials, Spawn, SpawnError, apply_settings, explain, resolve_credentials
from supervisor.process.threads import NoThread, in_thread

__all__ = ["Child", "Children", "ExitStatus", "Spawn", "SpawnError", "ignored_signals", "stop_ignoring_signals"]

MAX_SPAWNS_IN_FLIGHT = 16
MAX_SCANS = 8
MAX_REAPED_AT_ONCE = 256
"""Before the rest of the supervisor gets its turn: what forks as fast as we reap must still be stopped by somebody."""
_PEEK = os.WEXITED | os.WNOWAIT | os.WNOHANG
_ABORTED_SPAWN_SEC = 5.0


class Children:
    """Spawns, watches and reaps. One per supervisor, which must be PID 1 or a subreaper to see its orphans."""

    def __init__(self, cgroups: Cgroups | None = None) -> None:
        self.orphans_reaped = 0
        self._managed: dict[int, Child] = {}
        self._successors: dict[int, Child] = {}
        self._in_flight: list[int] = []
        """For each spawn whose pid we do not know yet: when it began, in boot ticks."""
        self._mourners: list[Callable[[int], None]] = []
        self._spawn_threads = trio.CapacityLimiter(MAX_SPAWNS_IN_FLIGHT)
        self.branding = Branding()
        self.cgroups = cgroups or Cgroups()
        self.scan_threads = trio.CapacityLimiter(MAX_SCANS)
        """The stop ladder's alone, for its looks through /proc: on them hangs whether a stop can be verified."""

    @property
    def managed(self) -> frozenset[int]:
        """The pids that belong to somebody: spawned and not yet released."""
        return frozenset(self._managed)

    def newborn_ticks(self) -> int:
        """A child of ours that started before this moment is no newborn of a spawn in flight."""
        return min((*self._in_flight, procfs.boot_ticks()))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Reap until cancelled. Start it first and stop it last; only in the main thread.

        After it was cancelled nothing is observed any more: no `exited` event will be set.
        """
        with trio.open_signal_receiver(signal.SIGCHLD) as signals:
            task_status.started()
            self.collect()
            async for _ in signals:  # coalesced by the kernel: one signal, any number of dead
                self.collect()

    async def spawn(self, spawn: Spawn) -> Child:
        """Start a process in a session and group of its own.

        Raise SpawnError if it cannot be executed or a limit cannot be set; then nothing of it is left.
        Cancelled before the fork, or not at all: if this raises `Cancelled` there is no process.
        """
        began = procfs.boot_ticks()
        self._in_flight.append(began)
        try:
            try:
                pid = await in_thread(
                    partial(_execute, spawn, self.branding, self.cgroups), limiter=self._spawn_threads
                )
            except NoThread as error:
                raise SpawnError(f"cannot execute {spawn.argv[0]!r}: {error.strerror}") from error
            stat = procfs.read_stat(pid)  # a zombie has one too, and nobody else can have reaped it
            child = Child(pid, trio.current_time(), stat.started_ticks if stat else began)
            self._managed[pid] = child
        finally:
            self._in_flight.remove(began)
            self.collect()  # those whose owner was in doubt, and the newborn if it died at once
        return child

    def release(self, child: Child) -> None:
        """Reap a dead child: from here on its number may be given to a stranger. Doing it twice does nothing."""
        if child.released:
            return
        if not child.exited.is_set():
            raise RuntimeError(f"cannot release process {child.pid}: it has not been seen to end")
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG)
        self._let_go(child)

    def abandon(self, child: Child) -> None:
        """Nobody asks any more how a child ends that has handed over and is left alone: reap it as a stranger."""
        if not child.released:
            self._let_go(child)

    def hand_over(self, child: Child, identity: Identity) -> None:
        """Another process below us is the main one from now on; the one before it is nobody's any more."""
        self._let_go_successor(child)
        child.successor = None
        if identity != child.identity:
            pid, started_ticks = identity
            child.successor = self._successors[pid] = Child(pid, trio.current_time(), started_ticks)
        self.collect()  # the one before it, if it is dead

    async def wait_exit(self, child: Child) -> None:
        """Until it has ended; of no child of ours nothing else tells. Cancelled: waiting again carries on."""
        while self._successors.get(child.pid) is child and not child.exited.is_set():
            await wait_all_dead((child.identity,))
            self.collect()
            stat = procfs.read_stat(child.pid)
            if not child.exited.is_set() and stat is not None and not stat.alive:
                self._end_unknown(child)
        await child.exited.wait()

    def signal(self, child: Child, signum: int) -> bool:
        """Signal the process itself; False if it is dead. Never hits another: an unreleased number is pinned."""
        if child.exited.is_set():
            return False
        if child.pid not in self._managed:
            return signal_process(child.identity, signum)
        os.kill(child.pid, signum)
        return True

    def signal_group(self, child: Child, signum: int) -> bool:
        """Signal all of its process group, its own zombie's orphans included; False if there is none to signal.

        Raise PermissionError if there are members and not one of them may be signalled.
        """
        if child.released:
            return False
        try:
            os.killpg(child.pid, signum)
        except ProcessLookupError:
            return False
        return True

    @contextmanager
    def telling(self, mourner: Callable[[int], None]) -> Iterator[None]:
        """Tell of every orphan that has died, while its zombie still shows whose it was."""
        self._mourners.append(mourner)
        try:
            yield
        finally:
            self._mourners.remove(mourner)

    def collect(self) -> None:
        """Observe deaths of managed children and reap all others that are dead. Never blocks."""
        for child in tuple(self._managed.values()):
            self._observe(child)
        for child in tuple(self._successors.values()):
            self._observe_successor(child)
        self._reap_strangers()

    def _let_go(self, child: Child) -> None:
        self._let_go_successor(child)
        del self._managed[child.pid]
        child.released = True
        self.collect()  # what its zombie may have hidden

    def _let_go_successor(self, child: Child) -> None:
        if child.successor is not None and self._successors.get(child.successor.pid) is child.successor:
            del self._successors[child.successor.pid]

    def _observe_successor(self, child: Child) -> None:
        if child.exited.is_set():
            return
        if is_reaped(child.identity):
            self._end_unknown(child)
            return
        try:
            result = os.waitid(os.P_PID, child.pid, _PEEK)
        except ChildProcessError:
            return  # its parent lives, and will reap it
        if result is not None:
            child.status = exit_status(result)
            child.exited.set()

    def _end_unknown(self, successor: Child) -> None:
        """It is dead, and its number is no longer, or never was, ours to keep. Another may have taken over just now."""
        if self._successors.get(successor.pid) is successor:
            del self._successors[successor.pid]
        successor.status = ExitStatus(None, None)
        successor.exited.set()

    def _observe(self, child: Child) -> None:
        if child.exited.is_set():
            return
        try:
            result = os.waitid(os.P_PID, child.pid, _PEEK)
        except ChildProcessError:
            raise RuntimeError(
                f"the exit status of process {child.pid} is lost: other code of the supervisor has reaped it"
            ) from None
        if result is not None:
            child.status = exit_status(result)
            child.exited.set()
        elif child.stopped is not None:
            stop = os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOHANG)
            if stop is not None:
                child.stopped(stop.si_status)

    def _reap_strangers(self) -> None:
        for _ in range(MAX_REAPED_AT_ONCE):
            if (first := _first_dead()) is None:
                return
            if not self._reap_if_stranger(first):
                # WNOWAIT shows the same child until it is reaped, and this one has to stay: look behind it.
                for pid in _listed_children():
                    self._reap_if_stranger(pid)
                return
        signal.raise_signal(signal.SIGCHLD)  # the kernel has told of all of them already

    def _reap_if_stranger(self, pid: int) -> bool:
        """False if it is not ours to reap, or not dead."""
        if pid in self._managed or pid in self._successors or not self._is_settled(pid):
            return False
        try:
            if self._mourners and os.waitid(os.P_PID, pid, _PEEK) is not None:
                for mourner in self._mourners:
                    mourner(pid)
            reaped = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG) is not None
        except ChildProcessError:
            return False  # a failed newborn that its own spawn has just collected
        self.orphans_reaped += reaped
        return reaped

    def _is_settled(self, pid: int) -> bool:
        if not self._in_flight:
            return True
        stat = procfs.read_stat(pid)
        return stat is not None and certainly_not_newborn(stat, os.getsid(0), min(self._in_flight))


def _avoid_vfork() -> None:
    """CPython before 3.11.4 holds its lock from vfork(2) until exec (gh-104372), and Debian 12 has 3.11.2.

    So one exec that hangs would stop all threads. fork(2) costs a millisecond more and lets go of the lock. The name
    looks private and is the documented switch (library reference, subprocess, "Disabling use of vfork()").
    """
    subprocess._USE_VFORK = False  # type: ignore[misc]


if sys.version_info[:3] < (3, 11, 4):
    _avoid_vfork()


def _listed_children() -> tuple[int, ...]:
    try:
        return procfs.children_of_ours()
    except OSError:
        return ()  # descriptors have run out: whoever stays unseen now is reaped when the next one dies


def _first_dead() -> int | None:
    try:
        result = os.waitid(os.P_ALL, 0, _PEEK)
    except ChildProcessError:
        return None
    return None if result is None else result.si_pid


def ignored_signals() -> frozenset[int]:
    """What we ignore, our children ignore (under nohup, say); SIGPIPE and SIGXFSZ `Popen` restores itself."""
    asked = signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGKILL, signal.SIGSTOP}
    return frozenset(number for number in asked if signal.getsignal(number) is signal.SIG_IGN)


def stop_ignoring_signals() -> None:
    """For units, which are to start the same wherever we were started from."""
    for number in ignored_signals():
        signal.signal(number, signal.SIG_DFL)


def _execute(spawn: Spawn, branding: Branding, cgroups: Cgroups) -> int:
    """Fork and exec, in a worker thread: exec from a dead network mount blocks, and must not block the loop.

    Nor does it hold the interpreter's lock meanwhile, given `_avoid_vfork`.
    """
    if not spawn.argv or not spawn.argv[0]:
        raise SpawnError("cannot execute an empty command")
    credentials = Credentials()
    # The child gets the mask of the thread that forks it; this thread may have been born while signals were blocked.
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, spawn.blocked_signals)
    try:
        credentials = resolve_credentials(spawn)
        with branding.worn(spawn.environment.get("INVOCATION_ID")):
            if spawn.has_settings or (spawn.contained and cgroups.usable):
                process = _open_in_two_steps(spawn, credentials, cgroups)
            else:
                process = _open(spawn, spawn.argv, credentials)
    except SpawnError:
        raise
    except Exception as error:
        raise explain(error, spawn, credentials) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    process.returncode = 0  # `Popen` waits for what it believes alive when it is deleted: waiting is our business
    return process.pid


def _open_in_two_steps(spawn: Spawn, credentials: Credentials, cgroups: Cgroups) -> subprocess.Popen[bytes]:
    """Raise SpawnError or what `_open` raises; then nothing of it is left."""
    invocation_id = spawn.environment.get("INVOCATION_ID") if spawn.contained else None
    with Handover() as handover:
        argv = handover.argv(spawn.argv, credentials)
        process = _open(spawn, argv, Credentials(), handover.inherited)
        try:
            if invocation_id is not None:
                cgroups.enter(invocation_id, process.pid)
            apply_settings(process.pid, spawn)
            if (error := handover.go()) is not None:
                raise error
        except BaseException:
            _abort(process)
            if invocation_id is not None:
                cgroups.remove((invocation_id,))
            raise
        return process


def _open(
    spawn: Spawn, argv: Sequence[str], credentials: Credentials, inherited: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        env=dict(spawn.environment),
        cwd=spawn.working_directory,
        user=credentials.user,
        group=credentials.group,
        extra_groups=credentials.groups,
        umask=-1 if spawn.umask is None else spawn.umask,
        stdin=_or_nothing(spawn.stdin),
        stdout=_or_nothing(spawn.stdout),
        stderr=_or_nothing(spawn.stderr),
        close_fds=True,
        pass_fds=inherited,
        start_new_session=not spawn.stays_in_session,
        process_group=0 if spawn.stays_in_session else None,
    )


def _or_nothing(descriptor: int | None) -> int:
    return subprocess.DEVNULL if descriptor is None else descriptor


def _abort(process: subprocess.Popen[bytes]) -> None:
    """End a process that was started and may not stay. Its spawn is in flight still, so nobody else reaps it."""
    with suppress(PermissionError):  # it has become its user, whom we may not signal, and ends by itself
        os.killpg(process.pid, signal.SIGKILL)
    try:
        process.wait(_ABORTED_SPAWN_SEC)
    except subprocess.TimeoutExpired:
        process.returncode = 0  # hangs in the kernel; whenever it ends it is reaped as a stranger
