"""A command of Slurm, by the name that it is called by: it asks the stand-in cluster, whose socket FUZZ_SLURM names."""

import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def main() -> None:
    server = socket.socket(socket.AF_UNIX)
    server.connect(os.environ["FUZZ_SLURM"])
    for number in FORWARDED:
        signal.signal(number, lambda number, _: server.sendall(json.dumps({"signal": int(number)}).encode() + b"\n"))
    words = [Path(sys.argv[1]).name, *sys.argv[2:]]
    server.sendall(json.dumps({"words": words, "variables": dict(os.environ)}).encode() + b"\n")
    streams: list[tuple[int, int]] = []
    received = b""
    while True:
        ready = select.select([server], [], [], 0.1)[0]
        pass_on(streams)
        if not ready:
            continue
        received += (part := server.recv(1 << 16))
        if not part:
            sys.exit(1)
        while b"\n" in received:
            line, received = received.split(b"\n", 1)
            answer = json.loads(line)
            if "step" in answer:  # its output, while it runs
                streams = [(os.open(path, os.O_RDONLY), output) for output, path in enumerate(answer["step"], 1)]
            if "command" in answer:
                for number in FORWARDED:
                    signal.signal(number, signal.SIG_DFL)
                os.execvp(answer["command"][0], answer["command"])
            if "status" in answer:
                pass_on(streams)
                write(1, answer["output"].encode())
                write(2, answer["errors"].encode())
                os._exit(answer["status"])


def pass_on(streams: list[tuple[int, int]]) -> None:
    for source, output in streams:
        while part := os.read(source, 1 << 16):
            write(output, part)


def write(output: int, data: bytes) -> None:
    with suppress(OSError):  # its reader is gone, or its disk
        os.write(output, data)


if __name__ == "__main__":
    main()
