"""Foreign files -> files of ours: everything together, so that units know of each other."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import msgspec

from supervisor.convert.drafts import Draft, UnitFile, finished
from supervisor.convert.remarks import Remark, lost
from supervisor.convert.supervisord import Configuration, convert_supervisord
from supervisor.convert.systemd import ServiceFile, convert_service, unit_name


class Conversion(msgspec.Struct, frozen=True):
    files: tuple[UnitFile, ...]
    remarks: tuple[Remark, ...]
    """In the order of the files; those of the files are among them."""


def convert(foreign: Sequence[Configuration | ServiceFile], existing: AbstractSet[str] = frozenset()) -> Conversion:
    """`existing` are the names of units that are there already."""
    known = existing | {unit_name(each.unit) for each in foreign if isinstance(each, ServiceFile)}
    drafts: list[Draft] = []
    remarks: list[Remark] = []
    for each in foreign:
        if isinstance(each, ServiceFile):
            drafts.append(convert_service(each, known))
        else:
            more, said = convert_supervisord(each)
            drafts += more
            remarks += said
    files: list[UnitFile] = []
    taken: dict[str, Draft] = {}
    for draft in drafts:
        first = taken.setdefault(draft.name, draft)
        if first is not draft:
            message = f"there is a unit {draft.name!r} already, from {first.place.path}: rename one of them"
            remarks.append(lost(draft.place, message))
            continue
        made, said_of_it = finished(draft)
        files += made
        remarks += said_of_it
    return Conversion(tuple(files), tuple(remarks))
