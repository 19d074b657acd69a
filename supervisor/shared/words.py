"""Numbers and columns as people read them. No command and no request lives here."""

from __future__ import annotations

from collections.abc import Sequence

MINUTE, HOUR, DAY = 60, 3600, 86400


def duration(seconds: float | None) -> str:
    """`3.2s`, `4m 05s`, `2h 10m`, `3d 4h`; `-` for None."""
    if seconds is None:
        return "-"
    if seconds < MINUTE:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    whole = int(seconds)
    if whole < HOUR:
        return f"{whole // MINUTE}m {whole % MINUTE:02d}s"
    if whole < DAY:
        return f"{whole // HOUR}h {whole % HOUR // MINUTE:02d}m"
    return f"{whole // DAY}d {whole % DAY // HOUR}h"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns; the last one is as wide as it likes."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (header, *rows)
    )
