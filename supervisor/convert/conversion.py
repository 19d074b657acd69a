"""Foreign files -> files of ours: everything together, so that units know of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from supervisor.convert.circles import cut_circles
from supervisor.convert.drafts import Draft, UnitFile, finished
from supervisor.convert.remarks import Remark, lost
from supervisor.convert.supervisord import Configuration, convert_supervisord
from supervisor.convert.systemd import ServiceFile, convert_service, unit_name

Foreign = Configuration | ServiceFile


class Conversion(msgspec.Struct, frozen=True):
    files: tuple[UnitFile, ...]
    remarks: tuple[Remark, ...]
    """In the order of the files; those of the files are among them."""


def convert(foreign: Sequence[Foreign], existing: AbstractSet[str] = frozenset()) -> Conversion:
    """`existing` are the names of units that are there already.

    A file from which no unit comes must not be required by others: then all is done again without it.
    """
    named = {unit_name(each.unit) for each in foreign if isinstance(each, ServiceFile)}
    while True:
        conversion = _convert(foreign, existing | named)
        made = {each.name.partition(".toml")[0] for each in conversion.files}
        if named <= made:
            return conversion
        named &= made


def _convert(foreign: Sequence[Foreign], known: AbstractSet[str]) -> Conversion:
    remarks: list[Remark] = []
    drafts = [*_only_one_of_each_name(_drafts(foreign, known, remarks), remarks)]
    cut_circles(drafts)
    files: list[UnitFile] = []
    for draft in drafts:
        made, said = finished(draft)
        files += made
        remarks += said
    return Conversion(tuple(files), tuple(remarks))


def _drafts(foreign: Sequence[Foreign], known: AbstractSet[str], remarks: list[Remark]) -> Iterator[Draft]:
    for each in foreign:
        if isinstance(each, ServiceFile):
            yield convert_service(each, known)
        else:
            drafts, said = convert_supervisord(each)
            remarks += said
            yield from drafts


def _only_one_of_each_name(drafts: Iterator[Draft], remarks: list[Remark]) -> Iterator[Draft]:
    taken: dict[str, Draft] = {}
    for draft in drafts:
        first = taken.setdefault(draft.name, draft)
        if first is draft:
            yield draft
            continue
        message = f"there is a unit {draft.name!r} already, from {first.place.path}: rename one of them"
        remarks.append(lost(draft.place, message))
