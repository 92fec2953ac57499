"""Where the service says no, or waits no longer: the constants of the code, and the code of the refusal."""

from __future__ import annotations

from api import arrival, batch, conversion, dictionaries, schema, synthesis, voices, wish
from api.departure import SEND_SECONDS
from api.dictation import PAUSE_SECONDS, UTTERANCE_SECONDS
from api.live_session import Limits
from api.oip import inference, predict
from api.oip.grpc_answers import MAX_UNTAKEN_BYTES
from audio import containers, decode
from runners.settings import EngineSettings
from runners.voice_store import MAX_VOICES
from text.preparation import MAX_INPUT_CHARS

_SESSION, _ENGINE = Limits(), EngineSettings()


def table() -> list[tuple[str, str, str]]:
    """(what, how much, code)."""
    return [
        ("text of a request", f"{MAX_INPUT_CHARS:,} characters", "`input_too_long`"),
        (
            "`instructions`; `ref_text`",
            f"{schema.MAX_INSTRUCTIONS:,}; {schema.MAX_REF_TEXT:,} characters",
            "`invalid_value`",
        ),
        ("pronunciations in a request", f"{schema.MAX_OWN_PRONUNCIATIONS:,}", "`invalid_value`"),
        ("body of a request", _size(arrival.MAX_BODY_BYTES), "`payload_too_large`"),
        ("bodies on their way at once", _size(arrival.MAX_BYTES_AT_ONCE), "`overloaded`"),
        ("arrival of a body", _time(arrival.MESSAGE_SECONDS), "`upload_stalled`"),
        ("items of a batch", f"1 to {batch.MAX_ITEMS}", "`invalid_value`"),
        ("instances of a `:predict`", f"1 to {predict.MAX_INSTANCES}", "`invalid_value`"),
        ("answer that is not streamed", f"{synthesis.MAX_WHOLE_SAMPLES:,} samples", "`answer_too_long`"),
        ("the same, number by number", f"{inference.MAX_LISTED_ELEMENTS:,} numbers", "`answer_too_long`"),
        ("`timeout_s`", f"up to {_time(wish.MAX_TIMEOUT_SECONDS)}", "`invalid_value`"),
        (
            "reference recording",
            f"{decode.MIN_SECONDS:g} to {_time(decode.MAX_SECONDS)}",
            "`ref_audio_too_short`, `ref_audio_too_long`",
        ),
        (
            "its sample rate",
            f"{decode.MIN_SAMPLE_RATE:,} to {containers.MAX_SAMPLE_RATE:,} Hz",
            "`ref_audio_sample_rate`, `ref_audio_invalid`",
        ),
        ("its file", _size(decode.MAX_BYTES), "`ref_audio_too_large`"),
        ("recording to be converted", _time(conversion.MAX_SOURCE_SECONDS), "`ref_audio_too_long`"),
        ("text of a preview", f"{voices.MAX_PREVIEW} characters", "`invalid_value`"),
        ("saved voices", f"{MAX_VOICES:,}", "`too_many_voices`"),
        (
            "pronunciation dictionaries; their entries",
            f"{dictionaries.MAX_DICTIONARIES:,}; {dictionaries.MAX_ENTRIES:,}",
            "`too_many_dictionaries`",
        ),
        (
            "message of a WebSocket session",
            f"{_size(_SESSION.message_bytes)}, {_SESSION.message_characters:,} characters of text",
            "`payload_too_large`, `input_too_long`",
        ),
        ("text of a WebSocket session", f"{_SESSION.session_characters:,} characters", "`input_too_long`"),
        ("silence in a WebSocket session", _time(_SESSION.idle_s), "`idle_timeout`"),
        ("a WebSocket client that reads nothing", _time(_SESSION.send_s), "the connection ends"),
        (
            "an HTTP or gRPC client that reads nothing",
            f"paused {_ENGINE.max_unread_seconds:g} s of speech ahead, then {_time(SEND_SECONDS)}",
            "`client_stalled`",
        ),
        ("whole gRPC answers that wait for their clients", f"{_size(MAX_UNTAKEN_BYTES)} together", "`overloaded`"),
        (
            "texts that are still being written (`policy: model`)",
            f"{PAUSE_SECONDS:g} s without text, {_time(UTTERANCE_SECONDS)} an utterance; half of the slots at once",
            "`overloaded`",
        ),
        ("requests in the engine", f"{_ENGINE.max_requests} (`COSYSERVE_MAX_REQUESTS`)", "`overloaded`"),
        ("the end of a replica: sessions; streams", f"{_time(_SESSION.drain_s)}; until they are done", "`draining`"),
    ]


def _size(size: int) -> str:
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"


def _time(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 600 else f"{seconds / 60:g} min"
