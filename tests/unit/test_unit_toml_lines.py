"""Every key's line is right, in any valid TOML or JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.unit.toml_lines import SyntaxProblem, read_json, read_toml

HERE = Path("x.toml")

WRITTEN = (
    """\
# a comment [not.a.table]
top = 1

[Unit]
After = [
  "a", # why
  "b",
]   # end
"quoted key" = 'it''s' # not valid TOML, replaced below
""".replace("'it''s'", "'its'")
    + '''\
[Service.Environment]
A = """
[not.a.table]
x = 1
"""
B = \'\'\'a
b''\'\'\'
C = "\\"[["   # after
dotted . key . "with.dot" = { inner = 1, other = { deep = [1, 2] } }

[[list]]
one = 1
[[list]]
two = 2
[list.sub]
three = 1979-05-27 07:32:00
'''
)


def test_lines_of_every_kind_of_key() -> None:
    document = read_toml(WRITTEN, HERE)
    lines = {".".join(map(str, path)): line for path, line in document.lines.items()}
    assert lines == {
        "top": 2,
        "Unit": 4,
        "Unit.After": 5,
        "Unit.quoted key": 9,
        "Service": 10,
        "Service.Environment": 10,
        "Service.Environment.A": 11,
        "Service.Environment.B": 15,
        "Service.Environment.C": 17,
        "Service.Environment.dotted": 18,
        "Service.Environment.dotted.key": 18,
        "Service.Environment.dotted.key.with.dot": 18,
        "Service.Environment.dotted.key.with.dot.inner": 18,
        "Service.Environment.dotted.key.with.dot.other": 18,
        "Service.Environment.dotted.key.with.dot.other.deep": 18,
        "list": 20,
        "list.0": 20,
        "list.0.one": 21,
        "list.1": 22,
        "list.1.two": 23,
        "list.1.sub": 24,
        "list.1.sub.three": 25,
    }


def test_windows_line_ends_count_once() -> None:
    document = read_toml(WRITTEN.replace("\n", "\r\n"), HERE)
    assert document.line_of(("list", 1, "two")) == 23


def test_a_table_gets_the_line_of_its_own_header() -> None:
    document = read_toml("[a.b]\nx = 1\n[a]\ny = 1\n", HERE)
    assert document.line_of(("a",)) == 3


def test_what_has_no_line_has_that_of_the_table_around_it() -> None:
    document = read_toml("\n[a]\nb = [1]\n", HERE)
    assert document.line_of(("a", "b", 0)) == 3
    assert document.line_of(("a", "missing")) == 2
    assert document.line_of(("missing",)) is None


@pytest.mark.parametrize(
    ("written", "line"),
    [("a = 1\nb = \n", 2), ("a = 1\n[b\n", 2), ("a = 1\na = 2\n", 2), ('\n\na = """\nx', 4), ("[", 1)],
)
def test_a_syntax_error_has_its_line(written: str, line: int) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        read_toml(written, HERE)
    assert caught.value.problem.line == line
    assert str(caught.value).startswith(f"x.toml:{line}: not TOML: ")


def test_json_has_lines_too() -> None:
    document = read_json('{\n "a": {"b": "x:{",\n  "c": [1,\n {"d\\u0065": 2}]}}', HERE)
    assert document.line_of(("a", "c")) == 3
    assert document.line_of(("a", "c", 1, "de")) == 4
    with pytest.raises(SyntaxProblem, match=r"x\.toml:2: not JSON"):
        read_json('{\n"a" 1}', HERE)
    with pytest.raises(SyntaxProblem, match="expected a JSON object"):
        read_json("[]", HERE)


KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\x7f", exclude_categories=["Cs"]), max_size=6)
BARE = st.text("abcXYZ019_-", min_size=1, max_size=6)
SCALARS = st.one_of(
    st.integers(-9, 9).map(str),
    st.booleans().map(lambda value: str(value).lower()),
    st.sampled_from(
        ["1.5", "inf", "'#[x] = {'", '"a\\"]}"', '"""\n#\n"""', '"""a\n""b"""', '""""x"""""', "'''\n'x'''''"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[\n" + ",\n".join(items) + "\n]"),
        st.lists(inner, max_size=3).map(
            lambda items: "{ " + ", ".join(f"k{index} = {item}" for index, item in enumerate(items)) + " }"
        ),
    ),
    max_leaves=5,
)


@given(
    st.lists(
        st.tuples(
            st.one_of(BARE, KEYS),
            st.lists(st.tuples(st.one_of(BARE, KEYS), VALUES), max_size=3, unique_by=lambda pair: pair[0]),
        ),
        max_size=4,
        unique_by=lambda section: section[0],
    ),
    st.sampled_from(["", "# [x]\n", "\n\n"]),
)
def test_lines_of_generated_toml(sections: list[tuple[str, list[tuple[str, str]]]], filler: str) -> None:
    written = ""
    expected: dict[tuple[str, ...], int] = {}
    for section, pairs in sections:
        written += f"{filler}[{_quoted(section)}] # x\n"
        expected[(section,)] = written.count("\n")
        for key, value in pairs:
            written += filler
            expected[(section, key)] = written.count("\n") + 1
            written += f"{_quoted(key)} = {value} # = x\n"
    document = read_toml(written, HERE)
    assert {path: document.lines.get(path) for path in expected} == expected


def _quoted(key: str) -> str:
    bare = key and all(character in "abcXYZ019_-" for character in key)
    return key if bare else json.dumps(key, ensure_ascii=False)
