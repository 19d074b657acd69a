"""One writer for each kind of thing that is written: the next that is due, again while the API is away."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from controller.kubernetes.client import ApiRefused, ApiUnavailable
from controller.kubernetes.outbox import Outbox
from controller.kubernetes.trouble import Trouble, What
from controller.model.kubernetes.patience import pause

K = TypeVar("K")
V = TypeVar("V")


async def write_what_is_due(
    what: What, outbox: Outbox[K, V], write: Callable[[K, V], Awaitable[bool]], trouble: Trouble
) -> None:
    """Until cancelled; what was being written then may or may not be.

    `write` says whether the API did what it was asked for; False: it was asked for nothing, or that is counted already.
    """
    failures = 0
    while True:
        key, value = await outbox.next()
        try:
            went_well = await write(key, value)
        except ApiRefused as error:
            trouble.refused(what, error)
            trouble.drop(what)
        except ApiUnavailable as error:
            failures += 1
            trouble.unavailable(what, error)
            outbox.put_back(key, value, trio.current_time())
            await trio.sleep(pause(failures, error.retry_after_sec, random.random()))
        else:
            if went_well:
                failures = 0
                trouble.went_well(what)
