"""The playground as a visitor's browser has it, and small servers to put it on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import uvicorn
from selenium.webdriver import Chrome
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from launch.server import free_port

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--force-prefers-reduced-motion",  # every picture is drawn by the processor here
    "about:blank",
]
# Remembers when each piece of sound begins, how long it is, and whether there is anything in it.
EAR = """
window.heard = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (when, offset = 0) {
  const loud = this.buffer.getChannelData(0).some((sample) => Math.abs(sample) > 0.05);
  window.heard.push([when, this.buffer.duration - offset, loud]);
  return start.call(this, when, offset);
};
"""


class Page:
    """The playground as its visitor has it."""

    def __init__(self, browser: Chrome, url: str) -> None:
        self.browser, self.url = browser, url
        self.open()

    def open(self) -> None:
        self.browser.get(self.url + "/ui")
        self.until(lambda: self.find("model").text)

    def find(self, name: str) -> WebElement:
        return self.browser.find_element("id", name)

    def text(self, name: str) -> str:
        return self.find(name).get_attribute("textContent") or ""

    def run(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def until(self, condition: Callable[[], Any], timeout: float = 30) -> Any:
        return WebDriverWait(self.browser, timeout, poll_frequency=0.1).until(lambda _: condition())

    def write(self, text: str) -> None:
        self.run(
            "const text = document.getElementById('text'); text.value = arguments[0];"
            "text.dispatchEvent(new Event('input'));",
            text,
        )

    def own_voice(self) -> None:
        self.browser.find_element("css selector", "[name=voice][value='']").click()

    def choose_sample(self, folder: Path) -> None:
        """Choose a file, written to `folder`, as the visitor's own voice."""
        time_ = np.arange(48_000) / 24_000
        soundfile.write(folder / "me.wav", 0.3 * np.sin(2 * np.pi * 150 * time_), 24_000)
        self.own_voice()
        self.find("file").send_keys(str(folder / "me.wav"))
        self.until(lambda: self.text("recording") == "me.wav")

    def keep(self, name: str) -> None:
        """Ask the server to keep the sample, which takes the owner's consent."""
        self.browser.find_element("css selector", "#keep summary").click()
        self.find("keep-name").send_keys(name)
        assert not self.find("keep-button").is_enabled()
        self.find("consent").click()
        self.find("keep-button").click()

    @property
    def voices(self) -> list[str]:
        return self.run("return [...document.querySelectorAll('#voice-list .name')].map((one) => one.textContent)")

    @property
    def focused(self) -> str:
        """The id of the element that the keyboard is on."""
        return self.run("return document.activeElement.id")

    @property
    def audible(self) -> int:
        """Samples that arrived and are no silence."""
        return int(self.find("waveform").get_attribute("data-audible") or 0)

    @property
    def samples(self) -> int:
        return int(self.find("waveform").get_attribute("data-samples") or 0)

    @property
    def streaming(self) -> bool:
        return self.text("speak") == "Speaking"

    def speak(self, text: str) -> None:
        self.write(text)
        self.find("speak").click()
        self.until(lambda: self.audible > 1000)
        self.until(lambda: not self.streaming)

    def complaints(self) -> list[str]:
        """What the console was told, of every load since the last call."""
        return [entry["message"] for entry in self.browser.get_log("browser")]


def fetched(browser: Chrome) -> list[str]:
    """The addresses that the browser asked the network for since the last call."""
    events = (json.loads(line["message"])["message"] for line in browser.get_log("performance"))
    urls = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert urls
    return [url for url in urls if not url.startswith(("data:", "chrome:"))]


class served:  # noqa: N801
    """`app` on a port of its own, while the block runs."""

    def __init__(self, app: Any) -> None:
        self._port = free_port()
        self._server = uvicorn.Server(uvicorn.Config(app, "127.0.0.1", self._port, lifespan="off", log_level="error"))
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self) -> str:
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{self._port}"

    def __exit__(self, *exception: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(10)
        assert not self._thread.is_alive()
