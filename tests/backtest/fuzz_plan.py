"""Try what must hold between steps on thousands of them, made at random.

    python -m tests.backtest.fuzz_plan --works 2000 --seed 1

Prints what does not hold; exit status 1 if there is anything. A thousand take about two minutes.
"""

import argparse
import random
import sys

from tests.backtest.relations import broken_relations, random_work


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--works", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    source, broken = random.Random(chosen.seed), 0
    for _ in range(chosen.works):
        work = random_work(source)
        for words in broken_relations(work):
            broken += 1
            print(f"{words}\n    {work}", flush=True)
    print(f"{chosen.works} steps, {broken} broken relations")
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
