"""The processes of a replay on this machine, and what comes back from them."""

import dataclasses
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmark.config.run_config import RunConfig
from benchmark.config.typed_json import dataclass_from_json
from benchmark.evidence.chain_links import NOTHING, encode_link
from benchmark.evidence.link_contents import KINDS, Machinery, StatePrint
from benchmark.launch.forked_ranks import run_ranks
from benchmark.replay.replayed_steps import ReplayedSteps, Stretch, replay_steps
from benchmark.training.engine.distributed import Environment, end_process, read_environment
from model.flops import num_parameters
from stage.errors import InputError

BYTES_PER_PARAMETER = 16
"""FP32 weights, gradients and two moments."""
RESULT = "replayed.json"


def replay_on_ranks(stretch: Stretch, environment: Environment) -> ReplayedSteps | None:
    """Of all processes: those that a launcher started, else new ones on this machine. None on ranks other than 0.

    Raises InputError for what these devices cannot do, and where a process fails.
    """
    if environment.world_size > 1:
        return replay_steps(stretch, environment)
    require_room(stretch.config)
    processes = stretch.config.system.num_devices
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "log.txt"
        status = run_ranks(_rank, [stretch, folder], processes=processes, environment={}, log=log)
        if status:
            said = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
            told = [line.removeprefix("error: ") for line in said if line.startswith("error: ")]
            if told:
                raise InputError(told[0])
            last = said[-1] if said else "it said nothing"
            raise InputError(f"a process of the replay ended with status {status}: {last}; nothing was compared")
        return _read(folder / RESULT)


def require_room(config: RunConfig) -> None:
    """Raise InputError where this machine has not the devices, or not the memory."""
    system, parameters = config.system, num_parameters(config.benchmark.model)
    if system.nodes > 1:
        raise InputError(
            f"the layout takes {system.nodes} machines: start replay on each of their devices, as train is started, or "
            "choose a layout for this machine (--nodes 1 --devices-per-node ... --tensor-parallel ...)"
        )
    if system.device == "cuda" and torch.cuda.device_count() < system.devices_per_node:
        raise InputError(
            f"the layout takes {system.devices_per_node} GPUs; PyTorch sees {torch.cuda.device_count()} here: choose "
            "another layout (--system cpu_p1, --devices-per-node ...), or give --without-training"
        )
    needed = BYTES_PER_PARAMETER * parameters * system.replicas
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if system.device == "cuda":
        there = sum(torch.cuda.get_device_properties(one).total_memory for one in range(system.devices_per_node))
    if needed > there:
        raise InputError(
            f"{parameters / 1e9:.1f}e9 parameters take {needed / 1e9:,.0f} GB, this machine has {there / 1e9:,.0f}: "
            "start replay on more machines, as train is started, or give --without-training"
        )


def _rank(stretch: Stretch, folder: Path) -> None:
    """One process of several; what is wrong with the input is told in one line."""
    status = 0
    try:
        found = replay_steps(stretch, read_environment())
        if found is not None:
            _write(folder / RESULT, found)
    except InputError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        status = 2
    end_process(status)


def _write(path: Path, found: ReplayedSteps) -> None:
    links = [json.loads(encode_link(link, NOTHING)[0]) for link in found.links]
    content = {"state": asdict(found.state), "machinery": asdict(found.machinery), "seconds": list(found.seconds)}
    path.write_text(json.dumps({**content, "links": links}))


def _read(path: Path) -> ReplayedSteps:
    found: dict[str, Any] = json.loads(path.read_text())
    links = []
    for fields in found["links"]:
        kind = KINDS[fields.pop("kind")]
        known = {field.name for field in dataclasses.fields(kind)}
        links.append(dataclass_from_json(kind, {name: fields[name] for name in known}, "replay"))
    return ReplayedSteps(StatePrint(**found["state"]), links, Machinery(**found["machinery"]), found["seconds"])
