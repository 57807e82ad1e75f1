"""What ``python -m benchmark`` can be told.

A command is a frozen dataclass whose fields are its options and whose ``run`` does the work (stage/cli.py). What takes
long to import is imported there, so that --help and errors come at once.
"""
