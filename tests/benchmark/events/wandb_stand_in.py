"""What stands in for the package wandb where it is not installed: it writes down what it is told."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any


class Settings(SimpleNamespace):
    pass


class Run:
    """Everything goes to ``recorded.jsonl`` in the folder that it was given, a list ``[what, …]`` per line."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "recorded.jsonl"
        self.dir = str(folder / "files")
        self.summary: dict[str, Any] = {}
        Path(self.dir).mkdir(exist_ok=True)

    def record(self, *what: object) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def define_metric(self, name: str, step_metric: str) -> None:
        self.record("metric", name, step_metric)

    def log(self, figures: dict[str, Any], step: int) -> None:
        self.record("log", step, figures)

    def save(self, path: str, base_path: str, policy: str) -> None:
        self.record("save", path, policy)

    def finish(self) -> None:
        self.record("finish", self.summary)


def setup() -> Any:
    return SimpleNamespace(settings=SimpleNamespace(project=None, run_name=None))


def init(**options: Any) -> Run:
    folder = Path(options["dir"])
    run = Run(folder)
    run.record(
        "init", {name: value for name, value in options.items() if name != "settings"}, vars(options["settings"])
    )
    if (folder / "hang").exists():
        time.sleep(600)
    if (folder / "refuse").exists():
        raise RuntimeError("api_key not configured")
    return run


def recorded(folder: Path, what: str) -> list[Any]:
    """What was written down under that name."""
    lines = [json.loads(line) for line in (folder / "recorded.jsonl").read_text().splitlines()]
    return [line[1:] for line in lines if line[0] == what]
