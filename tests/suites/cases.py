"""What of the suites applies to podvisor, and what a negative control has to fail.

Names are `FILE::TEST` for dumb-init, the announced line without paths for tini; patterns are fnmatch(3)'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

_SINGLE_CHILD = "podvisor has no single-child mode: signals go to the whole group and nothing outlives the command"

DUMB_INIT_NOT_APPLICABLE: Mapping[str, str] = {
    "cli_test::*": "the words of dumb-init's own help, version, errors and debug output",
    "child_processes_test::test_no_setsid_doesnt_signal_entire_group*": _SINGLE_CHILD,
    "child_processes_test::test_processes_dont_receive_term_on_exit_if_no_setsid*": _SINGLE_CHILD,
    "child_processes_test::test_all_processes_receive_term_on_exit_if_setsid*": (
        "what it asserts holds, but then it kills a process that podvisor has waited for and ended: there is none;"
        " ours: test_what_the_command_leaves_behind_is_asked_first"
    ),
    "child_processes_test::test_fails_nonzero_with_bad_exec*": (
        "dumb-init's words and its status 2; ours are 126 and 127: test_a_command_that_cannot_be_executed"
    ),
    "tty_test::test_sighup_sigcont_ignored_if_was_session_leader": (
        "reads debug output; podvisor lends its terminal instead of giving it up, so no such SIGHUP comes"
    ),
}
DUMB_INIT_CONTROL_FAILS = (
    "child_processes_test::test_setsid_signals_entire_group*",
    "cwd_test::*",
    "proxies_signals_test::*",
    "shell_background_test::*",
)
"""By an init that only waits. It has the exit statuses right, and the terminal: its command shares the group."""

TINI_NOT_APPLICABLE: Mapping[str, str] = {
    "Running reaping display test*": "tini's -w says which orphans it reaped; podvisor reaps them without a word",
    "Running zombie reaping failure test*": "tini warns when it is not asked to be a subreaper; podvisor always is one",
}
TINI_CONTROL_FAILS = (
    "Running exit code test*",
    "Running reaping test*",
    "running signal test*",
    "Running process group test*",
)
"""Without any init. The command gets the signals' configuration and the parent's death as they are, then."""


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def why_not(name: str, not_applicable: Mapping[str, str]) -> str | None:
    """Why a case does not apply; None if it does."""
    return next((reason for pattern, reason in not_applicable.items() if fnmatchcase(name, pattern)), None)
