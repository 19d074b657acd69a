"""Keys of systemd that have no counterpart, and why. Names: systemd.unit(5), .service(5), .exec(5), .kill(5),
.resource-control(5), .install(5).
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

_SANDBOX = "a unit runs in the container's sandbox: securityContext, seccomp and mounts are the pod's"
_RESOURCES = "limits of cpu, memory and tasks are the pod's resources; LimitX and Nice are a unit's"
_DIRECTORY = "no directory is made for a unit: make it in the image, as a volume, or in ExecStartPre"
_CONDITION = "only ConditionPathExists, ConditionEnvironment and ConditionNodeRank are there"
_ACTION = "only StartLimitAction can end the supervisor, or a unit's own Restart policy restarts it"
_STARTED = "every unit in a directory of units is started"
_SOCKETS = "there is no socket activation: the program listens itself"
_MANAGER = "this is about systemd's own jobs or its manager"
_JOURNAL = "there is no journal: lines go to the container's output, or where StandardOutput says"

_SILENT = (
    "Service.GuessMainPID", "Service.TTY*", "Service.SendSIGHUP", "Unit.SourcePath",
    "Unit.DefaultDependencies", "Service.RootDirectoryStartOnly", "Service.IgnoreSIGPIPE",
)  # fmt: skip
"""Lost without harm, but said all the same."""

_WHY: Mapping[str, str] = {
    "Install.*": f"{_STARTED}; requirements are written into the unit that has them",
    "Unit.Condition*": _CONDITION,
    "Unit.Assert*": _CONDITION,
    "Unit.On*": _ACTION,
    "Unit.*Action": _ACTION,
    "Unit.*ActionExitStatus": _ACTION,
    "Unit.Job*": _MANAGER,
    "Unit.Upholds": "nothing is restarted because another unit wants it up: its own Restart does that",
    "Unit.PropagatesReloadTo": "there is no reload of a unit",
    "Unit.ReloadPropagatedFrom": "there is no reload of a unit",
    "Unit.PropagatesStopTo": "name this unit in the other's BindsTo or PartOf",
    "Unit.StopPropagatedFrom": "name the other in BindsTo or PartOf of this one",
    "Unit.JoinsNamespaceOf": _SANDBOX,
    "Unit.RequiresMountsFor": "mounts are there before the container starts",
    "Unit.WantsMountsFor": "mounts are there before the container starts",
    "Service.ExecReload": "there is no reload of a unit: `podvisor restart` is what there is",
    "Service.ExecCondition": f"{_CONDITION}; an ExecStartPre that fails fails the unit",
    "Service.PIDFile": "processes are known by their parents and sessions, not by a file",
    "Service.BusName": "there is no D-Bus in a container",
    "Service.Sockets": _SOCKETS,
    "Service.FileDescriptor*": _SOCKETS,
    "Service.OpenFile": _SOCKETS,
    "Service.NonBlocking": _SOCKETS,
    "Service.RuntimeMaxSec": "no unit is ended for having run long enough",
    "Service.RuntimeRandomizedExtraSec": "no unit is ended for having run long enough",
    "Service.RestartMode": "what dependents do is written in them: OnDependencyRestart",
    "Service.RestartKillSignal": "a restart stops a unit with KillSignal too, within RelaunchTimeoutStopSec",
    "Service.Timeout*FailureMode": "a start or stop that takes too long is ended by the stop ladder",
    "Service.OOMPolicy": "the kernel ends processes, the unit's Restart decides about the unit",
    "Service.StandardInput*": "a unit's standard input is empty",
    "Service.Syslog*": _JOURNAL,
    "Service.Log*": _JOURNAL,
    "Service.*Directory": _DIRECTORY,
    "Service.*DirectoryMode": _DIRECTORY,
    "Service.RuntimeDirectoryPreserve": _DIRECTORY,
    "Service.PermissionsStartOnly": "ExecStartPre and its like run as the unit's User",
    "Service.DynamicUser": "no user is made up: say User",
    "Service.*Credential*": "only LoadCredential with an absolute path is there",
    "Service.CPUScheduling*": "only Nice, CPUAffinity and IOSchedulingClass are set",
    "Service.IOSchedulingPriority": "only the class is set: IOSchedulingClass",
    "Service.CoredumpFilter": "core dumps are the node's business; LimitCORE is a unit's",
    "Service.PAMName": "there are no sessions of PAM",
    "Service.Utmp*": "there is no utmp in a container",
    "Service.Keyring*": _SANDBOX,
    "Service.NUMA*": "only CPUAffinity is set",
    "Service.ImportCredential": "only LoadCredential with an absolute path is there",
    **dict.fromkeys(
        ("Service.Private*", "Service.Protect*", "Service.Restrict*", "Service.NoNewPrivileges", "Service.Capability*",
         "Service.AmbientCapabilities", "Service.SystemCall*", "Service.SecureBits", "Service.ReadWritePaths",
         "Service.*Directories",
         "Service.ReadOnlyPaths", "Service.InaccessiblePaths", "Service.ExecPaths", "Service.NoExecPaths",
         "Service.Bind*", "Service.TemporaryFileSystem", "Service.Mount*", "Service.Root*", "Service.Lock*",
         "Service.MemoryDeny*", "Service.ProcSubset", "Service.RemoveIPC", "Service.Personality",
         "Service.SELinuxContext", "Service.AppArmorProfile", "Service.SmackProcessLabel", "Service.Network*",
         "Service.IPC*", "Service.User*", "Service.Extension*"),
        _SANDBOX,
    ),
    **dict.fromkeys(
        ("Service.CPU*", "Service.Memory*", "Service.Tasks*", "Service.IO*", "Service.Block*", "Service.Allowed*",
         "Service.Startup*", "Service.Slice", "Service.Delegate*", "Service.Device*", "Service.IPAddress*",
         "Service.*Accounting", "Service.ManagedOOM*", "Service.Default*", "Service.TimerSlackNSec",
         "Service.Socket*", "Service.DisableControllers"),
        _RESOURCES,
    ),
    **dict.fromkeys(_SILENT, "it means nothing here"),
}  # fmt: skip


def why_lost(name: str) -> str | None:
    """`Service.PrivateTmp` -> why; None for what is not known."""
    return next((why for pattern, why in _WHY.items() if fnmatchcase(name, pattern)), None)
