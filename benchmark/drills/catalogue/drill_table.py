"""All drills, by name."""

from collections.abc import Mapping

from benchmark.drills.catalogue.drill import Drill
from benchmark.drills.catalogue.process_drills import FAILURES, HANGS, kills
from benchmark.drills.catalogue.state_drills import FILES, NUMBERS, REQUESTS

DRILLS: Mapping[str, Drill] = {
    drill.name: drill for drill in (*kills(), *HANGS, *FAILURES, *NUMBERS, *FILES, *REQUESTS)
}
