"""Upstream's own HTTP routes, for clients that were written for its FastAPI server: forms in, bare 16 bit samples out.

Off unless COSYSERVE_UPSTREAM_ROUTES is 1. Source of the names: upstream's runtime/python/fastapi.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response

from api.answers import Delivery, answer
from api.arrival import parsed, read_bytes
from api.bodies import FORM, is_form
from api.connection import run_while_connected
from api.errors import ApiError
from api.form import read_form
from api.synthesis import Speaker, SpeechWish, prepare
from api.telemetry import Recording, failure_recorded

VARIABLE = "COSYSERVE_UPSTREAM_ROUTES"
ROUTE = "upstream"
_MAX_FIELDS = 32
# Clients of CosyVoice 3 put these into their texts by hand; here the engine does.
_SYSTEM_TEXT = "You are a helpful assistant."
_END_OF_PROMPT = "<|endofprompt|>"

# Of each mode, the fields of its form; prompt_wav is a file.
FIELDS = {
    "sft": ("tts_text", "spk_id"),
    "zero_shot": ("tts_text", "prompt_text", "prompt_wav"),
    "cross_lingual": ("tts_text", "prompt_wav"),
    "instruct2": ("tts_text", "instruct_text", "prompt_wav"),
}
# A speaker may be a saved voice as well as a preset.
_TASKS = {"sft": None, "zero_shot": "zero_shot", "cross_lingual": "cross_lingual", "instruct2": "instruct"}


def router(speaker: Speaker) -> APIRouter:
    """Without routes, unless they are asked for."""
    routes = APIRouter()
    if os.environ.get(VARIABLE) == "1":
        for mode, fields in FIELDS.items():
            _add(routes, speaker, mode, fields)
    return routes


def _add(routes: APIRouter, speaker: Speaker, mode: str, fields: Sequence[str]) -> None:
    async def speak(request: Request) -> Response:
        given, prompt = await _read(request, fields)
        return await run_while_connected(request, _speak(speaker, mode, given, prompt))

    speak.__name__ = f"inference_{mode}"
    speak.__doc__ = "Upstream's route of that name: 16 bit little-endian mono samples at the model's rate, as made."
    path = f"/inference_{mode}"
    routes.post(path, openapi_extra=_document(fields))(speak)
    routes.get(path, include_in_schema=False)(speak)  # upstream's own client sends its form so


async def _read(request: Request, fields: Sequence[str]) -> tuple[dict[str, str], bytes | None]:
    """The fields of the form, and its file. Raises ApiError."""
    prompt: bytes | None = None
    if is_form(request):
        form = await read_form(request, "prompt_wav", fields)
        given, prompt = form.fields, form.files.get("prompt_wav")
    else:
        given = await parsed(_urlencoded, await read_bytes(request))
    for name in (*given, *(["prompt_wav"] if prompt is not None else [])):
        if name not in fields:
            raise ApiError(400, "unknown_parameter", f"There is no parameter `{name}` here.", name)
    for name in fields:
        if not (prompt if name == "prompt_wav" else given.get(name, "").strip()):
            raise ApiError(400, "missing_parameter", f"`{name}` is required.", name)
    return given, prompt


def _urlencoded(data: bytes) -> dict[str, str]:
    try:
        return dict(parse_qsl(data.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS))
    except UnicodeDecodeError:
        raise ApiError(400, "input_not_utf8", "The form is not valid UTF-8.") from None
    except ValueError:
        raise ApiError(400, "invalid_form", f"The form has over {_MAX_FIELDS} fields.") from None


async def _speak(speaker: Speaker, mode: str, given: dict[str, str], prompt: bytes | None) -> Response:
    recording = Recording(ROUTE)
    with failure_recorded(recording):
        info = await speaker.backend.describe()
        transcript, instructions = given.get("prompt_text"), given.get("instruct_text")
        wish = SpeechWish(
            text=_after_prompt(given["tts_text"]),
            voice=given.get("spk_id"),
            ref_audio=prompt,
            ref_text=None if transcript is None else _after_prompt(transcript),
            instructions=None if instructions is None else _instruction(instructions),
            task_type=_TASKS[mode],
        )
        return await answer(await prepare(speaker, wish, info), Delivery("pcm"), recording)


def _after_prompt(text: str) -> str:
    """A text without the system sentence that stands before it."""
    system, mark, rest = text.partition(_END_OF_PROMPT)
    return rest if mark and system.strip() == _SYSTEM_TEXT else text


def _instruction(text: str) -> str:
    return text.strip().removesuffix(_END_OF_PROMPT).strip().removeprefix(_SYSTEM_TEXT).strip()


def _document(fields: Sequence[str]) -> dict[str, Any]:
    properties = {name: {"type": "string", **({"format": "binary"} if name == "prompt_wav" else {})} for name in fields}
    schema = {"type": "object", "required": list(fields), "properties": properties, "additionalProperties": False}
    return {"requestBody": {"required": True, "content": {FORM: {"schema": schema}}}}
