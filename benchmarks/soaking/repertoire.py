"""Requests that have one right answer: every route, mode and format, each with a text and a seed of its own, and the
errors that a client can make."""

from __future__ import annotations

import base64
import json
from typing import Any

from benchmarks.soaking.forms import FORM, form
from benchmarks.soaking.requests import Asked, Files, Grpc, Http, Live, Request
from benchmarks.soaking.sounds import REFERENCE_TEXT, data_url, recording

SPEECH = "/v1/audio/speech"
SAVED = "Stays"
"""The saved voice that every round speaks with; its recording is that of `saved_recording`."""
LISTENED = "The tide comes in slowly, and every boat in the harbour turns around its own anchor until it has gone out."
"""Long enough that a slow reader is waited for."""


def saved_recording() -> bytes:
    return recording(speaker=1.07)


def speaking() -> tuple[Request, ...]:
    """Everything that is answered with speech."""
    own, other = data_url(recording()), data_url(recording(speaker=0.93))
    return (
        _speech("preset, pcm", "Good morning.", 1, stream=False),
        _speech("preset, streamed wav", "The kettle boils.", 2, "wav"),
        _speech("preset, streamed mp3", "Open the window.", 3, "mp3"),
        _speech("preset, streamed opus", "He came by train.", 4, "opus"),
        _speech("preset, flac", "Nobody was there.", 5, "flac", stream=False),
        _speech("preset, aac", "A quiet evening.", 6, "aac", stream=False),
        _speech("preset, two segments", "First this. Then something else that takes a little longer.", 7),
        _speech("shaped", "Seven green bottles.", 8, speed=1.4, pitch=1.1, volume=80, sample_rate=16_000),
        _speech(
            "markup",
            '<speak>Wait <break time="300ms"/> <prosody rate="120%">here</prosody>.</speak>',
            9,
            input_type="ssml",
        ),
        _speech("zero-shot", "This is my voice.", 10, ref_audio=own, ref_text=REFERENCE_TEXT),
        _speech("cross-lingual", "And this is mine.", 11, ref_audio=other, stream=False),
        _speech("saved voice", "It was kept.", 12, voice=SAVED),
        _events("events", "One after another.", 13),
        Http(
            "batch",
            f"{SPEECH}/batch",
            _json(items=[_item("Item one.", 14), _item("And number two.", 15)], response_format="pcm"),
            read=_of_batch,
        ),
        Http(
            "voice conversion",
            "/v1/audio/voice-conversion",
            form({"voice": SAVED, "seed": "16", "response_format": "pcm"}, {"source_audio": _said()}),
            content_type=FORM,
        ),
        _upstream("sft", {"tts_text": "As it was.", "spk_id": SAVED}, {}),
        _upstream("cross_lingual", {"tts_text": "From a form."}, {"prompt_wav": recording()}),
        Http(
            "inference protocol v1",
            "/v1/models/embedded:predict",
            _json(instances=[{"text": "An instance.", "seed": 17, "format": "pcm"}]),
            read=lambda body: tuple(base64.b64decode(one["audio"]) for one in json.loads(body)["predictions"]),
        ),
        Http(
            "inference protocol v2",
            "/v2/models/embedded/infer",
            _json(inputs=_inputs("A tensor of text.", 18, "pcm_base64")),
            read=lambda body: (base64.b64decode(json.loads(body)["outputs"][0]["data"][0]),),
        ),
        Http(
            "generate, streamed",
            "/v2/models/embedded/generate_stream",
            _json(text_input="Hop by hop.", seed=19, format="pcm"),
            read=lambda body: (b"".join(base64.b64decode(event["audio"]) for event in _sent(body)),),
        ),
        Grpc("gRPC", _tensors("Called from afar.", 20)),
        Grpc("gRPC, streamed", _tensors("Called, and streamed.", 21), streamed=True),
        Live("session", {"format": "pcm", "seed": 22}, ("Said in ", "a session. ", "And one more sentence.")),
    )


def listened_slowly() -> Http:
    return _speech("slow reader", LISTENED, 23)


def erring() -> tuple[Asked, ...]:
    """Everything that is refused, with an error that is the client's."""
    return (
        Http("no JSON", SPEECH, b'{"input": "Hello'),
        Http("no text", SPEECH, _json(input="   ")),
        Http("no letters", SPEECH, _json(input="?!")),
        Http("wrong type", SPEECH, _json(input="Hello.", speed="fast")),
        Http("out of range", SPEECH, _json(input="Hello.", speed=9)),
        Http("unknown field", SPEECH, _json(input="Hello.", loudness=3)),
        Http("unknown voice", SPEECH, _json(input="Hello.", voice="nobody")),
        Http("too long", SPEECH, _json(input="word " * 5_000)),
        Http("broken markup", SPEECH, _json(input="<speak>oh", input_type="ssml")),
        Http("no recording", SPEECH, _json(input="Hello.", ref_audio=data_url(b"no sound at all"))),
        Http("short recording", SPEECH, _json(input="Hello.", ref_audio=data_url(recording()[:8_000]))),
        Http("broken form", "/v1/audio/voices", b"--x\r\n\r\nno header\r\n--x--\r\n", content_type=FORM),
        Http("no consent", "/v1/audio/voices", form({"name": "x"}, {"audio_sample": _said()}), content_type=FORM),
        Http("unknown path", "/v1/audio/whispers", b"{}"),
        Http("unknown model", "/v2/models/nobody/infer", _json(inputs=_inputs("Hello.", 1, "pcm"))),
        Http("broken tensors", "/v2/models/embedded/infer", _json(inputs=[{"name": "text"}])),
        Grpc("gRPC, no such model", {**_tensors("Hello.", 1), "model_name": "nobody"}),
        Grpc("gRPC, no tensors", {"model_name": "embedded"}),
        Live("session, wrong voice", {"voice": "nobody"}, ("Hello.",)),
    )


def with_new_recording(number: int) -> Http:
    """A recording that nobody has sent before."""
    new = data_url(recording(gain=1.0 + 1e-4 * (number + 1), seconds=1.5))
    return _speech(f"new recording {number}", "New.", 24, ref_audio=new, max_new_tokens=25)


def speech_body(text: str, seed: int, audio_format: str = "pcm", **fields: Any) -> bytes:
    return _json(input=text, seed=seed, response_format=audio_format, **fields)


def _speech(name: str, text: str, seed: int, audio_format: str = "pcm", **fields: Any) -> Http:
    return Http(name, SPEECH, speech_body(text, seed, audio_format, **fields), audio_format)


def _events(name: str, text: str, seed: int) -> Http:
    def read(body: bytes) -> Files:
        *deltas, done = _sent(body)
        if done["type"] != "speech.audio.done":
            raise ValueError(f"the events ended with {done}")
        return (b"".join(base64.b64decode(delta["audio"]) for delta in deltas),)

    return Http(name, SPEECH, speech_body(text, seed, stream_format="sse"), read=read)


def _upstream(mode: str, fields: dict[str, str], files: dict[str, bytes]) -> Http:
    """These routes have no seed, and so no fixed answer."""
    return Http(f"upstream's {mode}", f"/inference_{mode}", form(fields, files), content_type=FORM, fixed=False)


def _item(text: str, seed: int) -> dict[str, Any]:
    return {"input": text, "seed": seed}


def _of_batch(body: bytes) -> Files:
    results = json.loads(body)["results"]
    if failed := [result for result in results if result["status"] != "success"]:
        raise ValueError(f"an item of a batch failed: {failed[0]}")
    return tuple(base64.b64decode(result["audio_data"]) for result in results)


def _inputs(text: str, seed: int, audio_format: str) -> list[dict[str, Any]]:
    values = (("text", "BYTES", text), ("seed", "INT64", seed), ("format", "BYTES", audio_format))
    return [{"name": name, "shape": [1], "datatype": kind, "data": [value]} for name, kind, value in values]


def _tensors(text: str, seed: int) -> dict[str, Any]:
    """Of a ModelInferRequest, raw, so that the answer is."""

    def raw(value: str) -> bytes:
        return len(value).to_bytes(4, "little") + value.encode()

    names = (("text", "BYTES"), ("seed", "INT64"), ("format", "BYTES"))
    inputs = [{"name": name, "datatype": kind, "shape": [1]} for name, kind in names]
    contents = [raw(text), seed.to_bytes(8, "little"), raw("int16")]
    return {"model_name": "embedded", "inputs": inputs, "raw_input_contents": contents}


def _sent(body: bytes) -> list[dict[str, Any]]:
    """The data of server-sent events."""
    return [json.loads(line[6:]) for line in body.decode().splitlines() if line.startswith("data: ")]


def _said() -> bytes:
    return recording(speaker=1.15)


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()
