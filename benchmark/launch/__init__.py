"""Keep a run going without a person: one launcher, its attempts, the decision after an attempt.

On the host of a Slurm job there may be only bash and Python, because srun enters the container. ``__main__``,
``keep_running``, ``next_attempt``, the files of attempts and ``slurm/`` import only Python's own library and each
other, and hold to Python 3.8 (tests/benchmark/launch/test_plain_python.py).
"""
