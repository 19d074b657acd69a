"""`podvisor restart UNIT`."""

from supervisor.cli.unit_command import unit_command

command = unit_command(
    "restart", "Stop UNIT, then start it again, and with it those that are bound to it or part of it."
)
