"""What a unit's file may turn out to be: PID 1 reads it, and may neither wait for it nor be filled by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.service.credentials import CredentialError, read_credentials
from supervisor.service.environment import EnvironmentFileError, read_environment_files
from supervisor.shared.small_file import read_small


def test_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\n" * 100_000)
    assert read_small(path) == b"a\n" * 100_000


def test_a_pipe_that_nobody_writes_into_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert read_environment_files((str(pipe),)) == {}
    with pytest.raises(CredentialError, match="is empty"):
        read_credentials([("token", str(pipe))])


def test_what_never_ends_is_refused() -> None:
    with pytest.raises(EnvironmentFileError, match="larger than"):
        read_environment_files(("/dev/zero",))
    with pytest.raises(CredentialError, match="larger than"):
        read_credentials([("token", "/dev/zero")])
