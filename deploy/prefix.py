"""podvisor in one directory that can be copied anywhere: `python3 deploy/prefix.py --wheels WHEELS /opt/podvisor`.

    bin/podvisor          the launcher
    lib/                  podvisor and what it imports, for every Python for which wheels are there
    share/podvisor/       the shipped unit files, and for which Pythons this prefix is

Wheels for several Pythons share one directory: they differ in extension modules, which have their Python's tag in
their names. What needs a network, the wheels, comes from `wheels.sh`. Nothing but the standard library is used.
"""

from __future__ import annotations

import argparse
import compileall
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from py_compile import PycInvalidationMode
from zipfile import ZipFile

LAUNCHER = Path(__file__).with_name("launcher.py")
PYTHONS = "share/podvisor/pythons"
TAGGED = re.compile(r"\.cpython-\d+-[\w-]+\.so$")
PER_PYTHON = {"WHEEL", "RECORD"}
"""Of a dist-info: what installers keep for themselves, different for each Python."""


class CannotBuild(Exception):
    """Its message says what is wrong with the wheels."""


def build(prefix: Path, wheels: Path) -> None:
    """Fill `prefix`, which must not exist yet, without compiling anything. Raises CannotBuild."""
    found = sorted(wheels.glob("*.whl"))
    if not any(wheel.name.startswith("podvisor-") for wheel in found):
        raise CannotBuild(f"{wheels} holds no wheel of podvisor: deploy/wheels.sh {wheels} 3.11")
    prefix.mkdir(parents=True)
    for wheel in found:
        _unpack(wheel, prefix)
    pythons = prefix / PYTHONS
    pythons.write_text("".join(f"{suffix}\n" for suffix in _common_suffixes(prefix / "lib")))
    launcher = prefix / "bin" / "podvisor"
    launcher.parent.mkdir()
    shutil.copyfile(LAUNCHER, launcher)
    launcher.chmod(0o755)


def compile_for_this_python(prefix: Path) -> None:
    """Bytecode that is never compared with its source: right on a read-only root, and whatever copies do to times."""
    mode = PycInvalidationMode.UNCHECKED_HASH
    if not compileall.compile_dir(prefix / "lib", quiet=1, invalidation_mode=mode):
        raise CannotBuild(f"{sys.executable} cannot compile what is in {prefix}/lib: see above")


def _unpack(wheel: Path, prefix: Path) -> None:
    with ZipFile(wheel) as archive:
        for name in (info.filename for info in archive.infolist() if not info.is_dir()):
            place = _place(PurePosixPath(name), wheel)
            if place is None:
                continue
            target, content = prefix / place, archive.read(name)
            if target.exists() and target.read_bytes() != content:
                raise CannotBuild(f"{wheel} and another wheel disagree about {place}: have one version of each package")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)


def _place(name: PurePosixPath, wheel: Path) -> PurePosixPath | None:
    """Where a file of a wheel goes below the prefix; None: nowhere (binary distribution format, "Installing")."""
    top = name.parts[0]
    if top.endswith(".data"):
        if name.parts[1] != "data":
            raise CannotBuild(f"{wheel} has {name}: a prefix has no place for the {name.parts[1]} of a wheel")
        return PurePosixPath(*name.parts[2:])
    if top.endswith(".dist-info") and name.name in PER_PYTHON:
        return None
    return PurePosixPath("lib") / name


def _common_suffixes(library: Path) -> Sequence[str]:
    """The Pythons for which every package that is compiled for one Python at a time is here."""
    by_package = list(_suffixes_by_package(library))
    if not by_package:
        raise CannotBuild("the wheels hold no extension modules: fetch those of a platform, not sources")
    common = set.intersection(*by_package)
    if not common:
        raise CannotBuild(f"no Python has all extension modules: the packages are for {by_package}")
    return sorted(common)


def _suffixes_by_package(library: Path) -> Iterator[set[str]]:
    for package in library.iterdir():
        if found := {match[0] for path in package.rglob("*.so") if (match := TAGGED.search(path.name))}:
            yield found


def main() -> None:
    parser = argparse.ArgumentParser(description="Unpack wheels of podvisor into a prefix that can be copied.")
    parser.add_argument("--wheels", type=Path, required=True, help="what deploy/wheels.sh has fetched")
    parser.add_argument("prefix", type=Path, help="the directory to make, such as /opt/podvisor")
    arguments = parser.parse_args()
    try:
        build(arguments.prefix, arguments.wheels)
        compile_for_this_python(arguments.prefix)
    except (CannotBuild, FileExistsError) as error:
        sys.exit(f"prefix: {error}")


if __name__ == "__main__":
    main()
