"""One row per run and per system of any rounds: all that logs, descriptions and the review say."""
