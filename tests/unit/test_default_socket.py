"""Where a command looks for the supervisor that nobody has named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.client import default_socket

SYSTEM = Path("/run/podvisor/podvisor.sock")


@pytest.mark.parametrize("is_there", [False, True])
def test_a_directory_of_another_user_is_passed_by_for_the_own_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    stat = os.stat

    def refused(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if str(path) == str(SYSTEM):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *args, **kwargs)

    own = tmp_path / f"podvisor-{os.getuid()}" / "podvisor.sock"
    own.parent.mkdir()
    if is_there:
        own.touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os, "stat", refused)
    assert default_socket() == (own if is_there else SYSTEM)
