"""The commands of ``python -m benchmark``.

A command is a frozen dataclass whose fields are its options and whose ``run`` does the work (foundation/cli.py).
Modules that take long to import are imported in ``run``, so that --help and errors come at once.
"""
