"""Imported last by the fork server: what it has imported is no garbage, and its processes need not look at it.

Each of them collects garbage, as runs do between steps. That would touch all 300,000 objects and so copy every page
they share, about as long as a short run of the tiny benchmark takes.
"""

import gc

gc.freeze()
gc.enable()
