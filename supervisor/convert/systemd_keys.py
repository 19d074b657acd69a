"""Which keys of systemd are carried over, by the way in which they are. What is not here: `unit/systemd_losses.py`."""

from __future__ import annotations

from collections.abc import Mapping

AS_IT_IS = (
    "Restart", "KillSignal", "FinalKillSignal", "WatchdogSignal", "User", "Group", "UMask", "ExitType",
)  # fmt: skip
BOOLEANS = ("RemainAfterExit", "SendSIGKILL")
NUMBERS = ("RestartSteps", "StartLimitBurst", "Nice", "OOMScoreAdjust", "LogRateLimitBurst")
DURATIONS = ("RestartMaxDelaySec", "TimeoutAbortSec", "StartLimitIntervalSec", "LogRateLimitIntervalSec")
STATUSES = ("SuccessExitStatus", "RestartPreventExitStatus", "RestartForceExitStatus")
NAMES = ("PassEnvironment", "UnsetEnvironment", "SupplementaryGroups")
OLD_NAMES = {"StartLimitInterval": "StartLimitIntervalSec"}
START_LIMIT = ("StartLimitIntervalSec", "StartLimitBurst", "StartLimitAction")
DEPENDENCIES = ("After", "Before", "Requires", "Wants", "BindsTo", "PartOf", "Conflicts", "Requisite")
COMMANDS = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost")
NOTIFY_ACCESS = {"main": "main", "exec": "main", "all": "all"}
"""Commands are given no NOTIFY_SOCKET."""
IO_CLASSES = {"1": "realtime", "2": "best-effort", "3": "idle"}

TYPES: Mapping[str, tuple[str, str]] = {
    "simple": ("exec", ""),
    "exec": ("exec", ""),
    "oneshot": ("oneshot", ""),
    "notify": ("notify", ""),
    "notify-reload": ("notify", "there is no reload of a unit"),
    "idle": ("exec", "it does not wait until other jobs are done: say After"),
    "dbus": ("exec", "there is no D-Bus in a container: it counts as started once it is executed; add [Readiness]"),
    "forking": ("exec", "the unit lives as long as any process of it (ExitType cgroup) and counts as started at once:"
                        " better run the program in the foreground"),
}  # fmt: skip
