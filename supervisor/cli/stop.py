"""`podvisor stop UNIT`."""

from supervisor.cli.unit_command import unit_command

command = unit_command("stop", "Stop UNIT: its whole process tree, verified.")
