"""The process in which a user's filter runs (``user_filter``): started as a script, so it imports nothing of ours.

``filter_process.py FILE FUNCTION MD5 ANSWERS``: requests, JSON lists of texts with their length before them, come on
standard input; answers go to the open file ANSWERS.
"""

import contextlib
import hashlib
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import IO, Any

LENGTH_BYTES = 8


def load(file: Path, function: str, md5: str) -> Callable[[str], Any]:
    """Import the function. Raises what importing it does, and ValueError where the file is not what it was."""
    content = file.read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise ValueError(f"{file} changed while it was in use")
    sys.path.insert(0, str(file.parent))
    module = ModuleType(file.stem)
    module.__file__ = str(file)
    sys.modules[file.stem] = module
    exec(compile(content, str(file), "exec"), module.__dict__)
    found = getattr(module, function)
    if not callable(found):
        raise TypeError(f"{function} is not a function")
    return found  # type: ignore[no-any-return]


def kept(given: Any, text: str) -> str | None:
    """What the function's result makes of a text. Raises TypeError for anything that is no result of a filter."""
    if given is None or given is False:
        return None
    if given is True:
        return text
    if not isinstance(given, str):
        raise TypeError(f"gave {type(given).__name__}, expected True, False, None or a text")
    given.encode()
    return given


def answer(function: Callable[[str], Any], texts: list[str]) -> dict[str, Any]:
    """``texts`` with null for those left out, or ``error`` and the ``place`` of the text at which it happened."""
    results = []
    for place, text in enumerate(texts):
        try:
            results.append(kept(function(text), text))
        except Exception as error:
            return {"error": described(error), "place": place}
    return {"texts": results}


def described(error: BaseException) -> str:
    """The exception, and the user's line in which it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def serve(file: Path, function: str, md5: str, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer until the worker is gone."""
    called: Callable[[str], Any] | None = None
    while head := requests.read(LENGTH_BYTES):
        texts = json.loads(requests.read(int.from_bytes(head, "little")))
        try:
            called = called or load(file, function, md5)
            content = json.dumps(answer(called, texts)).encode()
        except Exception as error:
            content = json.dumps({"error": described(error), "place": None}).encode()
        with contextlib.suppress(OSError, ValueError):
            print(end="", flush=True)  # what the function printed, before anybody can be done with the answer
        answers.write(len(content).to_bytes(LENGTH_BYTES, "little") + content)
        answers.flush()


def main() -> None:
    with open(os.dup(0), "rb") as requests, open(int(sys.argv[4]), "wb") as answers:  # noqa: PTH123
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3], requests, answers)


if __name__ == "__main__":
    main()
