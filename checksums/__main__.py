"""MD5 manifests of datasets and checkpoints."""

from __future__ import annotations

from typing import NoReturn

from foundation.errors import run_command


def main() -> int | None:
    """Run ``python -m checksums`` with ``sys.argv``; return the exit status, None for 0."""
    from checksums.list_commands import CreateListCommand, VerifyListCommand
    from foundation.cli import run_subcommand

    return run_subcommand("checksums", __doc__, {"create": CreateListCommand, "verify": VerifyListCommand})


def console() -> NoReturn:
    """Run ``python -m checksums``, or the script ``checksums`` of an installation."""
    run_command(main)


if __name__ == "__main__":
    console()
