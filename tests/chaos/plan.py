"""A seed and a stage -> the strikes to come. Only chance from the seed decides, so that a seed is a whole story."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from msgspec.structs import replace

from tests.chaos.faults import (
    KINDS,
    Ask,
    Cut,
    Fault,
    Freeze,
    FullDisk,
    Kill,
    Lossy,
    NoDescriptors,
    OutOfMemory,
    Restart,
    Slow,
    Stage,
    Strike,
    Timed,
    Unplug,
    Verb,
    Way,
    Whom,
)

SHORTEST_SEC = 0.2
TOGETHER = {1: 0.4, 2: 0.4, 3: 0.15, 4: 0.05}
"""How many faults overlap in a strike, and in which part of them."""
APART_SEC = 0.75
"""On average, between their begins."""
NEAR = 0.7
LOST = 0.3
LONGEST_DELAY_SEC = 0.4


def plan(
    stage: Stage, seed: int, faults: int, *, longest_sec: float, only: str | None = None, together: int | None = None
) -> tuple[Strike, ...]:
    """So many faults, those of one kind if `only` names it; none lasts longer than `longest_sec`. `together` is how
    many overlap in each strike, else chance decides.

    Raises ValueError for a kind that there is not, or not on this stage.
    """
    kinds = _kinds(stage, only)
    return tuple(_strikes(Random(f"{seed}"), stage, kinds, faults, longest_sec, together))


def _kinds(stage: Stage, only: str | None) -> Sequence[str]:
    able = [kind for kind in KINDS if kind not in stage.missing]
    if only is None:
        return able
    if only not in able:
        raise ValueError(f"there are no faults of kind {only!r} here; there are {', '.join(able)}")
    return [only]


def _strikes(
    random: Random, stage: Stage, kinds: Sequence[str], faults: int, longest_sec: float, together: int | None
) -> Iterator[Strike]:
    number = 0
    while faults > 0:
        size = min(faults, together or random.choices([*TOGETHER], [*TOGETHER.values()])[0])
        yield Strike(number, tuple(_overlapping(random, stage, kinds, size, longest_sec)))
        number += 1
        faults -= size


def _overlapping(random: Random, stage: Stage, kinds: Sequence[str], size: int, longest_sec: float) -> Iterator[Timed]:
    """The first at once, the others soon. Most hit the same gang: two faults far from each other are two strikes."""
    weights = [_WEIGHTS[kind] for kind in kinds]
    first = _DRAW[random.choices(kinds, weights)[0]](random, stage, longest_sec)
    yield Timed(0.0, first)
    for kind in random.choices(kinds, weights, k=size - 1):
        where = _near(stage, first) if random.random() < NEAR else stage
        yield Timed(round(random.uniform(0, size * APART_SEC), 2), _DRAW[kind](random, where, longest_sec))


def _near(stage: Stage, fault: Fault) -> Stage:
    """The gang that it hits, and the centre; the whole stage if it hits the centre."""
    gangs = tuple(gang for gang in stage.gangs if fault.pod in gang)
    return replace(stage, gangs=gangs) if gangs else stage


def _lasting(random: Random, longest_sec: float) -> float:
    """Most are short; a few last long enough for a member to be given up."""
    return round(SHORTEST_SEC + (longest_sec - SHORTEST_SEC) * random.random() ** 2, 2)


def _victim(random: Random, stage: Stage) -> tuple[str, Whom]:
    """Each process of a pod is as likely as another; the centre's are few and count for more."""
    if random.random() < 0.25:
        return random.choice(stage.centre), Whom.FIRST
    return random.choice(stage.pods), random.choice([Whom.ENGINE, Whom.ENGINE, Whom.WORKER, Whom.FIRST, Whom.STORE])


def _kill(random: Random, stage: Stage, longest_sec: float) -> Fault:
    return Kill(*_victim(random, stage))


def _freeze(random: Random, stage: Stage, longest_sec: float) -> Fault:
    return Freeze(*_victim(random, stage), _lasting(random, longest_sec))


def _cut(random: Random, stage: Stage, longest_sec: float) -> Fault:
    """Between a pod and a controller, between two pods of a gang, or between the members of the centre."""
    gang = random.choice(stage.gangs)
    pairs = [(pod, controller) for pod in gang for controller in stage.controllers]
    pairs += [(pod, other) for pod in gang for other in gang if pod < other]
    if stage.etcd is not None:
        pairs += [(controller, stage.etcd) for controller in stage.controllers] * len(gang)
    pod, peer = random.choice(pairs)
    return Cut(pod, peer, random.choice(list(Way)), _lasting(random, longest_sec))


def _unplug(random: Random, stage: Stage, longest_sec: float) -> Fault:
    return Unplug(random.choice([*stage.pods, *stage.controllers]), _lasting(random, longest_sec))


def _lossy(random: Random, stage: Stage, longest_sec: float) -> Fault:
    return Lossy(random.choice([*stage.pods, *stage.controllers]), LOST, _lasting(random, longest_sec))


def _slow(random: Random, stage: Stage, longest_sec: float) -> Fault:
    delay = round(random.uniform(0.05, LONGEST_DELAY_SEC), 2)
    return Slow(random.choice(stage.pods), delay, _lasting(random, longest_sec))


def _full_disk(random: Random, stage: Stage, longest_sec: float) -> Fault:
    journals = stage.controllers if stage.etcd is None else ()
    return FullDisk(random.choice([*stage.pods, *journals * len(stage.pods)]), _lasting(random, longest_sec))


def _no_descriptors(random: Random, stage: Stage, longest_sec: float) -> Fault:
    return NoDescriptors(random.choice([*stage.pods, *stage.controllers * 2]), _lasting(random, longest_sec))


def _out_of_memory(random: Random, stage: Stage, longest_sec: float) -> Fault:
    return OutOfMemory(random.choice(stage.pods))


def _restart(random: Random, stage: Stage, longest_sec: float) -> Fault:
    return Restart(random.choice(stage.centre))


def _ask(random: Random, stage: Stage, longest_sec: float) -> Fault:
    verb = random.choice(list(Verb))
    lasting = _lasting(random, longest_sec) if verb in (Verb.HOLD, Verb.STOP_ENGINE, Verb.STOP_STORE) else 0.0
    return Ask(random.choice(stage.pods), verb, lasting)


_DRAW: Mapping[str, Callable[[Random, Stage, float], Fault]] = {
    "kill": _kill,
    "freeze": _freeze,
    "cut": _cut,
    "unplug": _unplug,
    "lossy": _lossy,
    "slow": _slow,
    "full-disk": _full_disk,
    "no-descriptors": _no_descriptors,
    "out-of-memory": _out_of_memory,
    "restart": _restart,
    "ask": _ask,
}
_WEIGHTS = {
    "kill": 6,
    "freeze": 3,
    "cut": 3,
    "unplug": 2,
    "lossy": 2,
    "slow": 1,
    "full-disk": 1,
    "no-descriptors": 1,
    "out-of-memory": 1,
    "restart": 1,
    "ask": 5,
}
