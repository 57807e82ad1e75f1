"""Find the MLPerf log in a run's folder, and the configuration beside a log."""

import json
from pathlib import Path
from typing import Any

from benchmark.run_record.file_names import CONFIG_FILE, RESULT_FILES, result_name
from foundation.errors import InputError
from foundation.regular_files import children, is_regular, read_regular

MOST_CONFIG_BYTES = 1 << 20


def log_in(path: Path) -> Path:
    """Return a result file, or the one in a run's folder. Raises InputError for a folder with none or several."""
    if is_regular(path):
        return path
    logs = [child for child in children(path) if child.match(RESULT_FILES) and is_regular(child)]
    if len(logs) != 1:
        raise InputError(
            f"{path}: expected a result file, or a folder with one {RESULT_FILES}, not {len(logs)} of them"
        )
    return logs[0]


def config_beside(log: Path) -> dict[str, Any]:
    """Return the configuration of the run that wrote ``log``; empty without one.

    Raises InputError for a configuration that cannot be read.
    """
    path = log.with_name(CONFIG_FILE)
    if not is_regular(path):
        return {}
    try:
        config = json.loads(read_regular(path, MOST_CONFIG_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a run's configuration ({error}); mend it or move it away") from error
    number = config.get("result_number") if isinstance(config, dict) else None
    return config if isinstance(number, int) and log.name == result_name(number) else {}
