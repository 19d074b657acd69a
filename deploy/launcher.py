#!/usr/bin/env -S python3 -I -S
"""bin/podvisor of a prefix: podvisor by the Python of this image, with no packages but those of the prefix.

Isolated and without site-packages (-I -S), because engines pin other versions of the same libraries; by flags and not
by variables, because units inherit those. Python 3.6 can parse this, so that one that is too old is told so.
"""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES

PREFIX = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
EXIT_CONFIGURATION = 78
FOUND = "podvisor-found"
"""As -X: this Python was looked for, so that none is looked for again."""


def main() -> None:
    with open(os.path.join(PREFIX, "share", "podvisor", "pythons")) as lines:
        suffixes = lines.read().split()
    if EXTENSION_SUFFIXES[0] not in suffixes:
        run_by_another(sorted({version(suffix) for suffix in suffixes}, reverse=True))
    sys.path.insert(0, os.path.join(PREFIX, "lib"))
    from supervisor.__main__ import main as podvisor

    podvisor()


def version(suffix: str) -> "tuple[int, int]":
    """(3, 12) of .cpython-312-x86_64-linux-gnu.so"""
    digits = suffix.split("-")[1]
    return int(digits[0]), int(digits[1:])


def run_by_another(versions: "list[tuple[int, int]]") -> None:
    """Become podvisor in another Python of this image, or say what is missing."""
    programs = [f"python{major}.{minor}" for major, minor in versions]
    if FOUND not in sys._xoptions:
        for program in programs:
            try:
                os.execvp(program, [program, "-I", "-S", "-X", FOUND, os.path.realpath(__file__), *sys.argv[1:]])
            except OSError:
                pass  # not here: the next
    here = f"{sys.executable} is Python {sys.version_info[0]}.{sys.version_info[1]} ({EXTENSION_SUFFIXES[0]})"
    sys.stderr.write(
        f"podvisor: {PREFIX} is built for {' or '.join(programs)} on {os.uname().machine}, and {here}: "
        "install one of those in this image, or build the prefix for this one (PYTHONS in deploy/Containerfile)\n"
    )
    sys.exit(EXIT_CONFIGURATION)


if __name__ == "__main__":
    main()
