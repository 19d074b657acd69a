"""What the guide shows is taken by the parser, so that nobody copies a mistake out of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller.settings import load as load_controller_settings
from supervisor.cli.verify import as_text, verify
from supervisor.settings import load_settings
from supervisor.unit.errors import ConfigurationError
from supervisor.unit.parse import load_units

DOCS = Path(__file__).parents[2] / "docs"
FENCED = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
STORE = '[Service]\nExecStart = ["true"]\n'


def examples(page: str) -> list[str]:
    return FENCED.findall((DOCS / page).read_text())


EXAMPLES = examples("guide.md")
SAMPLE = DOCS / "reference" / "podvisor.sample.toml"


def test_the_guide_has_examples() -> None:
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("text", EXAMPLES, ids=range(len(EXAMPLES)))
def test_every_example_of_the_guide_is_a_unit(text: str, tmp_path: Path) -> None:
    (tmp_path / "example.toml").write_text(text)
    for name in ("kv-store", "weights"):
        (tmp_path / f"{name}.toml").write_text(STORE)
    drop_in = "ExecStart" not in text and "Launcher" not in text
    if drop_in:
        (tmp_path / "example.toml").unlink()
        folder = tmp_path / "kv-store.toml.d"
        folder.mkdir()
        (folder / "more.toml").write_text(text)
    try:
        units = load_units([tmp_path])
    except ConfigurationError as error:
        pytest.fail("\n".join(str(problem) for problem in error.problems))
    assert drop_in or "example" in [unit.name for unit in units]


@pytest.mark.seed("S30")
def test_the_sample_settings_say_what_holds_without_them(tmp_path: Path) -> None:
    """Every key that has a default, with its mark taken away, changes nothing, for either program."""
    config = tmp_path / "podvisor.toml"
    config.write_text(re.sub(r"^#(\w+ = .+)$", r"\1", SAMPLE.read_text(), flags=re.MULTILINE))
    assert config.read_text().count("\nenable_engine_relaunch = true\n") == 1
    assert load_settings(config, {}) == load_settings(None, {})
    assert load_controller_settings(config, {}) == load_controller_settings(None, {})


def test_the_long_load_of_the_operations_guide_is_judged_as_it_says(tmp_path: Path) -> None:
    page = (DOCS / "operations.md").read_text()
    unit, settings = FENCED.findall(page)[:2]
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "engine.toml").write_text(unit)
    config = tmp_path / "podvisor.toml"
    config.write_text(settings)
    report = verify([tmp_path / "units"], config, {"PATH": "/nonexistent"}, elsewhere=True)
    assert f"units\n{as_text(report)}\n```" in page
    assert report.grace_period_sec == 100
    load_controller_settings(config, {})
    config.write_text(settings.replace("engine_restart_freeze_sec = 1200", "engine_restart_freeze_sec = 720"))
    with pytest.raises(ConfigurationError) as refused:
        load_controller_settings(config, {})
    (problem,) = refused.value.problems
    assert str(problem).replace(str(config), "podvisor.toml") in page


def test_the_settings_of_several_controllers_are_taken_by_both_programs(tmp_path: Path) -> None:
    config = tmp_path / "podvisor.toml"
    of_controllers, of_supervisors = examples("high-availability.md")
    config.write_text(of_controllers + of_supervisors.replace("[supervisor]\n", '[supervisor]\npod_ip = "10.0.0.2"\n'))
    controller = load_controller_settings(config, {})
    assert (controller.controller.store, len(controller.etcd.endpoints)) == ("etcd", 3)
    assert len(load_settings(config, {}).supervisor.controller_url) == 2
