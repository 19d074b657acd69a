"""Layers: the laws of the merge, and which files make which unit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.unit.errors import ConfigurationError
from supervisor.unit.instances import INSTANCE_LIMIT
from supervisor.unit.layers import Layered, Origin, instantiate, layer, merge
from supervisor.unit.model import Unit
from supervisor.unit.parse import load_units
from supervisor.unit.toml_lines import KeyPath, read_toml

NAMES = st.sampled_from("abc")
DATA = st.dictionaries(
    NAMES,
    st.recursive(
        st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
        lambda inner: st.dictionaries(NAMES, inner, max_size=3),
        max_leaves=6,
    ),
    max_size=3,
)
STEADY = st.recursive(
    st.dictionaries(NAMES, st.integers(0, 3), max_size=3),
    lambda inner: st.builds(
        lambda plain, tables: {**plain, **tables},
        st.dictionaries(NAMES, st.integers(0, 3), max_size=3),
        st.dictionaries(st.sampled_from("XYZ"), inner, max_size=3),
    ),
    max_leaves=6,
)
"""No key is a table in one file and a plain value in another: then the files must be laid in order, which is what
`instances` does."""


def _document(data: dict[str, object], name: str) -> Layered:
    source = Path(name)
    return Layered(source, data, {path: Origin(source, 1) for path in _paths(data, ())})


def _paths(value: object, path: KeyPath) -> list[KeyPath]:
    if not isinstance(value, dict):
        return []
    return [each for key, inner in value.items() for each in [(*path, key), *_paths(inner, (*path, key))]]


EMPTY = _document({}, "a")


@given(STEADY, STEADY, STEADY)
def test_merging_is_associative(a: dict[str, object], b: dict[str, object], c: dict[str, object]) -> None:
    first, second, third = _document(a, "a"), _document(b, "b"), _document(c, "c")
    assert merge(merge(first, second), third) == merge(first, merge(second, third))


@given(DATA)
def test_nothing_changes_nothing(data: dict[str, object]) -> None:
    document = _document(data, "a")
    assert merge(document, EMPTY) == document
    assert merge(EMPTY, document) == document
    assert merge(document, document) == document


@given(DATA, DATA)
def test_every_key_has_the_origin_of_its_value(a: dict[str, object], b: dict[str, object]) -> None:
    merged = merge(_document(a, "a"), _document(b, "b"))
    assert set(merged.origins) == set(_paths(dict(merged.data), ()))
    for path, origin in merged.origins.items():
        source: object = {"a": a, "b": b}[str(origin.path)]
        value: object = merged.data
        for key in path:
            assert isinstance(source, dict)
            assert isinstance(value, dict)
            source, value = source[key], value[key]
        if not isinstance(value, dict):
            assert source == value


def test_an_array_is_replaced_and_a_table_merged() -> None:
    base = layer(Path("a"), read_toml("[s]\nx = [1, 2]\ny = 1\n", Path("a")))
    over = layer(Path("b"), read_toml("\n[s]\nx = [3]\n", Path("b")))
    merged = merge(base, over)
    assert merged.data == {"s": {"x": [3], "y": 1}}
    assert str(merged.problem(("s", "x"), "no")) == "b:3: s.x: no"
    assert str(merged.problem(("s", "y"), "no")) == "a:3: s.y: no"
    assert str(merged.problem(("s", "z"), "no")) == "a:1: s.z: no"
    assert str(merged.problem(("t",), "no")) == "a: t: no"


def test_an_instance_fills_in_its_name() -> None:
    template = layer(Path("a"), read_toml('x = ["%i", { y = "a-%i-%%i-%d" }]\nz = 1', Path("a")))
    assert instantiate(template, "n").data == {"x": ["n", {"y": "a-n-%i-%d"}], "z": 1}


def _write(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def _by_name(*directories: Path) -> dict[str, Unit]:
    return {unit.name: unit for unit in load_units(directories)}


SLEEP = '[Service]\nExecStart = ["sleep", "1"]\n'


def test_a_later_directory_replaces_and_drop_ins_merge_in_lexical_order(tmp_path: Path) -> None:
    first = _write(
        tmp_path / "first",
        {
            "a.toml": SLEEP + "Nice = 1\n",
            "b.toml": SLEEP,
            "b.toml.d/20-late.toml": "[Service]\nNice = 20\nUMask = 'x'\n",
            "b.toml.d/10-early.toml": "[Service]\nNice = 10\nLogTailBytes = 7\n",
            ".hidden.toml": "broken =",
            "notes.txt": "broken =",
        },
    )
    second = _write(
        tmp_path / "second",
        {
            "a.toml": '[Service]\nExecStart = ["true"]\n',
            "b.toml.d/20-late.toml": "[Service]\nNice = 19\n",
            "b.toml.d/05-first.toml": "[Service]\nNice = 5\nLogRotateKeep = 5\n",
        },
    )
    units = _by_name(first, second)
    assert list(units) == ["a", "b"]
    assert units["a"].service.exec_start is not None
    assert units["a"].service.exec_start.argv == ("true",)
    assert units["a"].service.execution.nice is None
    assert units["a"].source == second / "a.toml"
    assert units["b"].service.execution.nice == 19
    assert units["b"].service.logging.rotate_keep == 5
    assert units["b"].service.execution.umask is None
    assert units["b"].service.logging.tail_bytes == 7


def test_templates_become_units_by_name(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "main.toml": '[Unit]\nWants = ["exporter@node"]\nRequires = ["store@a"]\n' + SLEEP,
            "exporter@.toml": '[Service]\nExecStart = ["exporter", "--name=%i"]\n',
            "exporter@.toml.d/10.toml": "[Service]\nNice = 1\nUMask = '0077'\n",
            "exporter@gpu.toml": "[Service]\nNice = 2\n",
            "exporter@gpu.toml.d/10.toml": "[Service]\nNice = 3\n",
            "store@.toml": '[Unit]\nRequires = ["disk@%i"]\n' + SLEEP,
            "disk@.toml": '[Unit]\nDescription = "%i"\n' + SLEEP,
            "unused@.toml": SLEEP,
        },
    )
    units = _by_name(tmp_path)
    assert list(units) == ["disk@a", "exporter@gpu", "exporter@node", "main", "store@a"]
    assert units["disk@a"].description == "a"
    node, gpu = units["exporter@node"].service, units["exporter@gpu"].service
    assert node.exec_start is not None
    assert node.exec_start.argv == ("exporter", "--name=node")
    assert (node.execution.nice, node.execution.umask) == (1, 0o077)
    assert (gpu.execution.nice, gpu.execution.umask) == (3, 0o077)


def test_templates_that_name_instances_of_themselves_end(tmp_path: Path) -> None:
    _write(tmp_path, {"a@.toml": '[Unit]\nWants = ["a@%ix", "a@%iy"]\n' + SLEEP, "a@.toml.d/x.txt": "",
                      "b.toml": '[Unit]\nWants = ["a@x"]\n' + SLEEP})  # fmt: skip
    with pytest.raises(ConfigurationError, match=f"more than {INSTANCE_LIMIT} units"):
        load_units([tmp_path])


def test_what_cannot_be_read_is_said_once_and_together(tmp_path: Path) -> None:
    _write(
        tmp_path,
        {
            "a b.toml": SLEEP,
            "binary.toml": "",
            "broken.toml": "\n[Service\n",
            "lost.toml.d/10.toml": SLEEP,
            "folder.toml/x": "",
            "file.toml.d": "",
        },
    )
    (tmp_path / "binary.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigurationError) as caught:
        load_units([tmp_path, tmp_path / "nowhere"])
    assert str(caught.value).replace(f"{tmp_path}/", "").splitlines() == [
        "a b.toml: the file's name names the unit: found 'a b', "
        "expected a unit's name of at most 64 letters, digits and _:.-@",
        "binary.toml: cannot read: not UTF-8 at byte 5",
        "broken.toml:2: not TOML: Expected ']' at the end of a table declaration",
        "file.toml.d: cannot read the directory: Not a directory",
        "folder.toml: cannot read: Is a directory",
        "lost.toml.d/10.toml: a drop-in for 'lost', which is no unit",
        "nowhere: cannot read the directory: No such file or directory",
    ]
