"""messages.md: every struct of supervisor.wire and every word in it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from types import ModuleType

import msgspec
from msgspec.structs import FieldInfo

from generators import markdown, source
from generators.markdown import code, sentence
from supervisor.wire import messages, views, vocabulary

SOURCES = tuple(f"supervisor/wire/{name}.py" for name in ("messages", "views", "vocabulary", "bounds"))
INTRODUCTION = """
JSON in both directions. Unknown fields are ignored; a missing required one is an error that names it.
`Count` is a whole number from 0 to 2⁵³ - 1, `Name` a text of 1 to 253 characters, `Word` one of at most 1024, `Port` a
port number as text, `Ports` at most 1024 of them, `EndpointId` a number as text. Of a field that is given twice the
last counts.
"Ours" are the fields that the reference system (MindIE-PyMotor, June 2026) does not have: all are optional.
The routes are in [the relaunch](../relaunch.md#the-routes).
"""
CHAPTERS = (
    ("Between supervisors and controller", messages),
    ("For tools", views),
)
HEADER = ("field", "type", "default", "ours", "meaning")


def page() -> str:
    structs = [part for title, module in CHAPTERS for part in (f"## {title}", *map(_struct, _structs(module)))]
    words = [_words(kind) for kind in _defined(vocabulary, Enum)]
    return markdown.page("Messages", SOURCES, INTRODUCTION, *structs, "## Words", *words)


def _defined(module: ModuleType, base: type) -> Iterator[type]:
    """In the order of the source."""
    kinds = [kind for _, kind in inspect.getmembers(module, inspect.isclass) if issubclass(kind, base)]
    own = [kind for kind in kinds if kind.__module__ == module.__name__]
    return iter(sorted(own, key=lambda kind: inspect.getsourcelines(kind)[1]))


def _structs(module: ModuleType) -> Iterator[type[msgspec.Struct]]:
    return (kind for kind in _defined(module, msgspec.Struct) if issubclass(kind, msgspec.Struct))


def _struct(kind: type[msgspec.Struct]) -> str:
    parent = kind.__mro__[1]
    inherited = set(parent.__struct_fields__) if issubclass(parent, msgspec.Struct) else set()
    docs, ours = source.field_docs(kind), source.own_additions(kind)
    rows = [
        (
            code(field.encode_name),
            code(kind.__annotations__[field.name]),
            _default(field),
            "ours" if field.name in ours else "",
            docs[field.name],
        )
        for field in msgspec.structs.fields(kind)
        if field.name not in inherited
    ]
    words = [f"### {kind.__name__}", sentence(source.class_doc(kind))]
    if inherited:
        words.append(f"With all fields of [{parent.__name__}](#{parent.__name__.lower()}).")
    if kind.__struct_config__.omit_defaults:
        words.append("A field that has its default is left out.")
    return "\n\n".join((*filter(None, words), markdown.table(HEADER, rows)))


def _default(field: FieldInfo) -> str:
    if field.required:
        return "**required**"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return code(msgspec.json.encode(value).decode())


def _words(kind: type) -> str:
    assert issubclass(kind, Enum)
    docs = source.field_docs(kind)
    rows = [(code(member.value), docs[member.name]) for member in kind]
    return "\n\n".join(
        filter(
            None, (f"### {kind.__name__}", sentence(source.class_doc(kind)), markdown.table(("word", "meaning"), rows))
        )
    )
