"""The base that all commands stand on.

A command reads files and writes an output with a manifest beside it (``outputs.manifest``). An output that takes long
is made in parts, by one process or several, and appears whole or not at all (``outputs.resumable_output``); a small
file is written under another name and renamed (``outputs.publish``). Addresses are read by ``network``, JSON, pickles
and archives of strangers by ``file_formats``. The other modules are one-line errors, command lines, progress, and small
helpers.
"""

__version__ = "0.10.0"
