"""A headless Chromium, driven through its DevTools protocol over a WebSocket; needs nothing but aiohttp.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
START_SECONDS: Final = 60
REPLY_SECONDS: Final = 30

_FLAGS: Final = (
    *("--headless=new", "--disable-gpu", "--no-first-run", "--disable-extensions", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
)  # fmt: skip


def find_browser() -> str | None:
    """The path of a Chromium on this machine."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


_NAVIGATED: Final = ("navigated or closed", "context was destroyed", "Cannot find context")


class NavigatedError(RuntimeError):
    """The page was left while a command was running on it."""


class Page:
    """One tab, with all its requests and console errors since it was opened."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._session = ""
        self._loaded = asyncio.Event()
        self._reading = asyncio.ensure_future(self._read())
        self.requests: list[str] = []
        self.trace: list[dict[str, Any]] = []
        """The events of `traced`."""
        self._traced = asyncio.Event()
        self.console_errors: list[str] = []
        """Console messages, log entries and uncaught exceptions."""

    async def attach(self) -> None:
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its reply."""
        number = next(self._numbers)
        replied = self._replies[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_json(message)
        reply = await asyncio.wait_for(replied, REPLY_SECONDS)
        if "error" in reply:
            is_gone = any(text in reply["error"]["message"] for text in _NAVIGATED)
            raise (NavigatedError if is_gone else RuntimeError)(f"{method}: {reply['error']}")
        result: dict[str, Any] = reply["result"]
        return result

    async def open(self, page: Path | str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Opens a file or an address at this width and waits until it is loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self._loaded.clear()
        await self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        await asyncio.wait_for(self._loaded.wait(), REPLY_SECONDS)

    async def evaluate(self, script: str) -> Any:
        """The value of a JavaScript expression; that of a promise is awaited."""
        reply = await self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in reply:
            raise RuntimeError(reply["exceptionDetails"]["exception"]["description"])
        return reply["result"].get("value")

    async def until(self, script: str, seconds: float = 20.0) -> Any:
        """Waits until an expression is true, and returns its value."""
        end = asyncio.get_running_loop().time() + seconds
        while not (found := await self._evaluated_here(script)):
            if asyncio.get_running_loop().time() > end:
                text = await self.evaluate("document.body.innerText.slice(0, 2000)")
                raise TimeoutError(f"never true: {script}\n{text}\n{self.console_errors}")
            await asyncio.sleep(0.05)
        return found

    async def _evaluated_here(self, script: str) -> Any:
        """The value on the page that is shown then; None if it was just left, as after the one-time link."""
        try:
            return await self.evaluate(script)
        except NavigatedError:
            return None

    async def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Presses and releases a key."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            await self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more
            )

    async def traced(self, script: str) -> list[dict[str, Any]]:
        """Runs a script, and returns what the browser did meanwhile, as trace events."""
        self.trace.clear()
        self._traced.clear()
        await self.call("Tracing.start", categories="toplevel,devtools.timeline", transferMode="ReportEvents")
        await self.evaluate(script)
        await self.call("Tracing.end")
        await asyncio.wait_for(self._traced.wait(), REPLY_SECONDS)
        return self.trace

    async def screenshot(self) -> bytes:
        """What is visible, as PNG."""
        reply = await self.call("Page.captureScreenshot", format="png")
        return base64.b64decode(reply["data"])

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> None:
        async for message in self._socket:
            content = message.json()
            if "id" in content:
                self._replies.pop(content["id"]).set_result(content)
            else:
                self._happened(content["method"], content["params"])

    def _happened(self, method: str, params: dict[str, Any]) -> None:
        match method:
            case "Page.loadEventFired":
                self._loaded.set()
            case "Tracing.dataCollected":
                self.trace += params["value"]
            case "Tracing.tracingComplete":
                self._traced.set()
            case "Network.requestWillBeSent":
                self.requests.append(params["request"]["url"])
            case "Runtime.consoleAPICalled":
                self.console_errors.append(f"console.{params['type']}: {params['args']}")
            case "Runtime.exceptionThrown":
                self.console_errors.append(f"exception: {params['exceptionDetails']}")
            case "Log.entryAdded":
                self.console_errors.append(f"log: {params['entry']['text']}")


@asynccontextmanager
async def opened(program: str, directory: Path) -> AsyncIterator[Page]:
    """A new browser with one tab; `directory` is for its profile."""
    flags = [*_FLAGS, f"--user-data-dir={directory / 'profile'}"]
    if os.geteuid() == 0:
        flags.append("--no-sandbox")  # Chromium does not start as root with its sandbox
    process = await asyncio.create_subprocess_exec(
        program,
        *flags,
        "about:blank",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await asyncio.wait_for(_address(process), START_SECONDS)
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(address, max_msg_size=0) as socket,
        ):
            page = Page(socket)
            try:
                await page.attach()
                yield page
                await page.call("Browser.close")
            finally:
                await page.close()
    finally:
        if process.returncode is None:
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
                await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """The address that the browser prints when it is ready."""
    assert process.stderr is not None
    lines = []
    async for raw in process.stderr:
        line = raw.decode(errors="replace").strip()
        lines.append(line)
        if line.startswith("DevTools listening on "):
            return line.removeprefix("DevTools listening on ")
    raise RuntimeError(f"the browser has ended: {lines[-5:]}")
