"""`python -m tests.chaos`: faults by chance from a seed, and after each the invariants, checked from outside.

Exit code 2 when there can be no play here, 1 when an invariant did not hold; then the seed, the faults, a timeline and
a command to see it again are printed.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import trio

from controller.demo.engines import REDIS_SERVER, find_engines
from controller.demo.sandbox import can_use_namespaces
from tests.chaos import report
from tests.chaos.faults import KINDS, Stage, Strike
from tests.chaos.plan import plan
from tests.chaos.play import Played, play, tally
from tests.chaos.world import open_world, stage_of, what_is_missing
from tests.support.compiled import compile_packages

EXIT_VIOLATED, EXIT_CANNOT = 1, 2
PART = 50
"""Faults in one world; then another is made, so that a long play does not depend on how its first part went."""


def main() -> None:
    options = _options()
    if (cannot := _why_not(options.store)) is not None:
        print(cannot, file=sys.stderr)
        sys.exit(EXIT_CANNOT)
    for kind, reason in what_is_missing().items():
        print(f"no {kind}: {reason}")
    compile_packages()
    stage = stage_of(etcd=options.store == "etcd")
    if options.replay is not None:
        strikes = msgspec.json.decode(options.replay.read_bytes(), type=tuple[Strike, ...])
        sys.exit(trio.run(_part, options, stage, options.seed, strikes))
    code = 0
    for number, seed in enumerate(range(options.seed, options.seed + -(-options.faults // PART))):
        faults = min(PART, options.faults - number * PART)
        try:
            strikes = plan(
                stage, seed, faults, longest_sec=options.longest, only=options.only, together=options.together
            )
        except ValueError as error:
            print(error, file=sys.stderr)
            sys.exit(EXIT_CANNOT)
        code |= trio.run(_part, options, stage, seed, strikes)
        if code and not options.go_on:
            break
    sys.exit(code)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.partition("\n")[0])
    parser.add_argument("--faults", type=int, default=30, metavar="N", help=f"default: 30; {PART} in each world")
    parser.add_argument("--seed", type=int, default=1, help="of the first world, each further one has the next")
    parser.add_argument("--only", choices=KINDS, metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--longest", type=float, default=5.0, metavar="SEC", help="of a fault; default: 5")
    parser.add_argument("--together", type=int, metavar="N", help="overlapping faults in each strike; default: 1 to 4")
    parser.add_argument("--store", choices=("sqlite", "etcd"), default="sqlite", help="etcd: with two controllers")
    lost = "what its gang does when a member is lost; default: rejoin"
    parser.add_argument("--on-member-lost", choices=("rejoin", "restart-all"), default="rejoin", help=lost)
    parser.add_argument("--replay", type=Path, metavar="FILE", help="the strikes in this file instead of a plan")
    parser.add_argument("--logs", type=Path, metavar="DIRECTORY", help="where they are kept; default: only on failure")
    parser.add_argument("--go-on", action="store_true", help="with the next world after a violation")
    return parser.parse_args()


def _why_not(store: str) -> str | None:
    if (reason := can_use_namespaces()) is not None:
        return f"cannot make pods: {reason}"
    if store == "etcd" and shutil.which("etcd") is None:
        return "no etcd here: install etcd-server"
    return find_engines().missing.get(REDIS_SERVER)


async def _part(options: argparse.Namespace, stage: Stage, seed: int, strikes: Sequence[Strike]) -> int:
    directory = Path(tempfile.mkdtemp(prefix="podvisor-chaos-", dir=options.logs))
    history: list[Strike] = []

    def tell(played: Played) -> None:
        history.append(played.strike)
        print(report.line(played), flush=True)

    print(f"seed {seed}: {len(strikes)} strikes, {', '.join(f'{n} {kind}' for kind, n in tally(strikes).items())}")
    settings = {"on_member_lost": options.on_member_lost}
    async with open_world(stage, find_engines(), directory, settings) as world:
        failed = await play(world, strikes, tell)
        if failed is not None:
            chosen = ["--store", options.store, "--on-member-lost", options.on_member_lost]
            command = shlex.join(["python", "-m", "tests.chaos", *chosen])
            for text in report.violation(failed, history, seed, command, directory):
                print(text, flush=True)
            return EXIT_VIOLATED
    if options.logs is None:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"seed {seed}: every invariant held after each of {len(strikes)} strikes", flush=True)
    return 0


if __name__ == "__main__":
    main()
