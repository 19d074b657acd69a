"""`podvisor start UNIT`."""

from supervisor.cli.unit_command import starting_command

command = starting_command("start", "Start UNIT and wait until its process runs.")
