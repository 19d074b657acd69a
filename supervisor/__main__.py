"""`podvisor …` and `python -m supervisor …`.

The kernel drops SIGTERM for PID 1 while nothing handles it, and importing takes a tenth of a second: so the
signals are blocked by the first statement, and unblocked by whoever handles them (trio-notes §1).
"""

from __future__ import annotations

import signal
import sys

LONG_RUNNING = ("run", "controller")
inherited_mask: set[int] = set()

if sys.argv[1:2] and sys.argv[1] in LONG_RUNNING:
    inherited_mask = signal.pthread_sigmask(
        signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1}
    )


def main() -> None:
    from supervisor.cli import podvisor
    from supervisor.cli.lost_output import ends_when_output_is_lost

    with ends_when_output_is_lost():
        podvisor(prog_name="podvisor", obj=frozenset(inherited_mask))


if __name__ == "__main__":
    main()
