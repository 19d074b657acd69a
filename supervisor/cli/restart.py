"""`podvisor restart UNIT`."""

from supervisor.cli.unit_command import starting_command

command = starting_command("restart", "Stop UNIT, then start it again.")
