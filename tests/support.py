"""What several tests use: paths, recorded outputs of the original code, and commands run as a user runs them."""

import contextlib
import dataclasses
import importlib
import io
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from benchmark.config.run_config import RunConfig
from data_prep.token_files.indexed_dataset import IndexedDatasetWriter, token_dtype
from tests.forked import run_forked, run_module

REPOSITORY = Path(__file__).resolve().parents[1]
GOLDEN = Path(__file__).parent / "golden"
SHARED_GOLDEN = REPOSITORY.parent / "shared" / "golden"
needs_shared = pytest.mark.skipif(not SHARED_GOLDEN.is_dir(), reason="../shared/golden is not there")


def golden(name: str) -> Any:
    """A recorded output kept in tests/golden."""
    return json.loads((GOLDEN / name).read_text())


QUICK = ("checkpoint_convert", "checksums", "data_prep")
"""Programs that leave their process as it was."""


def command(*arguments: object, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
    """Run ``python -m ARGUMENTS``: in this process if it is QUICK, else in one forked from one that imported it all."""
    words = [str(argument) for argument in arguments]
    return command_here(*words) if words[0] in QUICK else forked_command(*words, timeout=timeout)


def forked_command(*arguments: object, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
    """Run ``python -m ARGUMENTS`` from the repository's folder, in a process of its own."""
    return run_forked(run_module, [str(argument) for argument in arguments], folder=REPOSITORY, timeout=timeout)


def command_here(program: str, *words: str, folder: Path = REPOSITORY) -> "subprocess.CompletedProcess[str]":
    """Run a program in this process and in ``folder``, with a user's words and with what he sees."""
    out, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", [program, *words]),
        mock.patch("faulthandler.enable"),  # wants a file of the system's
        mock.patch("gc.freeze"),
        mock.patch("gc.set_threshold"),
        pytest.raises(SystemExit) as leaving,
    ):
        importlib.import_module(f"{program}.__main__").console()
    for stream in (out, errors):
        stream.flush()
        stream.seek(0)
    return subprocess.CompletedProcess([program, *words], int(leaving.value.code or 0), out.read(), errors.read())


def assert_refused(done: "subprocess.CompletedProcess[str]", *phrases: str, status: int = 2) -> None:
    """Bad input: one line on standard error that holds ``phrases``, and the exit status."""
    assert done.returncode == status, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("error: ")
    for phrase in phrases:
        assert phrase in done.stderr, done.stderr


def write_dataset(prefix: Path, sizes: list[int], *, vocab_size: int = 51200, seed: int = 0) -> np.ndarray[Any, Any]:
    """A dataset of random tokens; returns them end to end."""
    random = np.random.default_rng(seed)
    tokens = random.integers(0, vocab_size, size=sum(sizes))
    with IndexedDatasetWriter(prefix, token_dtype(vocab_size)) as writer:
        writer.append(tokens, sizes)
    return tokens


def write_golden_corpora(folder: Path) -> None:
    """A, B and V of the recorded data cases: their bytes follow from the seeds."""
    for name, made in golden("data_manifest.json")["corpora"].items():
        random = np.random.default_rng(made["seed"])
        sizes = random.integers(made["lo"], made["hi"] + 1, size=made["items"])
        tokens = random.integers(0, made["vocab"], size=int(sizes.sum()))
        with IndexedDatasetWriter(folder / name, np.dtype(made["dtype"])) as writer:
            writer.append(tokens, sizes.tolist())


def make_paxml(folder: Path, arguments: str) -> Path:
    """A PAXML checkpoint as gen_paxml.py makes it of ``arguments``."""
    words = [str(GOLDEN / "gen_paxml.py"), "--out", str(folder), *arguments.split()]
    with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()):
        runpy.run_path(words[0], run_name="__main__")
    return folder


def changed(config: RunConfig, **fields: Any) -> RunConfig:
    """Return a copy in which the given fields have other values, whichever section they stand in."""
    sections: dict[str, Any] = {}
    for name in ("data", "checkpoints", "guards", "logging"):
        section = getattr(config, name)
        section_fields = {field: fields.pop(field) for field in list(fields) if hasattr(section, field)}
        sections[name] = dataclasses.replace(section, **section_fields)
    return dataclasses.replace(config, **sections, **fields)
