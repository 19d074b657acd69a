"""A command whose output cannot be written ends with an exit code and at most one line; other errors stay errors."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from supervisor.cli.lost_output import ends_when_output_is_lost

GONE = BrokenPipeError(errno.EPIPE, "Broken pipe")
FULL = OSError(errno.ENOSPC, "No space left on device")
PODVISOR = (sys.executable, "-m", "supervisor")


def test_a_full_device_is_one_line_and_no_trace() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PODVISOR, "schema"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "podvisor: cannot write the output: No space left on device\n")


def test_a_reader_that_has_gone_is_no_word_at_all() -> None:
    with subprocess.Popen([*PODVISOR, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 1


def test_also_out_of_nurseries() -> None:
    """In a process of its own: its standard streams are given up."""
    code = """
from tests.unit.test_lost_output import FULL, GONE, ends_when_output_is_lost
with ends_when_output_is_lost():
    raise ExceptionGroup("outer", [ExceptionGroup("inner", [GONE]), FULL])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "podvisor: cannot write the output: No space left on device\n")


@pytest.mark.parametrize(
    "raised", [ValueError("a bug"), OSError(errno.EIO, "bad disk"), ExceptionGroup("", [GONE, ValueError("a bug")])]
)
def test_an_error_of_ours_is_raised(raised: Exception) -> None:
    with pytest.raises(type(raised)), ends_when_output_is_lost():
        raise raised
