"""`podvisor demo`: an engine is killed in front of your eyes, and what is promised of its relaunch is checked."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent, wrap

import click
import trio

from controller.demo import summary
from controller.demo.cast import Cast, choose_cast
from controller.demo.claims import CLAIMS, Check, check_all
from controller.demo.engines import EngineMissing, find_engines
from controller.demo.kubelet import BackOff, open_kubelet
from controller.demo.log_lines import Line
from controller.demo.narrator import ASSEMBLY, RELAUNCH, Narrator, Tone, milliseconds
from controller.demo.pod import ContainerStartError, Network
from controller.demo.sandbox import can_use_namespaces, open_network
from controller.demo.scene import ENGINE_DIES, SCALED_DOWN, SILENT_HALF_DIES, Act, Scene, SceneFailed, open_scene
from controller.demo.seen import Answer, Seen
from supervisor.shared.causes import causes
from supervisor.version import VERSION

ACTS = {"engine": ENGINE_DIES, "silent-half": SILENT_HALF_DIES}
EXIT_NOT_HELD = 1
"""A claim did not hold, or the scene could not be played."""
MAX_COLUMNS = 100
EXIT_SIGNAL = 128
"""Plus the number of the signal that ended it."""
RESTART_BACK_OFF = BackOff().scaled(0.005)
"""50 ms, doubling: only a relaunch that fails ever meets it."""

_STYLES: dict[Tone, dict[str, object]] = {
    Tone.PLAIN: {},
    Tone.GOOD: {"fg": "green"},
    Tone.BAD: {"fg": "red"},
    Tone.LOUD: {"bold": True},
}


@click.command("demo", short_help="Kill an engine, and watch both pods being relaunched.")
@click.option("--act", type=click.Choice(sorted(ACTS)), default="engine", show_default=True, help="Which engine dies.")
@click.option("--plain", is_flag=True, help="Pods as plain processes on loopback addresses, also as root.")
@click.option(
    "--keep-logs",
    type=click.Path(path_type=Path, file_okay=False),
    help="Copy the containers' logs there.  [default: kept only when something went wrong]",
)
@click.option("--no-colour", "--no-color", "no_colour", is_flag=True, help="No colours.  [env: NO_COLOR]")
@click.option("-v", "--verbose", is_flag=True, help="Show every line of every log.")
@click.option("--timeout", default=60.0, show_default=True, metavar="SEC", help="To come up, and to come back.")
def command(act: str, plain: bool, keep_logs: Path | None, no_colour: bool, verbose: bool, timeout: float) -> None:
    """Kill an engine in one of two pods, watch both being relaunched in place; exits 0 only if all claims held.

    \b
    Example: podvisor demo --plain --keep-logs logs
    """
    colour = False if no_colour or os.environ.get("NO_COLOR") else None
    demo = Demo(ACTS[act], Screen(colour, verbose), plain=plain, keep_logs=keep_logs, timeout_sec=timeout)
    sys.exit(trio.run(demo.run))


class Screen:
    """Prints; the column of seconds counts from `zero`, a wall clock."""

    def __init__(self, colour: bool | None, verbose: bool) -> None:
        self._colour = colour
        self._verbose = verbose
        self._narrator = Narrator(ASSEMBLY)
        self._zero = time.time()

    def say(self, text: str = "", tone: Tone = Tone.PLAIN) -> None:
        click.echo(click.style(text, **_STYLES[tone]) if text else "", color=self._colour)  # type: ignore[arg-type]

    def begin(self, title: str, narrator: Narrator, zero: float) -> None:
        self._narrator, self._zero = narrator, zero
        self.say(f"\n{title}", Tone.LOUD)

    def hear(self, line: Line) -> None:
        self._narrator, told = self._narrator.tell(line)
        if self._verbose:
            self.event(line.at, line.pod, line.text)
        elif told is not None:
            self.event(told.at, told.pod, told.text, told.tone)

    def event(self, at: float, pod: str, text: str, tone: Tone = Tone.PLAIN) -> None:
        self.say(f"{at - self._zero:+9.3f} s  {pod:<10}  {text}", tone)


@dataclass
class Demo:
    act: Act
    screen: Screen
    plain: bool
    keep_logs: Path | None
    timeout_sec: float
    ended_by: signal.Signals | None = None

    async def run(self) -> int:
        """The exit code. A signal ends it in order: plain processes would outlive this program otherwise."""
        code = EXIT_NOT_HELD
        async with trio.open_nursery() as nursery:
            await nursery.start(self._watch_signals, nursery.cancel_scope)
            code = await self._run()
            nursery.cancel_scope.cancel()
        if self.ended_by is not None:
            self.screen.say(f"\nended by {self.ended_by.name}; nothing of it is left running", Tone.BAD)
            return EXIT_SIGNAL + self.ended_by
        return code

    async def _watch_signals(
        self, everything: trio.CancelScope, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                self.ended_by = signal.Signals(number)
                everything.cancel(reason=f"ended by {self.ended_by.name}")

    async def _run(self) -> int:
        began = trio.current_time()
        try:
            cast = await choose_cast(find_engines(), as_pair=self.act.as_pair)
        except EngineMissing as missing:
            self.screen.say(f"podvisor demo: this act needs real engines: {missing}", Tone.BAD)
            return EXIT_NOT_HELD
        with self._logs_kept_on_failure() as (workspace, succeeded):
            checks = await self._play(workspace, cast)
            if checks and all(check.held for check in checks):
                succeeded.set()
                took = trio.current_time() - began
                self.screen.say(f"All {len(CLAIMS)} claims held. The whole demo took {took:.1f} s.", Tone.GOOD)
                return 0
            if checks:
                self.screen.say(f"{summary.broken(checks).capitalize()}.", Tone.BAD)
        return EXIT_NOT_HELD

    async def _play(self, workspace: Path, cast: Cast) -> tuple[Check, ...]:
        """The checks; none if the scene could not be played to its end."""
        why_plain = "asked for with --plain" if self.plain else can_use_namespaces()
        try:
            async with (
                open_network(2, workspace, namespaces=why_plain is None) as network,
                open_kubelet(RESTART_BACK_OFF) as kubelet,
            ):
                self._introduce(network, cast, why_plain)
                async with open_scene(network, kubelet, cast, self.act, timeout_sec=self.timeout_sec) as scene:
                    return await self._kill_and_watch(scene)
        except* (SceneFailed, ContainerStartError) as group:
            for error in causes(group):
                self.screen.say(f"\nThe scene could not be played: {error}", Tone.BAD)
        return ()

    async def _kill_and_watch(self, scene: Scene) -> tuple[Check, ...]:
        screen = self.screen
        screen.begin("Coming together (seconds since the start)", Narrator(ASSEMBLY), time.time())
        async with scene.following(screen.hear):
            await scene.assembled()
        before = await scene.look()
        self._show_answers(before.answers)
        victim, pid, killed_at = scene.kill(before)
        screen.begin(f"kill -9 {pid}: the engine of {victim} (seconds since the kill)", Narrator(RELAUNCH), killed_at)
        async with scene.following(screen.hear):
            await scene.relaunched(before)
        seen = await scene.seen(before, victim, killed_at)
        self._show_answers([pod.answer_after for pod in seen.pods])
        checks = check_all(seen)
        self._summarize(seen, checks)
        return checks

    def _introduce(self, network: Network, cast: Cast, why_plain: str | None) -> None:
        say = self.screen.say
        say(f"podvisor {VERSION}: an engine is killed, and its whole instance is relaunched in place\n", Tone.LOUD)
        if why_plain is None:
            pods = f"podvisor is PID 1 in both; {network.isolation}"
        else:
            pods = f"{network.isolation}; namespaces were not used: {why_plain}"
        rows = (
            ("scene", self.act.title),
            ("pods", pods),
            *cast.credits,
            ("settings", f"scaled down so that it takes seconds (defaults in brackets): {SCALED_DOWN}"),
        )
        for name, text in rows:
            lines = wrap(text, min(shutil.get_terminal_size().columns, MAX_COLUMNS) - 12)
            say(f"  {name:<9} " + "\n            ".join(lines))

    def _show_answers(self, answers: Sequence[Answer | None]) -> None:
        for number, answer in enumerate(answers):
            if answer is not None:
                text, tone = f'asked to continue "Hello": {answer}', Tone.PLAIN if answer.is_good else Tone.BAD
                self.screen.event(time.time(), f"pod{number}", text, tone)

    def _summarize(self, seen: Seen, checks: Sequence[Check]) -> None:
        say = self.screen.say
        say("\nWhat was promised, and what was seen", Tone.LOUD)
        for text, tone in summary.claims(checks):
            say(text, tone)
        say("\nPids before and after, as each pod numbers them", Tone.LOUD)
        say(indent(summary.pids(seen), "  "))
        say("\nHow long it took", Tone.LOUD)
        for run in seen.runs:
            say(f"  {summary.steps(run)}")
        back_after = summary.back_after_sec(seen)
        if back_after is not None:
            say(f"  from the kill to ACTIVE: {milliseconds(back_after)}")
        say()

    @contextmanager
    def _logs_kept_on_failure(self) -> Iterator[tuple[Path, trio.Event]]:
        """(an empty directory for the pods, what to set when all went well)."""
        workspace = Path(tempfile.mkdtemp(prefix="podvisor-demo-"))
        succeeded = trio.Event()
        try:
            yield workspace, succeeded
        finally:
            kept = _copy_logs(workspace, self.keep_logs) if self.keep_logs is not None else workspace
            if self.keep_logs is not None or succeeded.is_set() or self.ended_by is not None:
                shutil.rmtree(workspace, ignore_errors=True)
            if self.keep_logs is not None or not (succeeded.is_set() or self.ended_by is not None):
                try:
                    self.screen.say(f"The logs are in {kept}")
                except OSError:  # nobody is there to be told
                    shutil.rmtree(workspace, ignore_errors=True)
                    raise


def _copy_logs(workspace: Path, directory: Path) -> Path:
    """DIRECTORY/POD/life-N.log: one for each life of the pod's container."""
    for log in workspace.glob("*/logs/*.log"):
        target = directory / log.parts[-3] / log.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, target)
    return directory
