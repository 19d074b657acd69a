"""Foreign files given as text, converted, and read by our own parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from supervisor.convert.conversion import Conversion, convert
from supervisor.convert.sources import read_foreign
from supervisor.unit.expand import expand_unit
from supervisor.unit.graph import Graph
from supervisor.unit.instances import assemble
from supervisor.unit.layers import layer
from supervisor.unit.model import Unit
from supervisor.unit.parse import parse
from supervisor.unit.sources import Sources
from supervisor.unit.toml_lines import read_toml


def converted(directory: Path, files: Mapping[str, str], *names: str) -> Conversion:
    """Of the files below a directory those that are named, or the first."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return convert([read_foreign(directory / name) for name in names or [next(iter(files))]])


def units(conversion: Conversion, instance: str = "x") -> dict[str, Unit]:
    """All that was converted, disabled units too; a template without an instance gets one. Fails on any problem."""
    files = {}
    for each in conversion.files:
        path = Path(each.name.removesuffix(".off"))
        files[path.stem] = layer(path, read_toml(each.text, path))
    for name in [name for name in files if name.endswith("@")]:
        if not any(other.startswith(name) and other != name for other in files):
            files[name + instance] = layer(Path(f"{name}{instance}.toml"), read_toml("", Path(name)))
    documents, problems = assemble(Sources(files, {}))
    found = {}
    for name, document in documents.items():
        found[name], mistakes = parse(name, document)
        problems += mistakes
    assert problems == []
    graph = Graph.of(found.values())
    assert graph.cycle() == ()
    assert [*graph.missing_requirements()] == []
    return found


def argv(unit: Unit, **variables: str) -> list[str]:
    """What would be executed."""
    command = expand_unit(unit, variables).service.exec_start
    assert command is not None
    return list(command.argv)


def remarks(conversion: Conversion) -> list[str]:
    """`LINE KEY: KIND: MESSAGE`."""
    return [*_remarks(conversion)]


def _remarks(conversion: Conversion) -> Iterator[str]:
    for remark in conversion.remarks:
        place = remark.place
        yield f"{place.path.name}:{place.line or '-'} {place.key}: {remark.kind}: {remark.message}"
