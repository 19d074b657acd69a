"""Whether and when a unit that ended is started again: one rule for every way of ending.

Failed spawns, starts that timed out, watchdogs and crashes all come here. The policies are those of
systemd.service(5), the back-off is systemd's RestartSteps with a first restart that is immediate, and the start
limit's window grows with the time a start takes, so that it also binds for units that load for minutes.

Time and chance come in as numbers.
"""

from __future__ import annotations

from enum import Enum, StrEnum, auto

import msgspec
from msgspec.structs import replace

from supervisor.unit.model import RestartPolicy, RestartSettings, StartLimitAction

AUTO_LIMIT_INTERVAL_SEC = 600.0
AUTO_LIMIT_STARTS = 10
"""StartLimitIntervalSec = auto: at least ten minutes, and ten of the longest starts."""

CLEAN_SIGNALS = frozenset({"SIGHUP", "SIGINT", "SIGTERM", "SIGPIPE"})
"""systemd.service(5): death by one of these is a clean end of a service (not of a oneshot)."""


class Result(StrEnum):
    """How an invocation ended; the words of systemd's Result= property."""

    SUCCESS = "success"
    EXIT_CODE = "exit-code"
    """A failing code, of the main process, of a command, or of a spawn that failed (126, 127)."""
    SIGNAL = "signal"
    CORE_DUMP = "core-dump"
    TIMEOUT = "timeout"
    WATCHDOG = "watchdog"
    """It stopped answering: WatchdogSec or a Liveness probe that restarts."""
    HARDWARE = "hardware"
    """A device is gone: nothing that is tried in place can help."""
    PROTOCOL = "protocol"
    """It ended without ever becoming ready, or a process it cannot live without is gone, nobody knows how."""


class CleanExits(Enum):
    """Which ends count as clean (systemd's exit_clean_…)."""

    DAEMON = auto()
    COMMAND = auto()
    """A oneshot: only the code says that its work is done."""
    NEVER = auto()
    """An engine: an exit that nobody asked for is a failure whatever its code."""
    ALWAYS = auto()
    """ExecStart begins with `-`: its failure is ignored."""


_POLICIES = {
    RestartPolicy.NO: frozenset[Result](),
    RestartPolicy.ALWAYS: frozenset(Result),
    RestartPolicy.ON_SUCCESS: frozenset({Result.SUCCESS}),
    RestartPolicy.ON_FAILURE: frozenset(Result) - {Result.SUCCESS},
    RestartPolicy.ON_ABNORMAL: frozenset(Result) - {Result.SUCCESS, Result.EXIT_CODE},
    RestartPolicy.ON_ABORT: frozenset({Result.SIGNAL, Result.CORE_DUMP}),
    RestartPolicy.ON_WATCHDOG: frozenset({Result.WATCHDOG}),
}
"""The table of systemd.service(5), Restart=."""


class Ending(msgspec.Struct, frozen=True):
    """How one invocation of a unit ended."""

    result: Result
    cause: str
    """In words, for people."""
    code: int | None = None
    signal: str | None = None
    core_dumped: bool = False
    asked_by: str | None = None
    """Who asked for it; None: nobody did."""
    pid: int | None = None
    invocation: int = 0
    began_at: float = 0.0
    ended_at: float = 0.0
    healthy_sec: float = 0.0
    """How long it had been ready and well at the end."""

    @property
    def asked(self) -> bool:
        return self.asked_by is not None


class RestartHistory(msgspec.Struct, frozen=True):
    """What the rule remembers of earlier starts."""

    starts: tuple[float, ...] = ()
    """The latest starts, no more than the start limit needs."""
    restarts_in_a_row: int = 0
    """Since it was last healthy for RestartResetSec."""
    longest_start_sec: float = 0.0
    """Failed starts included: a unit that dies after three minutes of loading loads for three minutes."""


class Restart(msgspec.Struct, frozen=True):
    at: float
    history: RestartHistory
    reason: str


class Stay(msgspec.Struct, frozen=True):
    """Down: `failed`, or simply inactive."""

    failed: bool
    history: RestartHistory
    reason: str


class GiveUp(msgspec.Struct, frozen=True):
    """The start limit is hit, or a device is gone; what follows for the supervisor is the arbiter's to decide."""

    history: RestartHistory
    reason: str
    action: StartLimitAction


Decision = Restart | Stay | GiveUp


def decide(settings: RestartSettings, history: RestartHistory, ending: Ending, now: float, jitter: float) -> Decision:
    """What follows an ending; `jitter` is a chance in [0, 1)."""
    if ending.healthy_sec >= settings.reset_sec:
        history = replace(history, restarts_in_a_row=0)
    if ending.asked:
        return Stay(False, history, f"stopped by {ending.asked_by}")
    if not _wants_restart(settings, ending):
        return Stay(ending.result is not Result.SUCCESS, history, f"{ending.cause}; {_refusal(settings, ending)}")
    if ending.result is Result.HARDWARE:
        action = settings.limit_action or StartLimitAction.NONE
        return GiveUp(history, f"{ending.cause}; not tried again in place", action)
    if (limit := _limit_hit(settings, history, now)) is not None:
        action = settings.limit_action or StartLimitAction.NONE
        return GiveUp(history, f"{ending.cause}; {limit}", action)
    delay = backoff(settings, history.restarts_in_a_row, jitter)
    history = replace(history, restarts_in_a_row=history.restarts_in_a_row + 1)
    return Restart(now + delay, history, f"{ending.cause}; {_when(delay)} (Restart={settings.policy})")


def backoff(settings: RestartSettings, restarts_in_a_row: int, jitter: float) -> float:
    """Seconds to wait: nothing at first, then RestartSec growing to RestartMaxDelaySec in RestartSteps steps."""
    if restarts_in_a_row == 0:
        return 0.0
    first, last, steps = settings.delay_sec, settings.max_delay_sec, settings.steps
    if steps <= 0 or first <= 0 or last <= first:
        delay = first
    elif restarts_in_a_row > steps:
        delay = last
    else:
        # The quotient of a delay that is next to nothing may be infinite.
        delay = min(last, first * (last / first) ** ((restarts_in_a_row - 1) / steps))
    return delay * (1 + settings.jitter * jitter)


def started(settings: RestartSettings, history: RestartHistory, now: float) -> RestartHistory:
    """A start begins."""
    return replace(history, starts=(*history.starts, now)[-max(1, settings.limit_burst) :])


def start_took(history: RestartHistory, seconds: float) -> RestartHistory:
    """A start came to its end, good or bad."""
    return replace(history, longest_start_sec=max(history.longest_start_sec, seconds))


def forgiven(history: RestartHistory) -> RestartHistory:
    """Somebody asked for a start: begin to count anew, but remember how long a start takes."""
    return RestartHistory(longest_start_sec=history.longest_start_sec)


def limit_interval(settings: RestartSettings, history: RestartHistory) -> float:
    if settings.limit_interval_sec is not None:
        return settings.limit_interval_sec
    return max(AUTO_LIMIT_INTERVAL_SEC, AUTO_LIMIT_STARTS * history.longest_start_sec)


def result_of_exit(
    settings: RestartSettings, clean: CleanExits, code: int | None, signal: str | None, core_dumped: bool
) -> Result:
    """The result of an exit that nobody asked for. Of one that nobody can know the worst is assumed."""
    if clean is not CleanExits.NEVER and _is_clean(settings, clean, code, signal):
        return Result.SUCCESS
    if signal is None:
        return Result.PROTOCOL if code is None else Result.EXIT_CODE
    return Result.CORE_DUMP if core_dumped else Result.SIGNAL


def exit_words(code: int | None, signal: str | None, core_dumped: bool = False) -> str:
    if signal is None:
        return "ended, nobody knows how: it was no child of ours" if code is None else f"exited with code {code}"
    return f"killed by {signal}" + (", core dumped" if core_dumped else "")


def _is_clean(settings: RestartSettings, clean: CleanExits, code: int | None, signal: str | None) -> bool:
    if clean is CleanExits.ALWAYS or _listed(settings.success_exit_status, code, signal) or code == 0:
        return True
    return clean is CleanExits.DAEMON and signal in CLEAN_SIGNALS


def _listed(statuses: tuple[int | str, ...], code: int | None, signal: str | None) -> bool:
    return (code is not None and code in statuses) or (signal is not None and signal in statuses)


def _wants_restart(settings: RestartSettings, ending: Ending) -> bool:
    if _listed(settings.prevent_exit_status, ending.code, ending.signal):
        return False
    if _listed(settings.force_exit_status, ending.code, ending.signal):
        return True
    return ending.result in _POLICIES[settings.policy]


def _refusal(settings: RestartSettings, ending: Ending) -> str:
    if _listed(settings.prevent_exit_status, ending.code, ending.signal):
        return "not restarted (RestartPreventExitStatus)"
    return f"not restarted (Restart={settings.policy})"


def _limit_hit(settings: RestartSettings, history: RestartHistory, now: float) -> str | None:
    interval = limit_interval(settings, history)
    if settings.limit_burst <= 0 or interval <= 0:
        return None  # switched off, as in systemd
    recent = sum(1 for start in history.starts if start > now - interval)
    if recent < settings.limit_burst:
        return None
    return f"start limit hit: {recent} starts within {interval:g} s (StartLimitBurst={settings.limit_burst})"


def _when(delay: float) -> str:
    return "restarting at once" if delay == 0 else f"restarting in {delay:.3g} s"
