"""supervisord.conf and systemd .service files -> unit files of ours, and what could not be carried over, by line.

`sources.py` alone reads files. What a foreign file says is taken apart in `supervisord_file.py` and
`systemd_file.py`, turned key by key into drafts in `supervisord.py` and `systemd.py`, and every draft goes through
`drafts.py`, which lets nothing out that our own parser would not take. Nothing here is imported by `podvisor run`.
"""
