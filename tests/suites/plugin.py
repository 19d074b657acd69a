"""For pytest as it runs dumb-init's suite: more patience than its fixed second and a half, on a busy machine."""

from __future__ import annotations

import os

import testing  # type: ignore[import-not-found]  # dumb-init's

testing.sleep_until.__defaults__ = (15.0 * float(os.environ.get("PODVISOR_TEST_TIMEOUT_SCALE", "1")),)
