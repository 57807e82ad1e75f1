"""What keeps a run going without a person: attempts, the watchdog, what to do next, one launcher; its status.

On the host of a Slurm job there may be only bash and Python, for the container is entered by srun. ``__main__``,
``keep_running``, ``next_attempt``, the files of attempts and ``slurm/`` import only Python's own library and each
other, and hold to Python 3.8 (tests/benchmark/launch/test_plain_python.py).
"""
