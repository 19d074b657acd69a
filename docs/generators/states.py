"""states.md: the machines, as their tables say and as they behave when they are driven."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from msgspec.structs import replace

from controller.model.instance import TRANSITIONS, InstanceStatus
from controller.model.relaunch.run import RunStep
from generators import markdown, operation_steps, run_steps, source, status_table
from generators.diagram import ANY, diagram, from_any
from generators.explore import Edge
from generators.markdown import code
from supervisor.unit.machine import TABLE, Handler, nothing
from supervisor.unit.states import RUN_STATE, SubState
from supervisor.wire import Step

SOURCES = (
    "supervisor/unit/machine.py",
    "supervisor/unit/states.py",
    *operation_steps.SOURCES,
    status_table.SOURCE,
    "controller/model/instance.py",
    *run_steps.SOURCES,
)
INTRODUCTION = """
Tables are printed as they stand in the code. Diagrams of steps are found by driving the pure decisions with everything
that they can hear, from every state that this leads to: an arrow is there because it was gone along.
"""
LINE_BREAK = "<br>"


def page() -> str:
    return markdown.page("States", SOURCES, INTRODUCTION, _unit(), _operation(), _status(), _instance(), _run())


def _unit() -> str:
    docs = source.field_docs(SubState)
    rows = [
        (RUN_STATE[sub_state], code(sub_state), docs[sub_state.name], _handled(sub_state)) for sub_state in SubState
    ]
    return "\n\n".join(
        (
            "## A unit",
            "What an event does in a sub-state; an event that is not listed does nothing there."
            " Handlers are functions of `supervisor/unit/`.",
            markdown.table(("state", "sub-state", "meaning", "event: handler"), rows),
        )
    )


def _handled(sub_state: SubState) -> str:
    by_handler: dict[Handler, list[str]] = {}
    for event, handler in TABLE[sub_state].items():
        if handler is not nothing:
            by_handler.setdefault(handler, []).append(event.__name__)
    return LINE_BREAK.join(f"{', '.join(events)}: {code(_name(handler))}" for handler, events in by_handler.items())


def _name(handler: Handler) -> str:
    return f"{handler.__module__.rpartition('.')[2]}.{handler.__name__}"


def _operation() -> str:
    return "\n\n".join(
        (
            "## The engine operation of a supervisor",
            f'In a gang, with `enable_engine_relaunch` on. From "{ANY}" leads what does so from every one.'
            " Commands that are refused lead nowhere; a step may begin anew, in a newer epoch.",
            diagram(from_any(_in_order(operation_steps.in_a_gang(), Step), tuple(Step)), Step.IDLE),
            "Without a controller the unit's own restart policy starts the engine:",
            diagram(_in_order(operation_steps.alone(), Step), Step.IDLE),
            _meanings(Step),
        )
    )


def _status() -> str:
    rows = []
    for row in status_table.rows():
        words = [_condition(question, answers) for question, answers in row.answers.items()]
        counted = row.judgement.counted
        rows.append(
            (", ".join(filter(None, words)), code(row.judgement.status), f"yes: {counted}" if counted else "no")
        )
    return "\n\n".join(
        (
            "## The status of an endpoint",
            "The first row that fits holds. WHY stands for what the failure or the probe says.",
            markdown.table(("operation and engine", "status", "the arbiter counts it"), rows),
        )
    )


def _condition(question: str, answers: tuple[object, ...]) -> str:
    """Said only where it is so: the rows above have taken what is otherwise."""
    if question == "step":
        return " or ".join(code(answer) for answer in answers)
    return question if True in answers else ""


def _instance() -> str:
    edges = [
        Edge(status, target, event)
        for status, events in TRANSITIONS.items()
        for event, target in events.items()
        if target is not status
    ]
    return "\n\n".join(
        (
            "## An instance",
            "An event that is not shown leaves the status as it is.",
            diagram(edges, InstanceStatus.INITIAL),
        )
    )


def _run() -> str:
    edges = list(_in_order(run_steps.edges(), RunStep))
    said: dict[tuple[str, str], list[str]] = {}
    for edge in edges:
        said.setdefault((edge.source, edge.target), []).append(edge.label)
    steps = tuple(step for step in RunStep if step not in (RunStep.OPEN, RunStep.CLOSED))
    ways = from_any((replace(edge, label="") for edge in edges), steps)
    return "\n\n".join(
        (
            "## A relaunch run",
            f'In a gang of which one member does everything that a member can do. From "{ANY}" leads what does so from'
            " every one.",
            diagram(ways, RunStep.OPEN),
            "What the run says on each way. N is a number, CODE an [error code](messages.md#errorcode); WHY is the"
            " supervisor's word, DEATH the report's.",
            markdown.table(
                ("from", "to", "said"),
                [(code(start), code(end), LINE_BREAK.join(words)) for (start, end), words in said.items()],
            ),
        )
    )


def _in_order(edges: Iterable[Edge], steps: type[Enum]) -> list[Edge]:
    """As the code names the steps; what is none of them comes last."""
    order = {step.value: place for place, step in enumerate(steps)}
    return sorted(edges, key=lambda edge: (order[edge.source], order.get(edge.target, len(order)), edge))


def _meanings(words: type[Enum]) -> str:
    docs = source.field_docs(words)
    return markdown.table(("step", "meaning"), [(code(word.value), docs[word.name]) for word in words])
