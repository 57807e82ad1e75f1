"""A headless Chromium, driven over its debugging pipe (DevTools protocol, JSON messages ended by a zero byte)."""

import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE_S = 60.0
OPTIONS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--mute-audio",
)
OFFLINE = ("--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking", "--disable-component-update")


class Browser:
    """One browser with one tab. ``complaints`` are the console's errors and warnings, and exceptions."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._rest = b""
        self._numbers = itertools.count(1)
        self.complaints: list[str] = []
        self._loaded = False
        target = self._send("Target.createTarget", url="about:blank")["targetId"]
        self._session: str | None = None
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._send(f"{domain}.enable")

    def open(self, path: Path, width: int, *, dark: bool = False) -> None:
        """Load a local file at a width in CSS pixels."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        self._send("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._send("Emulation.setEmulatedMedia", features=[scheme])
        self.complaints.clear()
        self._loaded = False
        self._send("Page.navigate", url=path.resolve().as_uri())
        deadline = time.monotonic() + PATIENCE_S
        while not self._loaded:
            self._read_one(deadline)
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def show_as_printed(self) -> None:
        """Show the page with its rules for paper."""
        self._send("Emulation.setEmulatedMedia", media="print")

    def value(self, expression: str) -> Any:
        """What a JavaScript expression evaluates to in the page."""
        answer = self._send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """The rendered text of the first element that a CSS selector finds."""
        return str(self.value(f"document.querySelector({json.dumps(selector)}).innerText"))

    def _send(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if getattr(self, "_session", None) is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._read_one(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _read_one(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError("Chromium does not answer")
            block = os.read(self._from, 1 << 20)
            if not block:
                raise AssertionError("Chromium has ended")
            self._rest += block
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._notice(message.get("method"), message.get("params", {}))
        return message

    def _notice(self, method: str | None, event: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(event["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.complaints.append(str(event["entry"]["text"]))


@contextmanager
def headless(profile: Path) -> Iterator[Browser]:
    """Start the browser with a profile folder of its own and without a network, and end it."""
    assert PROGRAM is not None
    child_reads, we_write = os.pipe()
    we_read, child_writes = os.pipe()
    high = [fcntl.fcntl(handle, fcntl.F_DUPFD, 10) for handle in (child_reads, child_writes)]
    command = [PROGRAM, *OPTIONS, *OFFLINE, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    shell = ["bash", "-c", f'exec "$@" 3<&{high[0]} 4>&{high[1]}', "bash", *command]
    child = subprocess.Popen(shell, pass_fds=high, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for handle in (child_reads, child_writes, *high):
        os.close(handle)
    try:
        yield Browser(we_write, we_read)
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        os.close(we_write)
        os.close(we_read)
