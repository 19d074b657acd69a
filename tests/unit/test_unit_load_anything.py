"""Whatever text a key is given: `load` returns units or raises ConfigurationError, nothing else.

What comes out of it otherwise ends a running pod, because a reload reads the files too.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from supervisor.unit.errors import ConfigurationError, Problem
from supervisor.unit.keys import SECTIONS, Table
from supervisor.unit.parse import load_units

ODD = (
    '"a\\u0000b"', '"\\ud7ff\\U0001F600"', '""', '" "', '"${X:-"', '"${"', '"$$"', '"%i"', "nan", "inf", "-inf",
    "1e308", "9" * 25, "9" * 400, "9" * 5000, f"0x{'f' * 40}", f"0x{'f' * 5000}", "-1", "0", "-9223372036854775809",
    "1979-05-27", "07:32:00", "true", "[]", "[[]]", '[""]', '["-"]', '[["-"]]', '["a\\u0000b"]', "{}", "{a = 1}",
    "{a = {b = 1979-05-27}}", f"{'[' * 50}{']' * 50}", f"{'[' * 200}{']' * 200}", f"{'[' * 3000}{']' * 3000}",
    '"a{99999999999999999999}"', '"("', f'"{"(" * 90}{")" * 90}"', f'"{"(" * 3000}{")" * 3000}"', '"0-99999999999"',
    f'"{"9" * 25}"', f'"{"9" * 400}s"', f'"{"9" * 400}.0"', f'"{"9" * 5000}"', '"1e400s"', '"infinity"', '"-1"',
    '"18446744073709551615"', '"9223372036854775808:infinity"', '"http://[::1"', '"http://h:99999999/"', '"h:99999"',
    f'"h:{"9" * 5000}"', '"tcp://h:99999"', '"x:/a\\u0000b"', '"file:a\\u0000b"', '"nvml"', "[99999999999]",
    '"SIGRTMAX"', '["SIGRTMIN+99"]', '"\\u0661"', '"²"', '["²"]', '"a=b"', '["=x"]', '"::"', '"[::1]:1"',
)  # fmt: skip


def keys(table: Table, before: str = "") -> Iterator[str]:
    for name, entry in table.entries.items():
        yield before + name
        if isinstance(entry, Table):
            yield from keys(entry, f"{before}{name}.")


KEYS = [(section, key) for section, table in SECTIONS.items() for key in keys(table)]
BESIDE = {"Startup", "Readiness", "Liveness", "Canary"}
"""Sections that are nothing without something to ask."""


def written(section: str, key: str, value: str) -> str:
    """A unit that is right but for that."""
    sections = {"Service": {"ExecStart": '["true"]'}} | (
        {"Engine": {"Launcher": '"exec"'}} if section == "Engine" else {}
    )
    if section in BESIDE and key.partition(".")[0] not in ("Http", "Tcp", "Exec", "LogLine"):
        sections[section] = {"Http": '"http://localhost/"'}
    sections.setdefault(section, {})[key] = value
    return "".join(
        f"[{name}]\n" + "".join(f"{each} = {text}\n" for each, text in entries.items())
        for name, entries in sections.items()
    )


def problems_of(text: str) -> tuple[Problem, ...]:
    """Anything but ConfigurationError fails the test."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "u.toml").write_text(text)
        try:
            load_units([Path(directory)])
        except ConfigurationError as error:
            str(error)
            return error.problems
    return ()


@pytest.mark.parametrize("value", ODD, ids=lambda value: value[:20])
def test_an_odd_value_of_every_key_at_once_is_read_or_refused(value: str) -> None:
    for before in (False, True):  # of tables the parts, or the whole
        names = [(section, key) for section, key in KEYS if ("." in key) == before]
        sections = dict.fromkeys(section for section, _ in names)
        problems_of(
            "".join(
                f"[{section}]\n" + "".join(f"{key} = {value}\n" for owner, key in names if owner == section)
                for section in sections
            )
        )


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(KEYS), st.sampled_from(ODD) | st.text(max_size=30))
@example(("Readiness", "LogLine"), '"a{99999999999999999999}"')
@example(("Service", "CPUAffinity"), f"{'[' * 3000}{']' * 3000}")
@example(("Service", "LimitNOFILE"), "9" * 5000)
@example(("Engine", "Endpoints"), "9" * 25)
def test_whatever_a_key_is_given_it_is_read_or_refused(key: tuple[str, str], value: str) -> None:
    with contextlib.suppress(UnicodeEncodeError):  # no file holds a lone surrogate
        problems_of(written(*key, value))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"[Service]\nX = {'[' * 3000}{']' * 3000}\n", "u.toml: cannot be read: tables and arrays are nested too deep"),
        (f"[Service]\n\nX = {'[' * 70}{']' * 70}\n", "u.toml:3: tables and arrays are nested more than 64 deep"),
        (f"[a]\n[{'.'.join('a' * 70)}]\n", "u.toml:2: tables and arrays are nested more than 64 deep"),
        (f"\n{'.'.join('a' * 70)} = 1\n", "u.toml:2: tables and arrays are nested more than 64 deep"),
        (f"[Service]\nX = {'9' * 5000}\n", "u.toml: cannot be read: Exceeds the limit"),
        (
            f"[Service]\nX = [1,\n0x{'f' * 17}]\n",
            "u.toml:2: Service.X.1: the integer is too large: expected one of 64 bits",
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_too_much_is_refused_as_a_whole(text: str, said: str) -> None:
    (problem,) = problems_of(text)
    assert said in str(problem)
