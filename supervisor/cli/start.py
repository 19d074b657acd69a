"""`podvisor start UNIT`."""

from supervisor.cli.unit_command import unit_command

command = unit_command("start", "Start UNIT and wait until its process runs.")
