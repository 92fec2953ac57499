"""Speech tokens to waveform: flow, speed and vocoder, for many utterances at once, whole or hop by hop.

A stream's hops end where the flow's attention chunks end (CosyVoice 2, Du et al. 2024), each with a few tokens of
look-ahead. What a hop computed is kept, so that the next one computes its own frames only.
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from models.cfm import MAX_FRAMES
from models.conditioning import Conditioning
from models.config import ModelConfig
from models.device import finish, to_host
from models.errors import ModelError
from models.flow import Flow, Piece, Prefix
from models.hift import Vocoder
from models.hift_stream import VocoderState
from models.key_values import Window, most_slots
from models.speed import SpeedResampler
from models.voice_prefixes import VoicePrefixes

# Chunks per hop; the last number repeats. A hop is made while its listener plays the one before: each is therefore at
# most about twice as long. Upstream's hops are longer, and its first stream after a start has these.
_HOPS = (1, 1, 2, 2, 4)
_UPSTREAM_HOPS = (1, 2, 4)
_SEAM_FRAMES = 8  # mel frames that two hops of the non-causal vocoder share

Rng = Callable[[int], torch.Generator]
"""The CPU generator for the n-th vocoder call of an utterance, n from 0."""

OnStage = Callable[[str, float, float, Sequence[int]], None]
"""Called after "flow" and after "vocoder": when it began and ended, monotonic seconds, and the indices of its turns."""

Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True, eq=False)
class VoicePrompt:
    """The part of a voice that the flow uses, on the CPU."""

    key: bytes  # a digest of all of it
    tokens: Tensor  # [P] int64
    mel: Tensor  # [M, mels] float32, ln magnitude
    embedding: Tensor  # [192] float32, x-vector


@dataclass(frozen=True, eq=False)
class StreamState:
    """What an utterance carries from hop to hop. Each hop gives a new one; this one stays as it is."""

    prompt: VoicePrompt
    rng: Rng
    speed: float = 1.0
    upstream_compat: bool = False  # upstream's hops, and the last one with full attention over everything
    expected: int = 0  # tokens that it may come to
    hops: int = 0  # so far
    offset: int = 0  # tokens already synthesised
    prefix: Prefix | None = None  # of the flow, once there was a hop
    resampler: SpeedResampler | None = None  # once there was a hop, unless the speed is 1
    vocoder: VocoderState | None = None  # Fun-CosyVoice 3
    seam: Seam | None = None  # CosyVoice 2


@dataclass(frozen=True, eq=False)
class Seam:
    """The end of a hop that the next one repeats and fades over."""

    mel: Tensor  # [mels, _SEAM_FRAMES]
    source: Tensor  # their source
    wave: Tensor  # their samples, not yet sent


@dataclass(frozen=True, eq=False)
class Turn:
    """The next audio of one utterance: a hop or, `last`, all that remains. `tokens`: all of the utterance so far."""

    state: StreamState
    tokens: Sequence[int]
    last: bool


@dataclass(frozen=True, eq=False)
class Audio:
    samples: Tensor  # [L] float32 on the CPU, in +-0.99
    state: StreamState  # for the next turn


class Token2Wav:
    """The acoustic half of a model. It keeps the prefixes of voices' prompts, nothing of an utterance.

    `voice_bytes`: for the prompts' prefixes. `window_chunks`: how far back, beside the prompt, the attention of a
    stream's flow sees; None: to its begin, and cost and memory grow with the stream.
    """

    def __init__(
        self,
        config: ModelConfig,
        flow: Flow,
        vocoder: Vocoder,
        *,
        voice_bytes: int = 0,
        window_chunks: int | None = None,
    ) -> None:
        self.flow = flow
        self.vocoder = vocoder
        self.chunk = config.chunk_size
        self.lookahead = config.pre_lookahead_len
        self.mel_ratio = config.token_mel_ratio
        self.voices = VoicePrefixes(voice_bytes)
        self._recent = None if window_chunks is None else window_chunks * flow.chunk
        # np.hamming: symmetric, in float64.
        self._fade = torch.hamming_window(
            2 * _SEAM_FRAMES * vocoder.upsample, periodic=False, dtype=torch.float64, device=flow.device
        )

    def prompt(self, conditioning: Conditioning) -> VoicePrompt:
        """A voice as the flow reads it. It stays on the CPU: only what computes touches the device."""
        arrays = (conditioning.prompt_tokens, conditioning.prompt_mel, conditioning.embedding)
        digest = hashlib.blake2b(digest_size=16)
        for array in arrays:
            digest.update(str(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        return VoicePrompt(
            key=digest.digest(),
            tokens=torch.from_numpy(conditioning.prompt_tokens).to(torch.int64),
            mel=torch.from_numpy(conditioning.prompt_mel).to(torch.float32),
            embedding=torch.from_numpy(conditioning.embedding).to(torch.float32),
        )

    def new_stream(
        self,
        prompt: VoicePrompt,
        *,
        speed: float = 1.0,
        rng: Rng,
        upstream_compat: bool = False,
        expected_tokens: int = 0,
    ) -> StreamState:
        """`expected_tokens`: how long the utterance may become; the memory that its prefix needs is taken at once.

        Raises ModelError model_input_invalid for a speed at which a hop would be shorter than a seam."""
        limit = self.chunk * self.mel_ratio / max(_SEAM_FRAMES, self.vocoder.delay) / 1.1
        _check_speed(speed, limit)
        return StreamState(prompt, rng, speed, upstream_compat, expected_tokens)

    def next_hop(self, state: StreamState) -> int:
        """How many tokens of the utterance, from its start, must be there before the next hop can run."""
        return state.offset + self._hop(state) + self.lookahead

    def room(self, prompt: VoicePrompt) -> int:
        """The most tokens an utterance can have: beyond, there is no noise for their frames."""
        return MAX_FRAMES // self.mel_ratio - len(prompt.tokens)

    def frames(self, turn: Turn) -> int:
        """Mel frames that a turn takes to compute."""
        state, prompt = turn.state, turn.state.prompt
        if turn.last and (state.hops == 0 or state.upstream_compat):
            return self.mel_ratio * (len(prompt.tokens) + len(turn.tokens))
        if turn.last:
            return self.mel_ratio * (len(turn.tokens) - state.offset)
        known = self._settled(prompt) if prompt.key in self.voices else 0
        return self.mel_ratio * (self._hop(state) + (len(prompt.tokens) - known if state.hops == 0 else 0))

    def stream_bytes(self, prompt: VoicePrompt, tokens: int) -> int:
        """What a stream of so many tokens keeps at most."""
        frames = self.mel_ratio * (len(prompt.tokens) + tokens)
        encoder, estimator = most_slots(frames, None), most_slots(frames, self.window_of(prompt))
        return encoder * self.flow.encoder_frame_bytes + estimator * self.flow.estimator_frame_bytes

    def whole(self, tokens: Sequence[int], prompt: VoicePrompt, *, speed: float = 1.0, rng: Rng) -> Turn:
        """The turn that gives an utterance at once. Raises ModelError model_input_invalid for an impossible `speed`,
        > 0: the mel is resampled in time, which keeps the pitch."""
        _check_speed(speed)
        return Turn(StreamState(prompt, rng, speed), tokens, last=True)

    @torch.inference_mode()
    def synthesize(self, turns: Sequence[Turn], on_stage: OnStage = lambda *step: None) -> list[Audio | Exception]:
        """All turns in one batch. Each gives its audio or what went wrong with it; the others do not notice."""
        began = time.monotonic()
        results: list[Audio | Exception] = [Audio(torch.zeros(0), turn.state) for turn in turns]
        spoken = [index for index, turn in enumerate(turns) if len(turn.tokens)]
        mels = []
        for index, mel in zip(spoken, _isolated(self._mels, [turns[index] for index in spoken]), strict=True):
            if isinstance(mel, Exception):
                results[index] = mel
            else:
                mels.append((index, mel))
        finish(self.flow.device)  # what is queued there is the flow's work
        on_stage("flow", began, read := time.monotonic(), spoken)
        for (index, _), audio in zip(mels, _isolated(self._vocode, [mel for _, mel in mels]), strict=True):
            results[index] = audio
        on_stage("vocoder", read, time.monotonic(), [index for index, _ in mels])
        return results

    # -- flow ------------------------------------------------------------------------------------------------------

    def _hop(self, state: StreamState) -> int:
        """Tokens of the next hop. The first also completes the prompt's last chunk, so that hops end with chunks."""
        schedule = _UPSTREAM_HOPS if state.upstream_compat else _HOPS
        chunks = schedule[min(state.hops, len(schedule) - 1)]
        return chunks * self.chunk + (-len(state.prompt.tokens) % self.chunk if state.offset == 0 else 0)

    def _mels(self, turns: Sequence[Turn]) -> list[_Mel]:
        """Of each turn the new frames, speed applied."""
        prompts = self._read_prompts(turns)
        placed = [self._piece(turn, prompts) for turn in turns]
        answers = self.flow.inference([piece for piece, _ in placed])
        results = []
        for turn, (piece, start), (mel, prefix) in zip(turns, placed, answers, strict=True):
            state, done = turn.state, len(turn.tokens) if turn.last else turn.state.offset + self._hop(turn.state)
            begin = self.mel_ratio * start
            if piece.prefix is None or state.hops == 0:  # the frames of the prompt are there too
                begin = len(state.prompt.mel) + self.mel_ratio * state.offset
            mel, resampler = self._resampled(turn, mel[:, begin - self.mel_ratio * start :])
            kept = None if turn.last else prefix
            after = replace(state, hops=state.hops + 1, offset=done, prefix=kept, resampler=resampler)
            results.append(_Mel(mel, after, state.hops, turn.last))
        return results

    def _piece(self, turn: Turn, prompts: Mapping[bytes, Prefix]) -> tuple[Piece, int]:
        """What the flow has to compute, and the token where that starts, counted from the prompt's first."""
        state, prompt = turn.state, turn.state.prompt
        every = torch.cat((prompt.tokens, torch.as_tensor(turn.tokens, dtype=torch.int64)))
        start, stop, prefix = len(prompt.tokens) + state.offset, len(every), state.prefix
        if turn.last and (state.hops == 0 or state.upstream_compat):
            start, prefix = 0, None
        elif not turn.last:
            stop = start + self._hop(state)
            if state.hops == 0:
                start, prefix = self._settled(prompt), prompts.get(prompt.key, Prefix())
        cond = prompt.mel[self.mel_ratio * start : self.mel_ratio * stop]
        ahead = every[stop : stop + self.lookahead]
        expected = len(prompt.tokens) + state.expected
        return Piece(every[start:stop], ahead, cond, prompt.embedding, prefix, self.window_of(prompt), expected), start

    def _read_prompts(self, turns: Sequence[Turn]) -> dict[bytes, Prefix]:
        """The prefixes of the prompts, as far as their chunks do not depend on what follows, for all first hops."""
        first = [turn.state.prompt for turn in turns if not turn.last and turn.state.hops == 0]
        prefixes, unread = {}, {}
        for prompt in filter(self._settled, first):
            held = self.voices.get(prompt.key)
            if held is not None:
                prefixes[prompt.key] = held
            else:
                unread[prompt.key] = prompt
        pieces = [self._prompt_piece(prompt) for prompt in unread.values()]
        if pieces:
            for key, (mel, prefix) in zip(unread, self.flow.inference(pieces), strict=True):
                prefixes[key] = prefix
                if bool(mel.isfinite().all()):  # else whoever speaks with it now is told; nobody shall be told for ever
                    self.voices.put(key, prefix)
        return prefixes

    def _prompt_piece(self, prompt: VoicePrompt) -> Piece:
        stop = self._settled(prompt)
        tokens, ahead = prompt.tokens[:stop], prompt.tokens[stop : stop + self.lookahead]
        cond = prompt.mel[: self.mel_ratio * stop]
        return Piece(tokens, ahead, cond, prompt.embedding, Prefix(), self.window_of(prompt))

    def _settled(self, prompt: VoicePrompt) -> int:
        """Tokens of the prompt in chunks whose look-ahead is in the prompt too."""
        return max(0, len(prompt.tokens) - self.lookahead) // self.chunk * self.chunk

    def window_of(self, prompt: VoicePrompt) -> Window | None:
        """What the flow's attention sees of a stream of this voice; None: everything."""
        if self._recent is None:
            return None
        # The last hop has up to a hop's tokens and their look-ahead.
        ahead = max(_HOPS) * self.flow.chunk + self.mel_ratio * self.lookahead
        return Window(self.mel_ratio * self._settled(prompt), self._recent, ahead)

    def _resampled(self, turn: Turn, mel: Tensor) -> tuple[Tensor, SpeedResampler | None]:
        state = turn.state
        if state.speed == 1.0:
            return mel, None
        if turn.last and state.hops == 0:
            frames = max(1, int(mel.shape[1] / state.speed))
            return F.interpolate(mel[None], size=frames, mode="linear")[0], None
        resampler = copy.copy(state.resampler) or SpeedResampler(state.speed)
        return resampler.feed(mel, final=turn.last), resampler

    # -- vocoder ---------------------------------------------------------------------------------------------------

    def _vocode(self, mels: Sequence[_Mel]) -> list[Audio]:
        audio = (self._vocode_causal if self.vocoder.causal else self._vocode_seams)(mels)
        samples = to_host([one.samples for one in audio])
        return [replace(one, samples=own) for one, own in zip(audio, samples, strict=True)]

    def _vocode_causal(self, mels: Sequence[_Mel]) -> list[Audio]:
        before = [mel.state.vocoder or self.vocoder.new_state() for mel in mels]
        pieces = self.vocoder.stream([mel.frames for mel in mels], before, [mel.last for mel in mels])
        after = [replace(mel.state, vocoder=state) for mel, (_, state) in zip(mels, pieces, strict=True)]
        return [Audio(wave, state) for (wave, _), state in zip(pieces, after, strict=True)]

    def _vocode_seams(self, mels: Sequence[_Mel]) -> list[Audio]:
        """The vocoder of CosyVoice 2 looks both ways: hops overlap, and the overlap is cross-faded."""
        seams = [mel.state.seam for mel in mels]
        frames = [
            mel.frames if seam is None else torch.cat((seam.mel, mel.frames), dim=1)
            for mel, seam in zip(mels, seams, strict=True)
        ]
        generators = [mel.state.rng(mel.call) for mel in mels]
        sources = [None if seam is None else seam.source for seam in seams]
        waves = self.vocoder.inference(frames, generators, sources)
        return [self._seamed(*item) for item in zip(mels, frames, waves, strict=True)]

    def _seamed(self, mel: _Mel, frames: Tensor, answer: tuple[Tensor, Tensor]) -> Audio:
        wave, source = answer
        seam, samples = mel.state.seam, _SEAM_FRAMES * self.vocoder.upsample
        if seam is not None:
            faded = wave[:samples] * self._fade[:samples] + seam.wave * self._fade[samples:]
            wave[:samples] = faded
        if mel.last:
            return Audio(wave, replace(mel.state, seam=None))
        kept = Seam(*(end.clone() for end in (frames[:, -_SEAM_FRAMES:], source[-samples:], wave[-samples:])))
        return Audio(wave[:-samples], replace(mel.state, seam=kept))


@dataclass(frozen=True, eq=False)
class _Mel:
    frames: Tensor  # [mels, M]
    state: StreamState  # after the turn, but for the vocoder's part
    call: int  # of the vocoder, for this utterance
    last: bool


def _isolated(
    function: Callable[[Sequence[Item]], Sequence[Result]], items: Sequence[Item]
) -> list[Result | Exception]:
    """`function` of all items at once; if that fails, of each by itself, with failures as values."""
    if not items:
        return []
    try:
        return list(function(items))
    except Exception as error:
        if len(items) == 1:
            return [error]
    return [result for item in items for result in _isolated(function, [item])]


def _check_speed(speed: float, limit: float = float("inf")) -> None:
    if not 0 < speed <= limit:
        raise ModelError("model_input_invalid", f"speed {speed} is not in (0, {limit:.3g}]")
