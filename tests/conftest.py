"""What holds for all tests: a test that is skipped says why."""

from collections.abc import Generator, Iterator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """pytest-trio skips a test anew whose skip has come out of a nursery, and leaves the reason behind."""
    try:
        return (yield)
    except pytest.skip.Exception as skipped:
        reasons = [leaf.msg for leaf in _leaves(skipped.__context__) if isinstance(leaf, pytest.skip.Exception)]
        skipped.msg = skipped.msg or "; ".join(filter(None, reasons))
        raise


def _leaves(error: BaseException | None) -> Iterator[BaseException | None]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error
