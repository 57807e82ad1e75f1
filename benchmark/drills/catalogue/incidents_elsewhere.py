"""Incidents of other runs that a drill repeats: data only.

BLOOM's chronicle (176B, Jean Zay, 2022), Team Kinoe's report (2024), X. Dunn's notes on training at scale (2024), the
launcher of swiss-ai (its README).
"""

CRASH = "BLOOM 2022-03-21: a GPU crashed, 7.3 h lost"
REPEATED_CRASH = "BLOOM 2022-04-XX: repeated hardware crashes"
LIMBO = "BLOOM 2022-05-18: crashed, but the job stayed in limbo"
EVALUATION_HANG = "BLOOM 2022-04-30, 05-09, 05-18: hanging at evaluation"
NO_TIMEOUT = "BLOOM 2022-04-30: no timeout in three hours"
WALL = "Kinoe 2024-04-30: the wall of NaN at step 2100"
SILENT = "Dunn: devices that give bad values without an error"
SHOWSTOPPER = "Dunn: what is no showstopper must not stop"
LAUNCHER = "launcher README: exit before the time limit, go on by itself"
TRIGGERS = "launcher README: save and exit triggers"
FAIL_LOOP = "launcher README: guard against failing without end"
