"""A skipped test says why, also if it is a coroutine."""

import subprocess
import sys
from pathlib import Path

SKIPPED = """
import pytest

async def test_skipped() -> None:
    pytest.skip("the moon is not full")
"""


def test_the_reason_of_a_skip_is_shown(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_call\n")
    (tmp_path / "test_skipped.py").write_text(SKIPPED)
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "-o", "trio_mode=true", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert "the moon is not full" in done.stdout
