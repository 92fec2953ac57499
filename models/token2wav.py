"""Speech tokens to waveform: flow, speed and vocoder, in one pass or hop by hop as tokens arrive.

The schedule and the seams of a stream are those of CosyVoice 2 (Du et al. 2024), as a freshly loaded upstream model
runs them: hops of 25, 50, 100 tokens, the first one aligned to the prompt, each with a few tokens of look-ahead; the
rest is computed with full attention once all tokens are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from models.conditioning import Conditioning
from models.config import ModelConfig
from models.errors import ModelError
from models.flow import Flow
from models.hift import Vocoder
from models.speed import SpeedResampler

_HOP_GROWTH = 2
_MAX_HOP_CHUNKS = 4
_SEAM_FRAMES = 8  # mel frames that two hops of the non-causal vocoder share

Rng = Callable[[int], torch.Generator]
"""The CPU generator for the n-th vocoder call of an utterance, n from 0."""


@dataclass(frozen=True, eq=False)
class VoicePrompt:
    """The part of a voice that the flow uses, on the model's device."""

    tokens: Tensor  # [P] int64
    mel: Tensor  # [M, mels] float32, ln magnitude
    embedding: Tensor  # [192] float32, x-vector


@dataclass
class StreamState:
    """What an utterance carries from hop to hop. It belongs to the request; `Token2Wav` alone changes it."""

    prompt: VoicePrompt
    rng: Rng
    speed: SpeedResampler | None
    hop: int  # tokens of the next hop, alignment not counted
    offset: int = 0  # tokens already synthesised
    calls: int = 0  # of the vocoder
    seam: Seam | None = None  # CosyVoice 2
    mel: list[Tensor] = field(default_factory=list)  # Fun-CosyVoice 3: all frames so far, [mels, M] pieces
    emitted: int = 0  # Fun-CosyVoice 3: samples


@dataclass(frozen=True, eq=False)
class Seam:
    """The end of a hop that the next one repeats and fades over."""

    mel: Tensor  # [mels, _SEAM_FRAMES]
    source: Tensor  # their source
    wave: Tensor  # their samples, not yet sent


class Token2Wav:
    """The acoustic half of a model. Stateless between calls: a stream's state is the caller's."""

    def __init__(self, config: ModelConfig, flow: Flow, vocoder: Vocoder) -> None:
        self.flow = flow
        self.vocoder = vocoder
        self.chunk = config.chunk_size
        self.lookahead = config.pre_lookahead_len
        self.mel_ratio = config.token_mel_ratio
        # np.hamming: symmetric, in float64.
        self._fade = torch.hamming_window(
            2 * _SEAM_FRAMES * vocoder.upsample, periodic=False, dtype=torch.float64, device=flow.device
        )

    def prompt(self, conditioning: Conditioning) -> VoicePrompt:
        """A voice's tensors on the model's device."""
        device = self.flow.device
        return VoicePrompt(
            tokens=torch.from_numpy(conditioning.prompt_tokens).to(device, torch.int64),
            mel=torch.from_numpy(conditioning.prompt_mel).to(device, torch.float32),
            embedding=torch.from_numpy(conditioning.embedding).to(device, torch.float32),
        )

    # -- in one pass -----------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def whole(self, tokens: Sequence[int], prompt: VoicePrompt, *, speed: float = 1.0, rng: Rng) -> Tensor:
        """All samples `[L]` float32 on the CPU, in +-0.99; empty when there are no tokens.

        `speed` > 0: the mel is resampled in time, which keeps the pitch. Raises ModelError model_input_invalid.
        """
        _check_speed(speed)
        if not len(tokens):
            return torch.zeros(0)
        mel = self._mel(tokens, prompt, streaming=False, finalize=True)
        if speed != 1.0:
            frames = max(1, int(mel.shape[1] / speed))
            mel = F.interpolate(mel[None], size=frames, mode="linear")[0]
        wave, _ = self.vocoder.inference(mel, generator=self._generator(rng, 0))
        return wave.cpu()

    # -- hop by hop ------------------------------------------------------------------------------------------------

    def new_stream(self, prompt: VoicePrompt, *, speed: float = 1.0, rng: Rng) -> StreamState:
        """Raises ModelError model_input_invalid for a speed at which a hop would be shorter than a seam."""
        limit = self.chunk * self.mel_ratio / max(_SEAM_FRAMES, self.vocoder.delay) / 1.1
        _check_speed(speed, limit)
        return StreamState(prompt, rng, SpeedResampler(speed) if speed != 1.0 else None, self.chunk)

    def next_hop(self, state: StreamState) -> int:
        """How many tokens of the utterance, from its start, must be there before the next hop can run."""
        return state.offset + self._hop(state) + self.lookahead

    @torch.inference_mode()
    def hop(self, state: StreamState, tokens: Sequence[int]) -> Tensor:
        """The samples of the next hop, `[L]` float32 on the CPU. `tokens`: all of the utterance so far."""
        needed = self.next_hop(state)
        if len(tokens) < needed:
            raise ModelError("model_input_invalid", f"the next hop needs {needed} tokens, {len(tokens)} are there")
        mel = self._mel(tokens[:needed], state.prompt, streaming=True, finalize=False)
        mel = mel[:, state.offset * self.mel_ratio :]
        wave = self._vocode(state, mel, finalize=False)
        state.offset += self._hop(state)
        state.hop = min(_MAX_HOP_CHUNKS * self.chunk, _HOP_GROWTH * state.hop)
        return wave.cpu()

    @torch.inference_mode()
    def final(self, state: StreamState, tokens: Sequence[int]) -> Tensor:
        """The rest of the samples, `[L]` float32 on the CPU. `tokens`: all of the utterance."""
        if not len(tokens):
            return torch.zeros(0)
        mel = self._mel(tokens, state.prompt, streaming=False, finalize=True)
        return self._vocode(state, mel[:, state.offset * self.mel_ratio :], finalize=True).cpu()

    def _hop(self, state: StreamState) -> int:
        """Tokens of the next hop. The first also completes the prompt's last chunk, so that chunks stay aligned."""
        return state.hop + (-len(state.prompt.tokens) % self.chunk if state.offset == 0 else 0)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _mel(self, tokens: Sequence[int], prompt: VoicePrompt, *, streaming: bool, finalize: bool) -> Tensor:
        return self.flow.inference(
            torch.as_tensor(tokens, dtype=torch.int64, device=self.flow.device),
            prompt.tokens,
            prompt.mel,
            prompt.embedding,
            streaming=streaming,
            finalize=finalize,
        )

    def _vocode(self, state: StreamState, mel: Tensor, *, finalize: bool) -> Tensor:
        """The samples that new frames `[mels, M]` add to a stream."""
        if state.speed is not None:
            mel = state.speed.feed(mel, final=finalize)
        return (self._vocode_causal if self.vocoder.causal else self._vocode_seam)(state, mel, finalize)

    def _vocode_causal(self, state: StreamState, mel: Tensor, finalize: bool) -> Tensor:
        state.mel.append(mel)
        wave, _ = self.vocoder.inference(torch.cat(state.mel, dim=1), finalize=finalize)
        wave = wave[state.emitted :]
        state.emitted += len(wave)
        return wave

    def _vocode_seam(self, state: StreamState, mel: Tensor, finalize: bool) -> Tensor:
        """The vocoder of CosyVoice 2 looks both ways: hops overlap, and the overlap is cross-faded."""
        seam = state.seam
        if seam is not None:
            mel = torch.cat((seam.mel, mel), dim=1)
        generator = self._generator(state.rng, state.calls)
        state.calls += 1
        cached = None if seam is None else seam.source
        wave, source = self.vocoder.inference(mel, generator=generator, cache_source=cached)
        samples = _SEAM_FRAMES * self.vocoder.upsample
        if seam is not None:
            faded = wave[:samples] * self._fade[:samples] + seam.wave * self._fade[samples:]
            wave[:samples] = faded
        if finalize:
            return wave
        state.seam = Seam(mel[:, -_SEAM_FRAMES:], source[-samples:], wave[-samples:])
        return wave[:-samples]

    def _generator(self, rng: Rng, call: int) -> torch.Generator | None:
        """The causal vocoder's noise is fixed: it draws nothing."""
        return None if self.vocoder.causal else rng(call)


def _check_speed(speed: float, limit: float = float("inf")) -> None:
    if not 0 < speed <= limit:
        raise ModelError("model_input_invalid", f"speed {speed} is not in (0, {limit:.3g}]")
