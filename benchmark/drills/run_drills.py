"""``benchmark drill``: the drills one after another, and their table."""

import dataclasses
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from benchmark.config.run_config import RunConfig
from benchmark.config.system_config import System
from benchmark.config.systems import SYSTEMS
from benchmark.drills.aftermath import Aftermath
from benchmark.drills.catalogue.drill import Drill
from benchmark.drills.catalogue.drill_table import DRILLS
from benchmark.drills.damage import flip_bit
from benchmark.drills.drill_result import DrillResult, judge
from benchmark.drills.drilled_run import Disturbed, run_to_its_end
from benchmark.drills.faults import drawn, words_for
from benchmark.drills.fuzz import mixed
from benchmark.drills.outside import UnderTorchrun
from benchmark.drills.practice import LAYOUTS, SAVE_INTERVAL, PracticeInputs, of_steps, practice_config, prepared_inputs
from checksums.md5_list import compare_lists, digest_folder
from stage.errors import InputError
from stage.outputs.lock import only_one_in

HEAD = f"{'drill':26} {'came of it':10} {'attempts':>8} {'lost':>5} {'told':>6} {'next loss':>9} {'took':>6}  right"


class Drills:
    """Runs drills in a folder; an undisturbed run of each layout and length is made once."""

    def __init__(self, work_dir: Path, *, seed: int) -> None:
        self._work, self._seed = work_dir.resolve(), seed
        self._undisturbed: dict[tuple[str, int], Aftermath] = {}
        self.inputs: PracticeInputs = prepared_inputs(self._work)

    def run(self, drill: Drill) -> DrillResult:
        """Raises InputError where the undisturbed run does not come to its end."""
        random = Random(f"{self._seed} {drill.name}")
        folder = self._work / "drills" / drill.name
        if drill.start == "none":
            return _found_before(drill, self.inputs, folder)
        undisturbed = self.undisturbed(drill.layout, drill.steps)
        system = _system(drill)
        faults = tuple(drawn(fault, random, system.num_devices) for fault in drill.faults)
        config = practice_config(
            self._inputs_for(drill, folder), folder / "run", system, of_steps(drill.steps), **_options(drill, folder)
        )
        disturbed = Disturbed(config, faults, drill.damage, drill.first_options, drill.continued)
        start = UnderTorchrun(config, faults, folder) if drill.start == "torchrun" else None
        ended = run_to_its_end(disturbed, folder, start)
        words = words_for([*faults, *drill.damage])
        return judge(drill, ended, undisturbed, save_interval=SAVE_INTERVAL, faults=words)

    def undisturbed(self, layout: str, steps: int) -> Aftermath:
        if (layout, steps) not in self._undisturbed:
            folder = self._work / "undisturbed" / f"{layout.replace(' ', '_')}_{steps}"
            config = practice_config(self.inputs, folder / "run", LAYOUTS[layout], of_steps(steps))
            ended = run_to_its_end(Disturbed(config), folder)
            if ended.aftermath.finished != "success" or len(ended.decisions) != 1:
                raise InputError(f"{folder}: the undisturbed run failed: {ended.decisions[-1].reason}; see its logs")
            self._undisturbed[layout, steps] = ended.aftermath
        return self._undisturbed[layout, steps]

    def _inputs_for(self, drill: Drill, folder: Path) -> PracticeInputs:
        """Inputs of its own where the drill damages them."""
        if not any(damage.kind == "flip data" for damage in drill.damage):
            return self.inputs
        own = folder.with_name(f"{folder.name}.inputs")
        shutil.rmtree(own, ignore_errors=True)
        shutil.copytree(self.inputs.folder, own, ignore=shutil.ignore_patterns("checkpoint", "paxml"))
        (own / "checkpoint").symlink_to(self.inputs.checkpoint)
        return PracticeInputs(own)


def run_drills(names: Sequence[str], work_dir: Path, *, seed: int = 0, fuzz: int = 0, as_json: bool = False) -> int:
    """Run the drills of these names, all without a name, or ``fuzz`` runs with faults at random, and print what came of
    them; 0 if all came out right."""
    chosen = [mixed(number, seed) for number in range(fuzz)] if fuzz else [DRILLS[name] for name in _known(names)]
    work_dir.mkdir(parents=True, exist_ok=True)
    with only_one_in(work_dir, "choose another --work-dir"):
        drills = Drills(work_dir, seed=seed)
        if not as_json:
            print(HEAD, flush=True)
        results = []
        started = time.perf_counter()
        for drill in chosen:
            results.append(drills.run(drill))
            if not as_json:
                print(row(results[-1]), flush=True)
        seconds = time.perf_counter() - started
    if as_json:
        print(json.dumps(as_data(results, seed=seed, seconds=seconds), indent=1))
    else:
        right = sum(result.right for result in results)
        print(f"{right} of {len(results)} came out right, in {seconds:.0f} s (seed {seed}); runs in {work_dir}/drills")
    return 0 if all(result.right for result in results) else 1


def row(result: DrillResult) -> str:
    """A line of the table, and one for each problem."""
    line = (
        f"{result.name:26} {result.outcome:10} {result.attempts:>8} {result.lost_steps:>5} {_s(result.detected_s):>6} "
        f"{_s(result.next_loss_s):>9} {_s(result.seconds):>6}  {'yes' if result.right else 'NO'}"
    )
    more = [f"    {problem}" for problem in result.problems]
    if result.problems:
        more += [f"    injected: {result.faults}", f"    said: {result.words}"]
    return "\n".join([line, *more])


def listed() -> str:
    """What ``--list`` prints."""
    lines = []
    for drill in DRILLS.values():
        lines.append(f"{drill.name:26} {drill.what}")
        if drill.covers:
            lines.append(f"{'':26}   {drill.covers}")
    return "\n".join(lines)


def as_data(results: Sequence[DrillResult], *, seed: int, seconds: float) -> dict[str, Any]:
    rows = [{**dataclasses.asdict(result), "right": result.right} for result in results]
    return {"seed": seed, "seconds": seconds, "right": all(result.right for result in results), "drills": rows}


def _known(names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in DRILLS]
    if unknown:
        raise InputError(f"unknown drill {unknown[0]!r}; python -m benchmark drill --list shows them")
    return list(names) or list(DRILLS)


def _system(drill: Drill) -> System:
    system = LAYOUTS[drill.layout]
    if not drill.own_limits:
        return system
    own = SYSTEMS["cpu_p2"]
    return dataclasses.replace(system, start_limit_s=own.start_limit_s, hang_floor_s=own.hang_floor_s)


def _options(drill: Drill, folder: Path) -> dict[str, Any]:
    """Paths in them are relative to the drill's folder."""
    fields = {field.name: field.type for field in dataclasses.fields(RunConfig)}
    return {
        name: folder / value if "Path" in str(fields[name]) and isinstance(value, str) else value
        for name, value in drill.options.items()
    }


def _found_before(drill: Drill, inputs: PracticeInputs, folder: Path) -> DrillResult:
    """A bit flips in a training file: what ``checksums verify`` says of it."""
    started = time.perf_counter()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source = inputs.training[0].with_name(f"{inputs.training[0].name}.bin")
    copy = Path(shutil.copy(source, folder))
    listed = digest_folder(folder)
    flip_bit(copy, copy.stat().st_size // 2)
    compared = compare_lists(folder, listed)
    found = copy.name in compared.changed
    return DrillResult(
        name=drill.name,
        outcome="stopped" if found else "unfinished",
        problems=() if found else ("checksums verify did not notice",),
        attempts=0,
        lost_steps=0,
        detected_s=None,
        next_loss_s=None,
        seconds=time.perf_counter() - started,
        equal=None,
        faults=f"one bit of {copy.name}",
        words=f"CHANGED {copy.name}",
    )


def _s(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"
