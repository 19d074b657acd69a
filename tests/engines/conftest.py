"""Real engines for the tests here; each test skips, with the reason, what this machine has not."""

from tests.support.installed_engines import engines

__all__ = ["engines"]
