"""Commands of checkpoint_convert and checksums, run in the test's own process."""

from dataclasses import dataclass

from tests.support import command_here


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str

    def refused(self, *phrases: str, status: int = 2) -> None:
        """Assert that it ended with ``status`` and, last, a line on standard error that holds ``phrases``."""
        assert self.returncode == status, self.stdout + self.stderr
        last = self.stderr.splitlines()[-1]
        assert last.startswith("error: ")
        for phrase in phrases:
            assert phrase in last, last


def run(*words: object) -> Done:
    """Run one of their commands, whose names differ."""
    program = "checksums" if words[0] in ("create", "verify") else "checkpoint_convert"
    done = command_here(program, *map(str, words))
    return Done(done.returncode, done.stdout, done.stderr)
