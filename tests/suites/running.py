"""Runs one suite against one init; every process that it leaves behind is ended."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import trio

from tests.suites.cases import DUMB_INIT_NOT_APPLICABLE, TINI_NOT_APPLICABLE, matches, why_not
from tests.support.running_supervisor import program

_HERE = Path(__file__).parent
_SCALE = float(os.environ.get("PODVISOR_TEST_TIMEOUT_SCALE", "1"))
_WHOLE_SUITE_SEC = 1800 * _SCALE
CONTROLS = {"dumb-init": "wait", "tini": "exec"}
_CASE_SEC = {"podvisor": 600 * _SCALE, "wait": 4, "exec": 20}
"""Under a control many cases wait for what never comes."""


class Outcome(msgspec.Struct, frozen=True):
    failures: Mapping[str, str | None]
    """Of each case that was run: None if it passed, else what was wrong."""
    not_applicable: Mapping[str, str]
    """Case -> reason."""
    said: str
    """All that the suite wrote."""

    @property
    def passed(self) -> list[str]:
        return [name for name, failure in self.failures.items() if failure is None]

    @property
    def failed(self) -> list[str]:
        return [name for name, failure in self.failures.items() if failure is not None]

    def summary(self) -> str:
        return f"{len(self.passed)} passed, {len(self.failed)} failed, {len(self.not_applicable)} not applicable"


async def run_dumb_init(suite: Path, directory: Path, init: str, only: Sequence[str] = ("*",)) -> Outcome:
    """`suite` is a checkout that may be written to, `directory` is for files of ours."""
    shim = _shim(directory, "dumb-init", init)
    listing = await _run([*_pytest(), "--collect-only"], suite, shim.parent)
    cases = [_without_directory(line) for line in listing.splitlines() if "::" in line]
    not_applicable = {name: reason for name in cases if (reason := why_not(name, DUMB_INIT_NOT_APPLICABLE))}
    chosen = [name for name in cases if name not in not_applicable and matches(name, only)]
    report = directory / "report.xml"
    options = [f"--junitxml={report}", f"--timeout={_CASE_SEC[init]:.0f}", "-o", "junit_family=xunit1"]
    said = await _run([*_pytest(), *options, *(f"tests/{_with_suffix(name)}" for name in chosen)], suite, shim.parent)
    failures = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.attrib['classname'].removeprefix('tests.')}::{case.attrib['name']}"
        problems = [*case.iter("failure"), *case.iter("error"), *case.iter("skipped")]
        failures[name] = problems[0].attrib.get("message", "") if problems else None
    return Outcome(failures, not_applicable, said)


def _pytest() -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "plugin"]


def _without_directory(line: str) -> str:
    return line.removeprefix("tests/").replace(".py::", "::")


def _with_suffix(name: str) -> str:
    return name.replace("::", ".py::", 1)


async def run_tini(suite: Path, directory: Path, init: str) -> Outcome:
    """As `run_dumb_init`. Needs a C compiler: one of the suite's helpers is written in C."""
    shim = _shim(directory, "tini", init)
    source = suite / "test" / "sigconf" / "sigconf-test.c"
    subprocess.run(["cc", "-o", str(directory / "sigconf-test"), str(source)], check=True)
    variables = {"SOURCE_DIR": str(suite), "BUILD_DIR": str(directory), "FORCE_SUBREAPER": "1"}
    cases = [sys.executable, str(_HERE / "tini_cases.py"), str(suite / "test" / "run_inner_tests.py")]
    said = await _run([*cases, f"{_CASE_SEC[init]:.0f}"], suite, shim.parent, **variables)
    failures: dict[str, str | None] = {}
    for line in said.splitlines():
        if line.startswith('{"case": '):
            told = json.loads(line)
            name = told["case"].replace(f"{suite}/test/", "").replace(f"{directory}/", "")
            failures[name] = told["failure"]
    not_applicable = {name: reason for name in failures if (reason := why_not(name, TINI_NOT_APPLICABLE))}
    return Outcome(
        {name: failure for name, failure in failures.items() if name not in not_applicable}, not_applicable, said
    )


def _shim(directory: Path, name: str, init: str) -> Path:
    """A program of that name, and what else the suites look for on PATH."""
    shim = directory / name
    command = shlex.join([sys.executable, "-I", "-S", str(_HERE / "shim.py"), name, init])
    shim.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    shim.chmod(0o755)
    python = directory / "python"
    if not python.exists():
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        python.chmod(0o755)
    return shim


async def _run(command: Sequence[str], cwd: Path, first_on_path: Path, **variables: str) -> str:
    """What it wrote to standard output, whatever it exited with."""
    assigned = {
        "PATH": f"{first_on_path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{_HERE}:{_HERE / 'stand_ins'}:{cwd}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PODVISOR_TEST_TIMEOUT_SCALE": str(_SCALE),
        **variables,
    }
    pairs = [f"{name}={value}" for name, value in assigned.items()]
    async with program("env", "-C", str(cwd), *pairs, *command, stdin=subprocess.DEVNULL) as running:
        with trio.fail_after(_WHOLE_SUITE_SEC):
            await running.process.wait()
        with trio.move_on_after(1):
            await running.stdout.ended.wait()  # what is left behind may hold it
        return str(running.stdout)
