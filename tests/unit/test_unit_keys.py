"""The table of keys is whole: every key has a field, every default its place."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from msgspec.structs import fields

from supervisor.unit import model
from supervisor.unit.keys import LIVENESS_ACTION, SECTIONS, Key, Table


def _entries(table: Table, prefix: str = "") -> Iterator[tuple[str, Table, Key | Table]]:
    for name, entry in table.entries.items():
        yield f"{prefix}{table.name}.{name}", table, entry
        if isinstance(entry, Table):
            yield from _entries(entry, f"{prefix}{table.name}.")


ENTRIES = [entry for table in SECTIONS.values() for entry in _entries(table)]


@pytest.mark.parametrize(("place", "table", "entry"), ENTRIES, ids=[place for place, _, _ in ENTRIES])
def test_every_key_has_a_field(place: str, table: Table, entry: Key | Table) -> None:
    struct: object = model.HttpCheck if table.entries.keys() >= {"Url"} else table.struct
    target = entry.target
    if target == LIVENESS_ACTION:
        struct, target = model.Probes, "liveness_action"
    for name in target.split("."):
        assert isinstance(struct, type)
        known = {field.name: field for field in fields(struct)}
        assert name in known
        factory = known[name].default_factory
        struct = factory if factory is not msgspec.NODEFAULT else None
    assert entry.doc


def test_every_field_has_a_key() -> None:
    targets = {f"{table.target}.{entry.target}".strip(".") for _, table, entry in ENTRIES}
    wanted = {
        f"{path}.{field.name}"
        for path, struct in (
            ("service.restart", model.RestartSettings),
            ("service.stop", model.StopSettings),
            ("service.start", model.StartSettings),
            ("service.execution", model.Execution),
            ("service.logging", model.Logging),
            ("engine", model.Engine),
            ("conditions", model.Conditions),
            ("probes.canary", model.Canary),
            ("probes.readiness", model.Probe),
        )
        for field in fields(struct)
    }
    from_endpoints = {"engine.endpoint_number", "engine.declared_by"}
    from_the_launcher = {"probes.canary.rank_header"}
    assert wanted - from_endpoints - from_the_launcher <= targets


def test_every_key_has_a_schema() -> None:
    for _, _, entry in ENTRIES:
        if isinstance(entry, Key):
            assert entry.convert.schema, entry.name
