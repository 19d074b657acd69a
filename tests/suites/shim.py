"""Called as dumb-init or tini, does what was asked by `podvisor run -- COMMAND`: `shim.py NAME INIT [FLAG…] COMMAND…`.

INIT is `podvisor`, or one of two negative controls: `exec`, no init at all, and `wait`, an init that starts the command
and does nothing but wait for it. Takes the flags that the suites use and no others. Needs nothing but Python.
"""

from __future__ import annotations

import ctypes
import getopt
import os
import signal
import sys
from collections.abc import Sequence

PODVISOR = (sys.executable, "-P", "-m", "supervisor", "run")
_PR_SET_PDEATHSIG = 1
_JOB_SIGNALS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


def from_dumb_init(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options of `podvisor run`, and the command."""
    flags, command = getopt.getopt(list(arguments), "+cr:v", ["single-child", "rewrite=", "verbose"])
    single = os.environ.get("DUMB_INIT_SETSID") == "0" or any(flag in ("-c", "--single-child") for flag, _ in flags)
    # In that mode dumb-init passes them on as they are; podvisor does so when told.
    pairs = [f"{number:d}:{number:d}" for number in _JOB_SIGNALS] if single else []
    pairs += [value for flag, value in flags if flag in ("-r", "--rewrite")]
    return [f"--rewrite={pair}" for pair in pairs], command


def from_tini(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """-s and -g ask for what podvisor always does; -v and -w for words that it does not say."""
    flags, command = getopt.getopt(list(arguments), "+sgvwe:p:")
    for name in (value for flag, value in flags if flag == "-p"):
        # What `setpriv --pdeathsig` does: exec keeps it, and podvisor passes the signal on like any other.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.Signals[name]), 0, 0, 0)
    return [f"--success-exit-status={value}" for flag, value in flags if flag == "-e"], command


def main(name: str, init: str, arguments: Sequence[str]) -> None:
    read = {"dumb-init": from_dumb_init, "tini": from_tini}[name]
    options, command = read(arguments)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and exec would keep that
    if init == "wait":
        status = os.spawnvp(os.P_WAIT, command[0], command)
        sys.exit(status if status >= 0 else 128 - status)
    argv = [*PODVISOR, *options, "--", *command] if init == "podvisor" else command
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
