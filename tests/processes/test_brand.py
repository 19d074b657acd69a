"""The brand that processes inherit: one thread at a time wears it, and one that hangs keeps nobody waiting."""

from __future__ import annotations

import os
import threading

from supervisor.process.brand import Branding, brand_of, read_brand


def test_it_is_worn_inside_and_taken_off_after() -> None:
    branding, before = Branding(), read_brand(os.getpid())
    with branding.worn("one"):
        assert read_brand(os.getpid()) == brand_of("one")
    assert read_brand(os.getpid()) == before


def test_two_threads_never_wear_each_others() -> None:
    branding, wrong = Branding(), []

    def wear(name: str) -> None:
        for _ in range(300):
            with branding.worn(name):
                if read_brand(os.getpid()) != brand_of(name):
                    wrong.append(name)

    threads = [threading.Thread(target=wear, args=(str(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_thread_that_hangs_is_overtaken_and_disturbs_nobody_later() -> None:
    branding, hangs, released = Branding(), threading.Event(), threading.Event()

    def hang() -> None:
        with branding.worn("hangs"):
            hangs.set()
            released.wait()

    thread = threading.Thread(target=hang)
    thread.start()
    hangs.wait()
    with branding.worn("next"):
        released.set()
        thread.join()
        assert read_brand(os.getpid()) == brand_of("next")
