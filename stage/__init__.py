"""What all stages share.

A stage is a command that reads files and writes files with a manifest beside them: the manifest says what was read,
with which options, and what was written, so that the next stage can refuse what is not whole and the same stage need
not run twice (``manifest``). All of them publish files whole (``publish``), one at a time in a folder (``lock``), say
how far they are (``progress``) and what is wrong in one line (``errors``), and take their options in one way (``cli``).
The other modules hold what several stages need besides.
"""
