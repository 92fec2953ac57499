"""One inference, whatever transport asked for it: the model, its answer as tensors, whole or hop by hop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

import numpy as np

from api.errors import ApiError
from api.oip.formats import AudioTensor
from api.oip.models import VERSION, ServedModel, served_models
from api.oip.request import InferRequest
from api.oip.tensors import Tensor
from api.synthesis import Room, Speaker, SpeechWish, Summary, prepare
from api.telemetry import Recording, failure_recorded

ROUTE = "oip"
MAX_LISTED_ELEMENTS = 2**22
"""Of an answer whose numbers are written out one by one: some 90 MB of JSON."""
_TOO_LONG = "The answer is over {most:,} samples: send less text, or take binary data or a stream."


@dataclass(frozen=True)
class Spoken:
    """A whole answer: its audio, and how it ended."""

    audio: Tensor
    seed: int
    summary: Summary


@contextmanager
def recorded() -> Iterator[Recording]:
    """The metrics of one request; the block's exception is its outcome."""
    recording = Recording(ROUTE)
    with failure_recorded(recording):
        yield recording
        recording.finished("ok")


class Inference:
    """What REST and gRPC share."""

    def __init__(self, speaker: Speaker) -> None:
        self.backend, self._speaker = speaker.backend, speaker
        self.answered: Counter[str] = Counter()  # by model

    async def models(self) -> tuple[ServedModel, ...]:
        """Raises RequestError `loading`."""
        return served_models(await self.backend.describe())

    async def model(self, name: str, version: str = "", inputs: Sequence[str] = ()) -> ServedModel:
        """The model of that name; where two share one, that whose text is among `inputs`.

        Raises ApiError model_not_found, RequestError loading.
        """
        models = await self.models()
        named = [model for model in models if model.name == name]
        if not named:
            known = " and ".join(repr(model.name) for model in models)
            raise ApiError(404, "model_not_found", f"No model {name!r}; this server has {known}.", "model")
        if version not in ("", VERSION):
            message = f"{name!r} has no version {version!r}; it has {VERSION!r}."
            raise ApiError(404, "model_not_found", message, "version")
        return next((model for model in named if model.text_input in inputs), named[0])

    async def is_ready(self, name: str, version: str = "") -> bool:
        """Raises ApiError model_not_found once it is known which models there are."""
        if not await self.backend.is_ready():
            return False
        await self.model(name, version)
        return True

    async def infer(
        self, model: ServedModel, request: InferRequest, listed: Sequence[str], recording: Recording
    ) -> list[Tensor]:
        """All outputs that were asked for; those in `listed` are to be written out number by number."""
        wish, audio = self._wanted(model, request, stream=False)
        room = Room(refusal=_TOO_LONG)
        if model.outputs[0].name in listed and audio.elements_per_sample:
            room = Room(MAX_LISTED_ELEMENTS // audio.elements_per_sample, _TOO_LONG)
        spoken = await self.speak(wish, audio, recording, room)
        self.answered[model.name] += 1
        return _outputs(model, request, spoken.audio, audio.sample_rate)

    async def speak(
        self, wish: SpeechWish, audio: AudioTensor, recording: Recording, room: Room | None = None
    ) -> Spoken:
        """A whole answer. Raises what the layers below raise, and ApiError answer_too_long."""
        speech = await prepare(self._speaker, wish, await self.backend.describe())
        samples = await speech.whole(recording, room)
        with recording.encoding():
            tensor = await asyncio.to_thread(audio.whole, samples)
        return Spoken(tensor, speech.seed, speech.summary)

    async def stream_infer(
        self, model: ServedModel, request: InferRequest, recording: Recording
    ) -> AsyncGenerator[list[Tensor], None]:
        """The outputs of one hop after the other."""
        wish, audio = self._wanted(model, request, stream=True)
        async with aclosing(self.stream(wish, audio, recording)) as hops:
            async for tensor in hops:
                yield _outputs(model, request, tensor, audio.sample_rate)
        self.answered[model.name] += 1

    async def stream(
        self, wish: SpeechWish, audio: AudioTensor, recording: Recording, end: list[Summary] | None = None
    ) -> AsyncGenerator[Tensor, None]:
        """The audio of one hop after the other; closing it cancels the request. How it ended goes into `end`."""
        speech = await prepare(self._speaker, wish, await self.backend.describe())
        async with aclosing(speech.blocks(recording)) as blocks:
            async for samples in blocks:
                # What takes its time is done in a thread, as the loop feeds every stream.
                with recording.encoding():
                    made = await asyncio.to_thread(audio.feed, samples) if audio.takes_time else audio.feed(samples)
                if made is not None:
                    yield made
        if (rest := await asyncio.to_thread(audio.end)) is not None:
            yield rest
        if end is not None:
            end.append(speech.summary)

    def _wanted(self, model: ServedModel, request: InferRequest, stream: bool) -> tuple[SpeechWish, AudioTensor]:
        model.check(request.inputs)
        known = [spec.name for spec in model.outputs]
        for output in request.outputs:
            if output.name not in known:
                message = f"{model.name!r} has no output {output.name!r}; it has {', '.join(known)}."
                raise ApiError(400, "unknown_tensor", message, output.name)
        return model.wish(request.inputs, stream), model.audio(request.inputs)


def _outputs(model: ServedModel, request: InferRequest, audio: Tensor, sample_rate: int) -> list[Tensor]:
    made = {audio.name: audio}
    if "sample_rate" in (spec.name for spec in model.outputs):
        made["sample_rate"] = Tensor("sample_rate", "INT32", (1,), np.array([sample_rate], np.int32))
    names = [output.name for output in request.outputs] or list(made)
    return [made[name] for name in names]
