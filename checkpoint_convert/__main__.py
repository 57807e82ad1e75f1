"""Convert the benchmark's checkpoint."""

from typing import NoReturn

from checkpoint_convert.commands.conversion_commands import (
    ConversionPlanCommand,
    MegatronToPaxmlCommand,
    PaxmlToMegatronCommand,
    RandomPaxmlCommand,
)
from checkpoint_convert.commands.export_commands import (
    ToDcpCommand,
    ToHuggingfaceCommand,
    TorchDistToMegatronCommand,
    ToTorchDistCommand,
)
from checkpoint_convert.commands.inspection_commands import CompareCheckpointsCommand, InspectCheckpointCommand
from stage.cli import main


def console() -> NoReturn:
    """``python -m checkpoint_convert``, and the script ``checkpoint_convert`` of an installation."""
    main(
        "checkpoint_convert",
        __doc__,
        {
            "paxml-to-megatron": PaxmlToMegatronCommand,
            "megatron-to-paxml": MegatronToPaxmlCommand,
            "plan": ConversionPlanCommand,
            "to-huggingface": ToHuggingfaceCommand,
            "to-dcp": ToDcpCommand,
            "to-torch-dist": ToTorchDistCommand,
            "torch-dist-to-megatron": TorchDistToMegatronCommand,
            "inspect": InspectCheckpointCommand,
            "compare": CompareCheckpointsCommand,
            "random-paxml": RandomPaxmlCommand,
        },
    )


if __name__ == "__main__":
    console()
