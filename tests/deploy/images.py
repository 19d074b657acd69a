"""Root file systems for containers, out of this machine's own programs: no registry is needed.

A base image here is one Python with its standard library, a shell, a few tools and the shared objects that they need.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TOOLS = ("sh", "env", "sleep", "cat", "true")
DIRECTORIES = ("dev", "etc", "proc", "run", "sys", "tmp", "var")
PASSWD = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n"
ABOUT = "import sys, sysconfig; print(sys.executable, sysconfig.get_path('stdlib'), sysconfig.get_path('platstdlib'))"
LEFT_OUT = {"test", "tests", "site-packages", "dist-packages", "__pycache__", "idlelib", "tkinter", "lib2to3"}
GLIBC = ("libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1", "libutil.so.1")
"""Wheels are linked against all of them, also where their content has long moved into the first."""
MERGED = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


@dataclass(frozen=True)
class Python:
    """A Python of this machine."""

    version: str
    """Such as 3.12."""
    program: Path


def pythons() -> dict[str, Python]:
    """By version, those that are installed here and really run."""
    found: dict[str, Python] = {}
    roots = (Path("/usr/bin"), Path("/usr/local/bin"), *sorted(Path.home().glob(".pyenv/versions/*/bin")))
    for directory in roots:
        for program in sorted(directory.glob("python3.*")):
            if match := re.fullmatch(r"python(3\.\d+)", program.name):
                found.setdefault(match[1], Python(match[1], program))
    return found


def root_file_system(python: Python) -> bytes:
    """A tar file in which `python3` is this Python."""
    told = subprocess.run([python.program, "-I", "-c", ABOUT], check=True, capture_output=True, text=True).stdout
    executable, *libraries = (Path(word) for word in told.split())
    programs = [executable, *(Path("/usr/bin", name) for name in TOOLS)]
    files = {path for library in libraries for path in _files(library)} | set(programs)
    modules = [path for path in files if path.suffix == ".so"]
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name in (*DIRECTORIES, *MERGED.values()):
            tar.addfile(_entry(name, tarfile.DIRTYPE))
        for name, target in MERGED.items():
            tar.addfile(_entry(name, tarfile.SYMTYPE, target))
        for path in sorted(files | _shared_objects([*programs, *modules])):
            _add(tar, path)
        tar.addfile(_entry("usr/bin/python3", tarfile.SYMTYPE, str(executable)))
        for name in ("passwd", "group"):
            content = PASSWD.encode() if name == "passwd" else b"root:x:0:\nnogroup:x:65534:\n"
            entry = _entry(f"etc/{name}", tarfile.REGTYPE)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def _files(library: Path) -> Iterator[Path]:
    for directory, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in LEFT_OUT and not name.startswith("config-")]
        yield from (Path(directory, name) for name in names if not name.endswith(".a"))


def _shared_objects(programs: list[Path]) -> set[Path]:
    """What the loader would map for them, itself among it (ldd(1))."""
    told = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    found = {Path(match[1]) for match in re.finditer(r"(/\S+) \(0x", told)}
    (directory,) = {path.parent for path in found if path.name == GLIBC[0]}
    return found | {path for name in GLIBC if (path := directory / name).exists()}


def _add(tar: tarfile.TarFile, path: Path) -> None:
    """The file that `path` leads to, at `path`."""
    real = path.resolve()
    entry = _entry(str(_unmerged(path)).lstrip("/"), tarfile.REGTYPE)
    entry.size, entry.mode = real.stat().st_size, real.stat().st_mode & 0o755 | 0o444
    with real.open("rb") as content:
        tar.addfile(entry, content)


def _unmerged(path: Path) -> Path:
    """/lib/… lies in /usr/lib/…."""
    first, *rest = path.parts[1:]
    return Path("/", MERGED.get(first, first), *rest)


def _entry(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, target
    entry.mode = 0o1777 if name == "tmp" else 0o755
    return entry
