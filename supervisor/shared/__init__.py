"""Plumbing that both programs need and that knows neither: how to listen, who may call, how a log line looks.

The controller imports from `supervisor` only this package, `supervisor.wire` and `supervisor.settings_file`.
"""
