"""Documents of unit files, drop-ins and templates -> one document for each unit."""

from __future__ import annotations

from collections.abc import Iterator

from supervisor.unit.errors import Problem
from supervisor.unit.layers import Layered, instantiate, merge
from supervisor.unit.process_values import unit_name
from supervisor.unit.sources import Sources
from supervisor.unit.values import Mismatch

INSTANCE_LIMIT = 1000
"""Templates can name instances of templates: somewhere it must end."""

_PULLING = ("Requires", "Wants", "BindsTo")


def assemble(sources: Sources) -> tuple[dict[str, Layered], list[Problem]]:
    """The units by name, sorted.

    An instance of a template is a unit because another unit requires or wants it, or because a file of its own
    (`exporter@node.toml`, which may be empty) is laid over the template.
    """
    documents: dict[str, Layered] = {}
    waiting = sorted(name for name in sources.files if not name.endswith("@"))
    while waiting and len(documents) < INSTANCE_LIMIT:
        name = waiting.pop()
        documents[name] = _layered(name, sources)
        known = {*documents, *waiting}
        waiting += [each for each in _pulled_in(documents[name]) if _is_instance(each, sources) and each not in known]
    problems = [*_misnamed(sources), *_orphans(documents, sources)]
    if waiting:
        message = f"more than {INSTANCE_LIMIT} units: does a template name instances of itself?"
        problems.append(documents[name].problem((), message))
    return dict(sorted(documents.items())), problems


def _template_of(name: str) -> str:
    """`exporter@` for `exporter@node`; empty for a plain name."""
    stem, at, _ = name.partition("@")
    return stem + at if at else ""


def _is_instance(name: str, sources: Sources) -> bool:
    template = _template_of(name)
    return template in sources.files and name != template and _well_named(name)


def _well_named(name: str) -> bool:
    try:
        unit_name.read(name)
    except Mismatch:
        return False
    return True


def _layered(name: str, sources: Sources) -> Layered:
    template = _template_of(name)
    layers = [
        *(sources.files[each] for each in (template, name) if each in sources.files),
        *(document for each in (template, name) for document in sources.drop_ins.get(each, ())),
    ]
    document = layers[0]
    for over in layers[1:]:
        document = merge(document, over)
    return instantiate(document, name.removeprefix(template)) if template else document


def _pulled_in(document: Layered) -> Iterator[str]:
    section = document.data.get("Unit")
    if not isinstance(section, dict):
        return
    for key in _PULLING:
        names = section.get(key)
        for name in names if isinstance(names, list) else [names]:
            if isinstance(name, str):
                yield name


def _misnamed(sources: Sources) -> Iterator[Problem]:
    for name, document in sources.files.items():
        if not _well_named(name.removesuffix("@")):
            message = f"the file's name names the unit: found {name!r}, expected {unit_name.expected}"
            yield Problem(document.source, None, "", message)


def _orphans(documents: dict[str, Layered], sources: Sources) -> Iterator[Problem]:
    for name, drop_ins in sources.drop_ins.items():
        if drop_ins and name not in documents and name not in sources.files:
            yield Problem(drop_ins[0].source, None, "", f"a drop-in for {name!r}, which is no unit")
