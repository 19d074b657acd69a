"""What numbers and names on the wire may be, so that no reader has to fear what it cannot keep."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

EXACT = 2**53 - 1
"""The largest whole number that every reader of JSON keeps exact; it fits any database."""
MOST_ENDPOINTS = 1024
"""Of one pod."""

Count = Annotated[int, Meta(ge=0, le=EXACT)]
Seconds = Annotated[float, Meta(ge=0)]
Name = Annotated[str, Meta(min_length=1, max_length=253)]
"""As long as a name in Kubernetes may be."""
Word = Annotated[str, Meta(max_length=1024)]
Port = Annotated[str, Meta(pattern="^[0-9]{1,5}$")]
Ports = Annotated[tuple[Port, ...], Meta(max_length=MOST_ENDPOINTS)]
EndpointId = Annotated[str, Meta(pattern="^[0-9]{1,9}$")]
"""JSON object keys are text."""
