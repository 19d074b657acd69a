"""The one place that knows the version; pyproject.toml reads it."""

VERSION = "0.1.0"
