"""As much of PyPI's `python-prctl`, which needs a C compiler, as tini's suite uses."""

from __future__ import annotations

import ctypes

_PR_SET_CHILD_SUBREAPER = 36


def set_child_subreaper(on: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, on, 0, 0, 0)
