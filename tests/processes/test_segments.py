"""Which shared-memory segments an engine's tree holds, seen on real processes."""

from __future__ import annotations

from pathlib import Path

from supervisor.process.segments import segments_of
from tests.support.real_processes import python_of, reaping, told

HOLDER = """
import mmap, os, subprocess, sys
shared, told = sys.argv[1], sys.argv[2]
if len(sys.argv) > 3:  # the parent: one below it maps the segment and closes the file
    subprocess.run([sys.executable, "-I", "-S", "-c", sys.argv[3], shared, told])
else:
    descriptor = os.open(shared, os.O_RDWR | os.O_CREAT)
    os.ftruncate(descriptor, 4096)
    kept = mmap.mmap(descriptor, 4096)
    os.close(descriptor)
    open(told, "w").write("mapped\\n")
    __import__("time").sleep(1000)
"""


async def test_what_a_worker_has_mapped_is_its_engine_s(tmp_path: Path) -> None:
    """vLLM's and SGLang's segments belong to workers, which close the file once it is mapped."""
    shared, words = tmp_path / "shm", tmp_path / "told"
    shared.mkdir()
    (shared / "of-the-store").write_text("held by nobody below the engine")
    async with reaping() as children:
        engine = await children.spawn(python_of(HOLDER, str(shared / "psm_1"), str(words), HOLDER))
        await told(words)
        assert (await segments_of(engine.pid, shared)).keys() == {shared / "psm_1"}


async def test_what_another_unit_uses_too_is_not_the_engine_s_own(tmp_path: Path) -> None:
    """An engine maps the segments of its KV store: the store's they remain when both are down."""
    shared, words = tmp_path / "shm", tmp_path / "told"
    shared.mkdir()
    async with reaping() as children:
        engine = await children.spawn(python_of(HOLDER, str(shared / "kv_1"), str(words)))
        await told(words)
        assert (await segments_of(engine.pid, shared)).keys() == {shared / "kv_1"}
        await children.spawn(python_of(HOLDER, str(shared / "kv_1"), str(tmp_path / "store")))
        await told(tmp_path / "store")
        assert await segments_of(engine.pid, shared) == {}


async def test_a_tree_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    async with reaping() as children:
        engine = await children.spawn(python_of("pass"))
        await engine.exited.wait()
        assert await segments_of(engine.pid, tmp_path) == {}
