"""podvisor compiled, as an image ships it."""

from __future__ import annotations

import compileall

import controller
import supervisor


def compile_packages() -> None:
    """Where PYTHONDONTWRITEBYTECODE is set a checkout has no .pyc, and every start compiles anew."""
    for package in (supervisor, controller):
        compileall.compile_dir(package.__path__[0], quiet=2)
