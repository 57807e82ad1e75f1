"""Convert the benchmark's checkpoint."""

from __future__ import annotations

from typing import NoReturn

from foundation.errors import run_command


def main() -> int | None:
    """Run ``python -m checkpoint_convert`` with ``sys.argv``; return the exit status, None for 0."""
    from checkpoint_convert.commands.conversion_commands import (
        ConversionPlanCommand,
        MegatronToPaxmlCommand,
        PaxmlToMegatronCommand,
        RandomPaxmlCommand,
    )
    from checkpoint_convert.commands.export_commands import ToHuggingfaceCommand, ToTorchDistCommand
    from checkpoint_convert.commands.inspection_commands import CompareCheckpointsCommand, InspectCheckpointCommand
    from foundation.cli import run_subcommand

    commands = {
        "paxml-to-megatron": PaxmlToMegatronCommand,
        "megatron-to-paxml": MegatronToPaxmlCommand,
        "plan": ConversionPlanCommand,
        "to-huggingface": ToHuggingfaceCommand,
        "to-torch-dist": ToTorchDistCommand,
        "inspect": InspectCheckpointCommand,
        "compare": CompareCheckpointsCommand,
        "random-paxml": RandomPaxmlCommand,
    }
    return run_subcommand("checkpoint_convert", __doc__, commands)


def console() -> NoReturn:
    """Run ``python -m checkpoint_convert``, or the script ``checkpoint_convert`` of an installation."""
    run_command(main)


if __name__ == "__main__":
    console()
