"""What is said of an engine or a model that is not here."""

from pathlib import Path

import pytest

from controller.demo.engines import REAL_MODEL, EngineMissing, find_engines, real_model


def test_a_model_that_nobody_asked_for_is_missing_with_the_command_that_brings_it(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match="make engines REAL_MODEL=yes"):
        real_model(find_engines(tmp_path))


def test_a_model_that_could_not_be_brought_is_missing_with_the_installers_reason(tmp_path: Path) -> None:
    (tmp_path / "missing.json").write_text(f'{{"{REAL_MODEL}": "the disk is full"}}')
    with pytest.raises(EngineMissing, match="the disk is full"):
        real_model(find_engines(tmp_path))
