"""`python -m tests.suites [dumb-init] [tini]`: the report for people. Exits 1 if a case that applies has failed."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import trio

from tests.suites.checkouts import NoCheckout, checkout
from tests.suites.running import CONTROLS, Outcome, run_dumb_init, run_tini


async def report(name: str) -> bool:
    run = {"dumb-init": run_dumb_init, "tini": run_tini}[name]
    outcomes: dict[str, Outcome] = {}
    for init in ("podvisor", CONTROLS[name]):
        with tempfile.TemporaryDirectory() as directory:
            place = Path(directory)
            outcomes[init] = outcome = await run(checkout(name, place), place, init)
        print(f"{name}'s suite, {init}: {outcome.summary()}", flush=True)
        for case, failure in outcome.failures.items():
            if init != "podvisor" or failure is not None:
                print(f"  {'passed' if failure is None else 'FAILED'}  {case}")
    for reason in dict.fromkeys(outcomes["podvisor"].not_applicable.values()):
        cases = [case for case, why in outcomes["podvisor"].not_applicable.items() if why == reason]
        print(f"  not applicable, {len(cases)}: {cases[0]}{' …' if len(cases) > 1 else ''}: {reason}")
    return bool(outcomes["podvisor"].failures) and not outcomes["podvisor"].failed


def main() -> None:
    names = sys.argv[1:] or ["dumb-init", "tini"]
    try:
        results = [trio.run(report, name) for name in names]
    except NoCheckout as error:
        sys.exit(str(error))
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
