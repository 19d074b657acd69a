"""The prefix: one directory that runs podvisor with the Python of whatever image it is copied into."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.conftest import DEPLOY, SUPPORTED
from tests.deploy.images import Python, pythons
from tests.deploy.podman import PROJECT
from tests.support.real_processes import TIMEOUT_SEC

UNCHECKED = 0b01
"""PEP 552: a pyc by hash, not to be compared with its source."""


def run(*command: str | Path, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, env={"PATH": path}, cwd="/", timeout=TIMEOUT_SEC
    )


def unit(directory: Path) -> Path:
    directory.mkdir()
    (directory / "web.toml").write_text('[Service]\nExecStart = ["sleep", "600"]\n')
    return directory


def test_it_runs_from_wherever_it_is_moved_and_through_a_link(prefix: Path, python: Python, tmp_path: Path) -> None:
    moved = shutil.copytree(prefix, tmp_path / "elsewhere" / "copy")
    link = tmp_path / "podvisor"
    link.symlink_to(moved / "bin" / "podvisor")
    verified = run(python.program, "-I", "-S", link, "verify", unit(tmp_path / "units"))
    assert (verified.returncode, verified.stderr) == (0, "")
    assert run(python.program, "-I", "-S", link, "run", "--", "sh", "-c", "exit 7").returncode == 7
    assert "controller" in run(python.program, "-I", "-S", link, "--help").stdout
    shipped = moved / "share" / "podvisor" / "units"
    assert {path.name for path in shipped.iterdir()} == {path.name for path in (PROJECT / "units").iterdir()}


def test_it_imports_nothing_of_the_environment_of_the_engine(prefix: Path, python: Python, tmp_path: Path) -> None:
    """Neither by site-packages nor by variables; and what it starts has the variables as they were."""
    (tmp_path / "click.py").write_text("raise ImportError('the wrong click')")
    (tmp_path / "python3").symlink_to(python.program)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "PYTHONHOME": "/nonexistent"}
    shown = 'test "$PYTHONPATH" = "$0" && test "$PYTHONHOME" = /nonexistent'
    command = [str(prefix / "bin" / "podvisor"), "run", "--", "sh", "-c", shown, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_its_bytecode_is_whole_and_asks_for_no_source(prefix: Path, python: Python) -> None:
    tag = f"cpython-{python.version.replace('.', '')}"
    sources = list(prefix.joinpath("lib").rglob("*.py"))
    assert len(sources) > 500
    for source in sources:
        compiled = source.parent / "__pycache__" / f"{source.stem}.{tag}.pyc"
        assert int.from_bytes(compiled.read_bytes()[4:8], "little") == UNCHECKED, compiled


def test_an_image_with_another_python_runs_it_too(prefix: Path, another_python: Python, tmp_path: Path) -> None:
    launcher = prefix / "bin" / "podvisor"
    done = run(another_python.program, "-I", "-S", launcher, "verify", unit(tmp_path / "units"))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_python_that_does_not_fit_is_replaced_by_one_that_does(prefix: Path, python: Python, tmp_path: Path) -> None:
    (tmp_path / python.program.name).symlink_to(python.program)
    launcher = prefix / "bin" / "podvisor"
    done = run(too_old(), "-I", "-S", launcher, "--version", path=f"{tmp_path}:/bin")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_image_without_a_python_that_fits_says_what_is_needed(
    prefix: Path, supported: list[Python], tmp_path: Path
) -> None:
    done = run(too_old(), "-I", "-S", prefix / "bin" / "podvisor", "--version", path=str(tmp_path))
    assert done.returncode == 78
    versions = sorted({supported[0].version, supported[-1].version}, reverse=True)
    assert f"is built for {' or '.join(f'python{version}' for version in versions)} on " in done.stderr
    assert "install one of those in this image" in done.stderr


def test_an_image_needs_some_python3_or_a_command_that_names_its_python(
    prefix: Path, python: Python, tmp_path: Path
) -> None:
    """As docs/containers.md has it: the beginning of bin/podvisor is run by env, which looks for `python3`."""
    launcher = prefix / "bin" / "podvisor"
    fitting = tmp_path / f"python{python.version}"
    fitting.symlink_to(python.program)
    assert run(launcher, "--version", path=str(tmp_path)).returncode == 127
    assert run(fitting, "-I", "-S", launcher, "--version", path=str(tmp_path)).returncode == 0
    (tmp_path / "python3").symlink_to(too_old())
    assert run(launcher, "--version", path=str(tmp_path)).returncode == 0


def test_one_that_only_bears_the_name_of_a_python_that_fits_is_not_tried_for_ever(prefix: Path, tmp_path: Path) -> None:
    old = too_old()
    for version in SUPPORTED:
        (tmp_path / f"python{version}").symlink_to(old)
    done = run(old, "-I", "-S", prefix / "bin" / "podvisor", "--version", path=str(tmp_path))
    assert done.returncode == 78


def too_old() -> Path:
    """A Python that is too old, from those of this machine."""
    old = [python for version, python in pythons().items() if int(version.split(".")[1]) < 11]
    if not old:
        pytest.skip("no Python before 3.11 in /usr/bin, /usr/local/bin or pyenv")
    return max(old, key=lambda python: int(python.version.split(".")[1])).program


def test_two_versions_of_a_package_are_refused(wheels: Path, tmp_path: Path) -> None:
    both = shutil.copytree(wheels, tmp_path / "wheels")
    with ZipFile(both / "trio-0-py3-none-any.whl", "w") as other:
        other.writestr("trio/_version.py", "another")
    done = run(sys.executable, DEPLOY / "prefix.py", "--wheels", both, tmp_path / "prefix")
    assert done.returncode == 1
    assert "disagree about lib/trio/_version.py: have one version of each package" in done.stderr


def test_wheels_without_podvisor_or_without_a_python_are_refused(tmp_path: Path) -> None:
    empty = run(sys.executable, DEPLOY / "prefix.py", "--wheels", tmp_path, tmp_path / "first")
    assert (empty.returncode, "holds no wheel of podvisor" in empty.stderr) == (1, True)
    with ZipFile(tmp_path / "podvisor-0-py3-none-any.whl", "w") as pure:
        pure.writestr("supervisor/__init__.py", "")
    done = run(sys.executable, DEPLOY / "prefix.py", "--wheels", tmp_path, tmp_path / "second")
    assert (done.returncode, "hold no extension modules" in done.stderr) == (1, True)


def test_what_is_locked_is_what_the_project_asks_for() -> None:
    locked = dict(re.findall(r"^([\w-]+)==(\S+)", (DEPLOY / "requirements.txt").read_text(), re.MULTILINE))
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    for requirement in map(Requirement, project["dependencies"]):
        assert locked[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_the_launcher_and_the_unpacking_can_be_read_by_pythons_that_are_too_old() -> None:
    for version, python in sorted(pythons().items()):
        for program in ("launcher.py", "unpacking.py"):
            source = f"import ast; ast.parse(open({os.fspath(DEPLOY / program)!r}).read())"
            assert run(python.program, "-I", "-c", source).returncode == 0, (version, program)


def test_the_versions_that_the_image_is_built_for_are_those_that_are_supported() -> None:
    containerfile = (DEPLOY / "Containerfile").read_text()
    assert f'ARG PYTHONS="{" ".join(SUPPORTED)}"' in containerfile


def test_what_the_project_imports_is_in_the_prefix(prefix: Path) -> None:
    """A module that is imported late would be missed late."""
    found = {path.stem for path in prefix.joinpath("lib").iterdir()}
    for path in (*PROJECT.joinpath("supervisor").rglob("*.py"), *PROJECT.joinpath("controller").rglob("*.py")):
        for name in re.findall(r"^\s*(?:from|import) ([a-z_0-9]+)", path.read_text(), re.MULTILINE):
            known = name in sys.stdlib_module_names or name in found or name in OPTIONAL
            assert known or importlib.util.find_spec(name) is None, f"{path} imports {name}"


OPTIONAL = {"matplotlib", "numpy", "gguf"}
"""Asked for by the demo and by pictures, said to be missing otherwise."""
