"""Run the official seed checker, which has no command of its own: seed_check.py RULESET FILE …"""

import logging
import sys
from collections.abc import Sequence

from mlperf_logging.package_checker.seed_checker import SeedChecker

PASSED = "SEED CHECKER PASSED"


def main(arguments: Sequence[str]) -> int:
    ruleset, *files = arguments
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s - %(message)s")
    passed = bool(files) and SeedChecker(ruleset).check_seeds(files)
    print(f"{PASSED if passed else 'SEED CHECKER FAILED'} on {len(files)} files")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
