"""The base that all commands stand on.

A command reads files and writes an output with a manifest beside it (``manifest``). An output that takes long is made
of pieces, by one process or several, and appears whole or not at all (``resumable_output``); a small file is written
beside its place and renamed (``publish``). The rest is one-line errors (``errors``), command lines (``cli``), progress
(``progress``), addresses (``addresses``) and small helpers.
"""

__version__ = "0.3.0"
