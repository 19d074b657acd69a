"""podvisor in one file: `python3 deploy/pyz.py --wheels WHEELS dist/podvisor.pyz`.

The prefix of `prefix.py` as a zip file that a Python can run; `unpacking.py` is what it runs. The same wheels give
the same bytes: names in order, one date, one mode, and no bytecode.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from prefix import CannotBuild, build

UNPACKING = Path(__file__).with_name("unpacking.py")
SHEBANG = b"#!/usr/bin/env -S python3 -I\n"
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The first date that a zip file can hold."""
READABLE = 0o100644


def write(archive: Path, wheels: Path) -> None:
    """Raises CannotBuild."""
    with tempfile.TemporaryDirectory() as directory:
        prefix = Path(directory, "prefix")
        build(prefix, wheels)
        files = [*_files(prefix), ("__main__.py", UNPACKING.read_bytes())]
    archive.parent.mkdir(parents=True, exist_ok=True)
    with archive.open("wb") as file:
        file.write(SHEBANG)
        with ZipFile(file, "w", ZIP_DEFLATED) as zipped:
            for name, content in (*files, ("digest", _digest(files).encode())):
                _add(zipped, name, content)
    archive.chmod(0o755)


def _files(prefix: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(prefix.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(prefix)), path.read_bytes()


def _digest(files: list[tuple[str, bytes]]) -> str:
    whole = hashlib.sha256()
    for name, content in files:
        whole.update(f"{name}\n{len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()[:32]


def _add(zipped: ZipFile, name: str, content: bytes) -> None:
    info = ZipInfo(name, EARLIEST)
    info.compress_type = ZIP_DEFLATED
    info.external_attr = READABLE << 16
    zipped.writestr(info, content)


def main() -> None:
    parser = argparse.ArgumentParser(description="Put wheels of podvisor into one file that a Python can run.")
    parser.add_argument("--wheels", type=Path, required=True, help="what deploy/wheels.sh has fetched")
    parser.add_argument("archive", type=Path, help="the file to write, such as dist/podvisor.pyz")
    arguments = parser.parse_args()
    try:
        write(arguments.archive, arguments.wheels)
    except CannotBuild as error:
        sys.exit(f"pyz: {error}")


if __name__ == "__main__":
    main()
