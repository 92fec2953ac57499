"""The playground in a real browser: it speaks, stops, records, keeps voices, and asks nobody but its own server.

Needs Chromium and its driver: `COSYSERVE_CHROMIUM` names the browser's file, and then it must be there.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
from PIL import Image
from selenium.webdriver import Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service

from api.app import create_app
from api.auth import KeyRing
from api.keyring import entry
from api.limits import KeyLimits
from launch.server import Server
from tests.api.oip_backend import FakeBackend
from tests.service.playground_page import EAR, FLAGS, Page, fetched, served
from tests.service.test_streams import _gauge

ROOT = Path(__file__).parents[2]
TWO_SENTENCES = "The little boat went slowly down the river in the morning. Nobody on the bank saw it pass."
LONG = "The little boat went slowly down the river in the morning. " * 16


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    wanted = os.environ.get("COSYSERVE_CHROMIUM")
    binary, driver = wanted or shutil.which("chromium"), shutil.which("chromedriver")
    if not wanted and not (binary and driver):
        pytest.skip("THE PLAYGROUND IS NOT TESTED: there is no chromium and chromedriver on this machine.")
    options = ChromeOptions()
    options.binary_location = binary or ""
    profile = tmp_path_factory.mktemp("chromium")
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1280,900"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with Chrome(options, Service(driver or "chromedriver")) as chrome:
        chrome.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": EAR})
        yield chrome


@pytest.fixture
def page(browser: Chrome, server: Server) -> Iterator[Page]:
    """On the real service. Whatever a test did: nothing was fetched from elsewhere, and the console is empty."""
    found = Page(browser, server.url)
    yield found
    browser.execute_script("document.getElementById('stop').click()")
    assert found.complaints() == []
    assert [url for url in fetched(browser) if not url.startswith((server.url, "blob:" + server.url))] == []


def test_its_files_are_served_locked_down_and_no_other_file_is(http: httpx.Client) -> None:
    assert http.get("/ui").headers["location"] == "ui/"
    names = {path.name for path in (ROOT / "web").iterdir()}
    assert "app.js" in names
    for name in names | {""}:
        response = http.get(f"/ui/{name}")
        assert response.content == (ROOT / "web" / (name or "index.html")).read_bytes()
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy and "unsafe" not in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["cache-control"] == "no-cache"
        again = http.get(f"/ui/{name}", headers={"If-None-Match": response.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
    for path in ("/ui/service.py", "/ui/..%2fservice.py", "/ui/%2e%2e/service.py", "/ui//etc/passwd", "/ui/web/app.js"):
        refused = http.get(path)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found"), path


def test_a_click_is_heard_without_gaps_and_read_along(page: Page) -> None:
    page.write(TWO_SENTENCES)
    page.find("speak").click()
    page.until(lambda: page.run("return document.querySelector('.speaking')"))
    page.until(lambda: not page.streaming)
    assert page.audible > 10_000
    pieces = page.run("return heard")
    assert any(loud for _, _, loud in pieces)
    assert sum(length for _, length, _ in pieces) == pytest.approx(page.samples / 24_000)
    jumps = [b[0] - (a[0] + a[1]) for a, b in pairwise(pieces)]
    assert sum(abs(jump) > 1e-6 for jump in jumps) == int(page.text("gaps"))
    assert 0 < int(page.text("ttfa").removesuffix(" ms")) < 30_000
    assert 0 < float(page.text("rtf")) < 30
    assert page.text("length") == f"{page.samples / 24_000:.1f} s"
    assert page.run("return [...document.querySelectorAll('#segments span')].length") >= 2
    lit = page.until(lambda: page.run("return document.querySelector('.spoken + .speaking')?.textContent"))
    assert "bank" in lit
    # Another place is heard at once; the keyboard goes there too.
    page.find("waveform").send_keys(Keys.HOME)
    page.until(lambda: "boat" in (page.run("return document.querySelector('.speaking')?.textContent") or ""))


@pytest.mark.parametrize("way", ["button", "key"])
def test_stop_cancels_at_once(page: Page, server: Server, way: str) -> None:
    page.write(LONG)
    page.find("text").send_keys(Keys.CONTROL, Keys.ENTER)
    page.until(lambda: page.audible > 0)
    assert _gauge(server.url, "cosyserve_active_streams") == 1
    if way == "button":
        page.find("stop").click()
    else:
        page.browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: _gauge(server.url, "cosyserve_engine_requests") == 0, 5)
    page.until(lambda: _gauge(server.url, "cosyserve_active_streams") == 0, 5)
    arrived = page.samples
    assert arrived < 24_000 * 45  # it would have been a minute
    assert (page.text("progress"), page.text("speak")) == ("Stopped.", "Speak")
    time.sleep(0.5)
    assert page.samples == arrived
    assert page.find("play").get_attribute("aria-label") == "Play"
    assert page.focused == "text"


def test_a_recorded_voice_speaks(page: Page) -> None:
    page.own_voice()
    page.find("speak").click()
    page.until(lambda: "voice_required" in page.find("notice").text)
    page.find("record").click()
    page.until(lambda: page.text("recording").startswith("Recording: 2 "))
    page.find("record").click()
    page.until(lambda: page.text("recording") == "Recorded.")
    assert page.find("notice").text == ""
    page.find("ref-text").send_keys("Beep, and beep again.")
    page.speak("Good morning.")
    assert page.find("notice").text == ""


def test_the_copied_code_and_the_downloads_are_whole_files_of_what_was_heard(page: Page, tmp_path: Path) -> None:
    page.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    assert "seed" not in page.text("snippet")  # nothing was spoken, and none is given
    page.speak('He said "it\'s `no` $HOME"\nand left.')
    name = f"speech-{page.text('used-seed')}"
    page.find("download").click()
    heard = tmp_path / f"{name}.wav"
    page.until(heard.exists)
    expected, rate = soundfile.read(heard)
    assert (len(expected), rate) == (page.samples, 24_000)

    subprocess.run(["bash", "-euc", page.text("snippet")], cwd=tmp_path, check=True, timeout=60)
    content, _ = soundfile.read(tmp_path / "speech.wav")
    assert (tmp_path / "speech.wav").stat().st_size == 44 + 2 * len(expected)  # and its header says so
    assert len(content) == len(expected)
    assert np.corrcoef(content, expected)[0, 1] > 0.8  # made in one pass: the same words, not sample for sample

    page.browser.find_element("css selector", ".code summary").click()
    page.browser.find_element("css selector", "[name=snippet][value=python]").send_keys(Keys.SPACE)
    program = page.text("snippet").replace('"speech.wav"', repr(str(tmp_path / "python.wav")))
    exec(program, {})
    assert (tmp_path / "python.wav").read_bytes() == (tmp_path / "speech.wav").read_bytes()

    page.run("const f = document.getElementById('format'); f.value = 'flac'; f.dispatchEvent(new Event('input'))")
    page.find("download").send_keys(Keys.ENTER)
    flac = tmp_path / f"{name}.flac"
    page.until(flac.exists)
    page.until(lambda: page.find("download").is_enabled())
    assert page.focused == "download"
    assert np.array_equal(soundfile.read(flac)[0], content)  # libsndfile takes the length from the header


@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_a_sight_by_day_and_by_night(page: Page, width: int) -> None:
    cdp = page.browser.execute_cdp_cmd
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    cdp("Emulation.setDeviceMetricsOverride", size)
    try:
        page.speak("Good morning.")
        assert page.run("return document.documentElement.scrollWidth") <= width
        page.until(lambda: not page.find("stop").is_enabled())  # all of it is heard
        pictures = {}
        for scheme in ("light", "dark"):
            cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
            shot = Image.open(io.BytesIO(page.browser.get_screenshot_as_png()))
            pictures[scheme] = np.asarray(shot.convert("RGB")).astype(int)
    finally:
        cdp("Emulation.clearDeviceMetricsOverride", {})
        cdp("Emulation.setEmulatedMedia", {"features": []})
    assert np.median(pictures["light"]) > 230 and np.median(pictures["dark"]) < 50
    for picture in pictures.values():
        assert picture.shape == (900, width, 3)
        ink = abs(picture - np.median(picture, axis=(0, 1))).sum(axis=2) > 200
        assert 0.01 < ink.mean() < 0.3  # text and the waveform, and room around them
        warm = (picture[..., 0] - picture[..., 2]) > 80  # the button and what was heard
        assert warm.mean() > 0.006


def test_every_control_is_reached_by_the_keyboard_named_and_seen(page: Page) -> None:
    seen: list[str] = []
    for _ in range(12):
        page.browser.switch_to.active_element.send_keys(Keys.TAB)
        name, label, ring = page.run(
            """
            const at = document.activeElement;
            const label = at.ariaLabel || at.labels?.[0]?.textContent || at.textContent;
            const ringed = [at, at.closest(".voice-row"), at.closest(".paper")].filter(Boolean);
            const ring = ringed.some((one) => getComputedStyle(one).outlineStyle !== "none");
            return [at.id || at.name || at.ariaLabel || at.textContent.trim(), label.trim(), ring];
            """
        )
        assert label and ring, name
        seen.append(name)
        if name == "The API":
            break
    code = "The same request as code"
    assert seen == ["text", "speak", "format", code, "voice", "Preview cosy", "speed", "seed", "The API"]


@pytest.fixture
def guarded(browser: Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    """The page of a server that asks for the key `open sesame` and keeps voices, with made-up speech."""
    (tmp_path / "voices").mkdir()
    monkeypatch.setenv("COSYSERVE_VOICES", str(tmp_path / "voices"))
    keys = KeyRing(entry("me", "sesame"), None, KeyLimits())
    with served(create_app(FakeBackend(hops=50), keys)) as url:
        yield Page(browser, url)
    browser.get_log("browser")  # the browser itself tells of every refusal there


@pytest.fixture
def keeping_nothing(browser: Chrome, monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    monkeypatch.delenv("COSYSERVE_VOICES", raising=False)
    with served(create_app(FakeBackend())) as url:
        yield Page(browser, url)
    browser.get_log("browser")


def test_a_key_is_asked_for_and_voices_are_kept_renamed_heard_and_deleted(guarded: Page, tmp_path: Path) -> None:
    guarded.until(lambda: guarded.focused == "key")
    assert (guarded.find("notice").text, guarded.find("key-problem").text) == ("", "")
    guarded.find("key").send_keys("wrong", Keys.ENTER)
    guarded.until(lambda: guarded.find("key-problem").text == "The API key is not known here.")
    assert (guarded.find("notice").text, guarded.focused) == ("", "key")
    guarded.find("key").send_keys("sesame", Keys.ENTER)
    guarded.until(lambda: guarded.voices == ["cosy", "other"])
    assert (guarded.find("key-form").is_displayed(), guarded.focused) == (False, "text")
    assert "sesame" not in guarded.text("snippet") and "$COSYSERVE_KEY" in guarded.text("snippet")

    guarded.choose_sample(tmp_path)
    guarded.keep("Mine")
    guarded.until(lambda: guarded.voices == ["cosy", "other", "Mine"])
    assert not guarded.find("reference").is_displayed()  # the new voice is chosen
    guarded.speak("Hello.")

    click = "[...document.querySelectorAll('.actions button')].find((one) => one.ariaLabel === arguments[0]).click()"
    guarded.run(click, "Preview Mine")
    guarded.run(click, "Rename Mine")
    guarded.find("voice-dialog-name").clear()
    guarded.find("voice-dialog-name").send_keys("Yours", Keys.ENTER)
    guarded.until(lambda: guarded.voices == ["cosy", "other", "Yours"])
    guarded.run(click, "Delete Yours")
    guarded.browser.switch_to.active_element.send_keys(Keys.ESCAPE)  # thought better of it
    assert "Yours" in guarded.voices
    guarded.run(click, "Delete Yours")
    guarded.find("voice-dialog-yes").click()
    guarded.until(lambda: guarded.voices == ["cosy", "other"])
    assert guarded.find("notice").text == ""


def test_the_keyboard_goes_where_the_text_can_be_written_again(keeping_nothing: Page) -> None:
    page = keeping_nothing
    page.find("text").send_keys(Keys.CONTROL, Keys.ENTER)
    page.until(lambda: page.samples and not page.find("stop").is_enabled())
    assert page.focused == "edit" and not page.find("text").is_displayed()
    page.find("edit").send_keys(Keys.ENTER)
    assert page.focused == "text" and page.find("text").is_displayed()


def test_what_the_server_refuses_is_told_in_words_with_its_code(keeping_nothing: Page, tmp_path: Path) -> None:
    page = keeping_nothing
    page.choose_sample(tmp_path)
    page.keep("Mine")
    page.until(lambda: "voice_store_off" in page.find("notice").text)
    assert not page.find("keep").is_displayed()
    (tmp_path / "no-sound.mp3").write_bytes(b"no sound")
    page.find("file").send_keys(str(tmp_path / "no-sound.mp3"))
    page.until(lambda: "sample_unplayable" in page.find("notice").text)
    page.find("speak").click()
    page.until(lambda: "ref_audio_invalid" in page.find("notice").text)
    assert page.text("speak") == "Speak" and page.find("text").is_displayed()
