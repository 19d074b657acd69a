"""JSON to messages and back. Unknown fields are ignored, missing required ones are an error that names them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TypeVar

import msgspec


class WireError(ValueError):
    """A body that does not fit its message: which field, what was found, what is expected."""


Message = TypeVar("Message", bound=msgspec.Struct)


def decode(message: type[Message], body: bytes) -> Message:
    """Parse `body` into `message`.

    Raises WireError naming every missing field, or the first field that does not fit. Of a field that is given twice
    the last counts.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=message)
    except msgspec.ValidationError as error:
        missing = _missing_fields(message, body)
        raise WireError(f"missing fields: {', '.join(missing)}" if missing else str(error)) from error
    except msgspec.DecodeError as error:
        raise WireError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise WireError("nested too deeply") from error


def encode(message: msgspec.Struct) -> bytes:
    return msgspec.json.encode(message)


def _missing_fields(message: type[msgspec.Struct], body: bytes) -> list[str]:
    try:
        raw = msgspec.json.decode(body or b"{}", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return []
    fields = msgspec.structs.fields(message)
    return [field.name for field in fields if field.required and field.name not in raw]


def timestamp(moment: datetime) -> str:
    """RFC 3339 UTC with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
