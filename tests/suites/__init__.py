"""dumb-init's behavioural suite and tini's inner suite, run against `podvisor run -- COMMAND`.

The suites are fetched by whoever runs them (`checkouts.py`) and are not part of this project. Ours are the shim that
takes their flags (`shim.py`), the list of what applies and why the rest does not (`cases.py`), and the runners.
`python -m tests.suites` prints the whole report.
"""
