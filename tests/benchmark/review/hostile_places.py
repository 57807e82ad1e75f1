"""Things that nobody expects in a package, each put into one without fault: where files lie, and what lies in them."""

import gzip
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmark.review.damage import DESCRIPTION, LOG, RESULTS
from tests.benchmark.review.fixture import SYSTEM

Spoil = Callable[[Path], None]
SCALING = f"{RESULTS}/scaling.json"
PARAMETERS = f"{RESULTS}/package_checker_params"


def _instead(place: str, put: Callable[[Path], object]) -> Spoil:
    def spoil(package: Path) -> None:
        path = package / place
        if path.is_dir():
            path.rename(package.parent / "away")
        else:
            path.unlink(missing_ok=True)
        put(path)

    return spoil


def _link(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


def _socket(path: Path) -> None:
    """Its own path may be too long for a socket, so it is bound by a relative one."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def _sparse(size: int) -> Callable[[Path], object]:
    def put(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return put


def _bytes(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _log(change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(package: Path) -> None:
        path = package / LOG
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _described(**fields: Any) -> Spoil:
    def spoil(package: Path) -> None:
        path = package / DESCRIPTION
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return spoil


def _description(change: Callable[[bytes], bytes]) -> Spoil:
    def spoil(package: Path) -> None:
        path = package / DESCRIPTION
        path.write_bytes(change(path.read_bytes()))

    return spoil


def _system_called(name: bytes) -> Spoil:
    def spoil(package: Path) -> None:
        text = os.fsdecode(name)
        (package / "results" / SYSTEM).rename(package / "results" / text)
        (package / DESCRIPTION).rename(package / "systems" / f"{text}.json")

    return spoil


def _deep(package: Path) -> None:
    handle = os.open(package, os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=handle)
        below = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    os.close(handle)


def _many(package: Path) -> None:
    folder = package / RESULTS / "power"
    folder.mkdir()
    for number in range(500):
        (folder / str(number)).touch()


def _round_in_itself(package: Path) -> None:
    (package / "results" / SYSTEM / "gpt3" / "up").symlink_to(package.parent)


def _twice(name: str, value: str) -> Spoil:
    return _log(lambda log: log.replace(b'{"namespace"', f'{{"{name}": {value}, "namespace"'.encode(), 1))


def _time(value: str) -> Spoil:
    def change(log: bytes) -> bytes:
        lines = log.splitlines(keepends=True)
        before, _, after = lines[40].partition(b'"time_ms": ')
        lines[40] = before + b'"time_ms": ' + value.encode() + after[after.index(b",") :]
        return b"".join(lines)

    return _log(change)


FINE = "acceptable"
ASKED = "acceptable with questions"
REJECTED = "rejected"
PLACES: tuple[tuple[str, str, Spoil], ...] = (
    ("log is a folder", REJECTED, _instead(LOG, lambda path: path.mkdir())),
    ("log is a pipe", REJECTED, _instead(LOG, os.mkfifo)),
    ("log is a socket", REJECTED, _instead(LOG, _socket)),
    ("log leads to a device", REJECTED, _instead(LOG, _link("/dev/zero"))),
    ("log leads nowhere", REJECTED, _instead(LOG, _link("nowhere"))),
    ("log leads to itself", REJECTED, _instead(LOG, _link("result_1.txt"))),
    ("log leads to the kernel's messages", REJECTED, _instead(LOG, _link("/proc/kmsg"))),
    ("log leads to the memory of a process", REJECTED, _instead(LOG, _link("/proc/self/mem"))),
    ("log of a terabyte", REJECTED, _instead(LOG, _sparse(1 << 40))),
    ("log of zeros", REJECTED, _instead(LOG, _sparse(1 << 24))),
    ("log in UTF-16", REJECTED, _log(lambda log: log.decode().encode("utf-16"))),
    ("log compressed", REJECTED, _log(gzip.compress)),
    ("log with a byte order mark", FINE, _log(lambda log: b"\xef\xbb\xbf" + log)),
    ("log with carriage returns and newlines", FINE, _log(lambda log: log.replace(b"\n", b"\r\n"))),
    ("log with carriage returns alone", FINE, _log(lambda log: log.replace(b"\n", b"\r"))),
    ("log without a last newline", FINE, _log(bytes.rstrip)),
    ("log with bytes that are no text between records", FINE, _log(lambda log: log.replace(b"\n", b"\n\xff\x00\n"))),
    ("log with a word of 900 kB between records", FINE, _log(lambda log: log + b"x" * 900_000 + b"\n")),
    ("another time in a record", ASKED, _twice("time_ms", "5")),
    ("the same field again", ASKED, _twice("namespace", '""')),
    ("time of 300 digits", REJECTED, _time("1" * 300)),
    ("time 1e300", REJECTED, _time("1e300")),
    ("time 1e-310", REJECTED, _time("1e-310")),
    ("time of a boolean", REJECTED, _time("true")),
    ("time not a number", REJECTED, _time("NaN")),
    ("time below zero", REJECTED, _time("-5")),
    ("description is a pipe", REJECTED, _instead(DESCRIPTION, os.mkfifo)),
    ("description is a folder", REJECTED, _instead(DESCRIPTION, lambda path: path.mkdir())),
    ("description leads to a device", REJECTED, _instead(DESCRIPTION, _link("/dev/zero"))),
    ("description leads to itself", REJECTED, _instead(DESCRIPTION, _link(f"{SYSTEM}.json"))),
    ("description of 2 MB", REJECTED, _instead(DESCRIPTION, _sparse(2 << 20))),
    ("description nested in itself", REJECTED, _instead(DESCRIPTION, _bytes(b'{"a":' * 90_000))),
    ("description with a byte order mark", REJECTED, _description(lambda text: b"\xef\xbb\xbf" + text)),
    ("description in Latin-1", REJECTED, _described(submitter="ACMÉ\udcff")),
    ("nodes of 400 digits", REJECTED, _described(number_of_nodes="1" * 400)),
    ("nodes as an object", REJECTED, _described(number_of_nodes={"a": 1})),
    ("system's name with a terminal's commands", REJECTED, _described(system_name="\x1b]0;x\x07\x1b[2J")),
    ("accelerator called markup", FINE, _described(accelerator_model_name="[red]H100[/red] <script>")),
    (
        "description of a system without a name",
        REJECTED,
        _instead("systems/.json", _bytes(b"{}")),
    ),
    ("scaling.json is a pipe", REJECTED, _instead(SCALING, os.mkfifo)),
    ("scaling.json is a folder", REJECTED, _instead(SCALING, lambda path: path.mkdir())),
    ("scaling.json of 400 digits", REJECTED, _instead(SCALING, _bytes(b'{"scaling_factor": ' + b"1" * 400 + b"}"))),
    ("scaling.json with text", REJECTED, _instead(SCALING, _bytes(b'{"scaling_factor": "1.0"}'))),
    ("parameters are a pipe", REJECTED, _instead(PARAMETERS, os.mkfifo)),
    ("parameters are bytes", FINE, _instead(PARAMETERS, _bytes(bytes(range(256))))),
    ("results is a file", REJECTED, _instead("results", _bytes(b""))),
    ("systems is a file", REJECTED, _instead("systems", _bytes(b""))),
    ("system called by a terminal's command", REJECTED, _system_called(b"\x1b[31m")),
    ("system called in bytes that are no text", REJECTED, _system_called(b"\xff\xfe")),
    ("system called by a line break", REJECTED, _system_called(b"a\nINFO - SUCCESS")),
    ("system called by 240 characters", FINE, _system_called(b"x" * 240)),
    ("system called like an option", REJECTED, _system_called(b"-rf")),
    ("folders 1,200 deep", "acceptable", _deep),
    ("500 files beside the logs", FINE, _many),
    ("a link to the round in itself", REJECTED, _round_in_itself),
)
"""Name, verdict of our own rules and score, and what is done."""
