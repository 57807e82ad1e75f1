"""The job of run_gpt3.sh: its nodes, its time, its place in the queue, and the copy of the code that it runs."""
