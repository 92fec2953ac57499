"""Upstream's structure of serving, rebuilt around our networks: what the engine is compared with.

One request after another, each by itself: the language model as in `benchmarks.upstream_lm`; every hop of a stream
runs the flow over prompt and tokens from the first on, the last one with full attention; the vocoder starts at sample 0
again (Fun-CosyVoice 3) or overlaps by 8 frames (CosyVoice 2). Speech and hops are those of the engine's
`upstream_compat`.
The networks themselves are ours, so what they gain by packed weights and fused layers the baseline gains as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from benchmarks.upstream_lm import UpstreamLM, walk_sample
from models.cosyvoice import CosyVoice
from models.flow import Piece, Prefix
from models.sampling import SilentFilter, ids_below_min_length, mask_ids
from models.token2wav import Rng, Token2Wav, VoicePrompt
from runners.modes import resolve
from runners.request import SpeechRequest
from runners.sequence import Job, Utterance

_HOPS = (1, 2, 4)  # chunks; the last number repeats. A stream that is not the first after a start begins with 4
_OVERLAP = 8  # mel frames


class UpstreamEngine:
    """`endless`: no utterance ends before its greatest length."""

    def __init__(self, model: CosyVoice, *, endless: bool = False) -> None:
        self._model = model
        self._lm = UpstreamLM(model.config)
        self._endless = endless

    def speak(self, request: SpeechRequest) -> Iterator[Tensor]:
        """The pieces of a streamed request, `[L]` float32 samples each."""
        plan = resolve(request, self._model, upstream_compat=True)
        config = self._model.config
        job = Job(request, plan, config.sample_rate)
        for index, segment in enumerate(plan.segments):
            least, most = self._model.lm.length_limits(segment.counted)
            utterance = job.add_utterance(
                text_ids=segment.text_ids,
                text_tokens=segment.counted,
                min_tokens=least,
                max_tokens=most,
                silent_filter=SilentFilter.of_version(config.version),
                silence=frozenset(config.folder.silence_tokens if index == 0 else ()),
                silence_kept=config.folder.leading_silence_kept,
            )
            yield from self._utter(utterance)

    def _utter(self, utterance: Utterance) -> Iterator[Tensor]:
        job, lm = utterance.job, self._model.lm
        stream = UpstreamStream(self._model.token2wav, job.prompt, utterance.vocoder_generator)
        logp = self._lm.prefill(lm.build_input(utterance.text_ids, job.lm_prompt_tokens))
        while True:
            token = self._sample(logp, utterance)
            if token in lm.stop_ids:
                break
            utterance.accept(token)
            while len(utterance.tokens) >= stream.needed:
                yield stream.hop(utterance.tokens)
            if utterance.decoded:
                break
            logp = self._lm.step(token)
        yield stream.rest(utterance.tokens)

    def _sample(self, logp: Tensor, utterance: Utterance) -> int:
        lm = self._model.lm
        if self._endless:
            logp = mask_ids(logp, lm.stop_ids)
        elif len(utterance.history) < utterance.min_tokens:
            logp = mask_ids(logp, ids_below_min_length(lm, upstream_compat=True))
        return walk_sample(logp, utterance.history, self._model.config.sampling, utterance.generator)


class UpstreamStream:
    """The acoustic half of one stream."""

    def __init__(self, token2wav: Token2Wav, prompt: VoicePrompt, rng: Rng) -> None:
        self._token2wav = token2wav
        self._prompt = prompt
        self._rng = rng
        self._calls = self._offset = self._sent = 0
        self._mel: Tensor | None = None  # all so far, or the overlap
        self._overlap: tuple[Tensor, Tensor] | None = None  # its source and its samples

    @property
    def needed(self) -> int:
        """How many tokens of the utterance must be there before the next hop can run."""
        return self._next_stop + self._token2wav.lookahead

    def hop(self, tokens: Sequence[int]) -> Tensor:
        return self._speak(tokens, self._next_stop, last=False)

    def rest(self, tokens: Sequence[int]) -> Tensor:
        """The last piece: all that remains."""
        return self._speak(tokens, len(tokens), last=True) if len(tokens) else torch.zeros(0)

    @property
    def _next_stop(self) -> int:
        chunk = self._token2wav.chunk
        aligned = -len(self._prompt.tokens) % chunk if self._offset == 0 else 0
        return self._offset + chunk * _HOPS[min(self._calls, len(_HOPS) - 1)] + aligned

    @torch.inference_mode()
    def _speak(self, tokens: Sequence[int], stop: int, *, last: bool) -> Tensor:
        token2wav, prompt = self._token2wav, self._prompt
        every = torch.cat((prompt.tokens, torch.as_tensor(tokens, device=prompt.tokens.device)))
        end, prefix = len(prompt.tokens) + stop, None if last else Prefix()
        ahead = every[end : end + token2wav.lookahead]
        piece = Piece(every[:end], ahead, prompt.mel[: token2wav.mel_ratio * end], prompt.embedding, prefix)
        ((mel, _),) = token2wav.flow.inference([piece])
        mel = mel[:, len(prompt.mel) + token2wav.mel_ratio * self._offset :]
        self._mel = mel if self._mel is None else torch.cat((self._mel, mel), dim=1)
        wave = self._from_sample_0(last) if token2wav.vocoder.causal else self._overlapping(last)
        self._offset, self._calls = stop, self._calls + 1
        return wave.cpu()

    def _from_sample_0(self, last: bool) -> Tensor:
        vocoder, sent = self._token2wav.vocoder, self._sent
        assert self._mel is not None
        ((wave, _),) = vocoder.stream([self._mel], [vocoder.new_state()], [last])
        self._sent = len(wave)
        return wave[sent:]

    def _overlapping(self, last: bool) -> Tensor:
        vocoder, before = self._token2wav.vocoder, self._overlap
        assert self._mel is not None
        cached = None if before is None else before[0]
        ((wave, source),) = vocoder.inference([self._mel], [self._rng(self._calls)], [cached])
        samples = _OVERLAP * vocoder.upsample
        if before is not None:
            fade = torch.hamming_window(2 * samples, periodic=False, dtype=torch.float64, device=wave.device)
            wave[:samples] = wave[:samples] * fade[:samples] + before[1] * fade[samples:]
        if last:
            return wave
        self._mel, self._overlap = self._mel[:, -_OVERLAP:], (source[-samples:], wave[-samples:])
        return wave[:-samples]
