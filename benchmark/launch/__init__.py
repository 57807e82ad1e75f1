"""Keep a run going without a person: one launcher, its attempts, the decision after an attempt.

A Slurm job's host may have only bash and Python 3.8, because srun enters the container: all but ``one_machine`` imports
Python's own library alone (tests/benchmark/launch/test_plain_python.py).
"""
