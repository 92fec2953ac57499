"""`make demo`: start the service, ask it for speech through the OpenAI SDK, write out/demo.wav, stop the service."""

from __future__ import annotations

import base64
import os
import sys
import time
import wave
from pathlib import Path
from typing import Any

from api.jwt_settings import AUDIENCE, ISSUER, JWKS
from api.keyring import KEYS, KEYS_FILE
from launch.server import ROOT, LaunchError, Server, address, check, free_port
from launch.terminal import ProgressLine, run

TEXT = "Hello! This voice was made on your own machine, one sound at a time."
# A model without a voice of its own (the genuine ones) clones this one: the embedded voice, saying the transcript.
REFERENCE = Path(__file__).parent / "reference.flac"
REFERENCE_TEXT = "Good morning! The sun is shining, and the train leaves in ten minutes."


def demo(progress: ProgressLine) -> None:
    text = os.environ.get("TEXT") or TEXT
    voice = os.environ.get("VOICE") or None
    host, port = address(free_port())
    check(host, port)
    ours = dict.fromkeys((KEYS, KEYS_FILE, JWKS, ISSUER, AUDIENCE))  # nobody else is to use it
    with Server(port, host, env=ours) as server:
        server.wait_ready(progress=progress.starting)
        progress.clear()
        report = speak(server.url, text, voice, ROOT / "out" / "demo.wav", progress)
    print(report)


def speak(url: str, text: str, voice: str | None, path: Path, progress: ProgressLine) -> str:
    """Stream `text` to the wav file at `path`. Returns the report; raises LaunchError with a sentence."""
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    try:
        listing = client.get("/audio/voices", cast_to=dict[str, Any])
        names = [entry["id"] for entry in listing["voices"]]
        default = next((entry["id"] for entry in listing["voices"] if entry["default"]), None)
        if voice is not None and voice not in names:
            raise LaunchError(f"There is no voice {voice!r}; VOICE= may be one of: {', '.join(names) or 'none'}.")
        model = client.models.list().data[0].id
        clone = {} if voice or default else _reference()
        began = time.perf_counter()
        first: float | None = None
        rate = 24_000
        pcm = bytearray()
        with client.audio.speech.with_streaming_response.create(
            model=model,
            voice=voice or default or "inline",
            input=text,
            response_format="pcm",
            extra_body=clone,
        ) as response:
            rate = int(response.headers["X-Sample-Rate"])
            for chunk in response.iter_bytes():
                if first is None and chunk:
                    first = time.perf_counter() - began
                pcm += chunk
                progress.show("speaking", f"{len(pcm) / 2 / rate:.1f} s of audio")
        elapsed = time.perf_counter() - began
    except openai.APIStatusError as error:
        raise LaunchError(f"The service refused: {error.message}") from error
    except openai.APIError as error:
        raise LaunchError(f"The service did not answer: {error}") from error
    finally:
        progress.clear()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(rate)
            file.writeframes(bytes(pcm))
    except OSError as error:
        raise LaunchError(f"{path} cannot be written: {error.strerror}.") from error
    seconds = len(pcm) / 2 / rate
    return (
        f"text                 {text}\n"
        f"voice, model         {voice or default or 'cloned from ' + REFERENCE.name}, {model}\n"
        f"time to first audio  {1000 * (first or elapsed):.0f} ms\n"
        f"duration             {seconds:.2f} s\n"
        f"real-time factor     {elapsed / seconds:.3f}\n"
        f"written              {path.relative_to(ROOT) if path.is_relative_to(ROOT) else path}"
    )


def _reference() -> dict[str, str]:
    data = base64.b64encode(REFERENCE.read_bytes()).decode()
    return {"ref_audio": f"data:audio/flac;base64,{data}", "ref_text": REFERENCE_TEXT}


if __name__ == "__main__":
    sys.exit(run("demo", demo))
