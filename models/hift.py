"""HiFT, the vocoder of CosyVoice 2 and 3: mel to waveform through a harmonic source and an inverse STFT.

Equal to upstream's HiFTGenerator and, with `causal`, CausalHiFTGenerator (HiFTNet, Li et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.checkpoint import fold_weight_norm, load_strict, read_state_dict
from models.config import ModelConfig
from models.errors import ModelError
from models.hift_layers import (
    Conv,
    PitchPredictor,
    RepeatUpsample,
    ResBlock,
    ShortTimeFourier,
    TransposedUpsample,
    padding,
)
from models.hift_source import FixedNoise, HarmonicSource, SourceSettings
from models.hift_stream import Carry, VocoderState

VOCODER_FILE = "hift.pt"
_MAX_MAGNITUDE = 100.0
_POST_SLOPE = 0.01  # of the last leaky ReLU; the others' is in the yaml


class Vocoder(nn.Module):
    """`inference`: whole mels to waveforms. `causal` (Fun-CosyVoice 3): `stream` does it piece by piece."""

    causal: bool

    @classmethod
    def load(cls, config: ModelConfig, *, device: torch.device | str = "cpu") -> Vocoder:
        """The vocoder of a model folder, float32, weight norm folded. Raises ModelError (see `models.checkpoint`)."""
        path = config.root / VOCODER_FILE
        normed = read_state_dict(path)
        state = fold_weight_norm(normed)
        try:
            with torch.device("meta"):
                vocoder = cls(config.hift, config.flow, state, causal=config.version >= 3)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            detail = f"no value for {error}" if isinstance(error, KeyError) else str(error)
            raise ModelError("model_config_invalid", f"{config.root}: hift section: {detail}") from error
        load_strict(vocoder, state, path, dtype=torch.float32)
        if vocoder.causal:
            vocoder.f0_predictor.to_float64(normed, "f0_predictor.")
        return vocoder.to(device)

    def __init__(
        self, hift: Mapping[str, Any], flow: Mapping[str, Any], state: Mapping[str, Tensor], *, causal: bool
    ) -> None:
        super().__init__()
        self.causal = causal
        self.slope = hift["lrelu_slope"]
        self.limit = hift["audio_limit"]
        rates, istft = hift["upsample_rates"], hift["istft_params"]
        self.stft = ShortTimeFourier(istft["n_fft"], istft["hop_len"])
        self.stages_upsample = math.prod(rates)  # STFT frames per mel frame
        self.upsample = self.stages_upsample * istft["hop_len"]  # samples per mel frame
        mels, channels = hift["in_channels"], hift["base_channels"]

        f0 = hift["f0_predictor"]
        f0_kernels = _kernels(state, "f0_predictor.condnet.")
        self.f0_predictor = PitchPredictor(f0["in_channels"], f0["cond_channels"], f0_kernels, causal=causal)
        fixed_noise = FixedNoise.of_model(flow, hift, f0_kernels, self.upsample) if causal else None
        self.m_source = HarmonicSource(_source_settings(hift, self.upsample), fixed_noise)

        pre = hift["conv_pre_look_right"] + 1 if causal else _kernel(state, "conv_pre.weight")
        self.lookahead = pre - 1 if causal else 0
        self.conv_pre = Conv(mels, channels, pre, (0, pre - 1) if causal else padding(pre, 1, causal=False))
        self._build_stages(hift, channels)
        post, bins = _kernel(state, "conv_post.weight"), istft["n_fft"] + 2
        self.conv_post = Conv(channels >> len(rates), bins, post, padding(post, 1, causal=causal))

    def _build_stages(self, hift: Mapping[str, Any], channels: int) -> None:
        """Per up-sampling stage: the up-sampling, the source at its rate, the residual blocks."""
        causal, bins = self.causal, hift["istft_params"]["n_fft"] + 2
        rates, kernels = hift["upsample_rates"], hift["upsample_kernel_sizes"]
        upsampler = RepeatUpsample if causal else TransposedUpsample
        self.ups, self.source_downs = nn.ModuleList(), nn.ModuleList()
        self.source_resblocks, self.resblocks = nn.ModuleList(), nn.ModuleList()
        blocks = list(zip(hift["resblock_kernel_sizes"], hift["resblock_dilation_sizes"], strict=True))
        source_blocks = list(
            zip(hift["source_resblock_kernel_sizes"], hift["source_resblock_dilation_sizes"], strict=True)
        )
        self.blocks_per_stage = len(blocks)
        for stage, (rate, kernel) in enumerate(zip(rates, kernels, strict=True)):
            width = channels >> (stage + 1)
            self.ups.append(upsampler(channels >> stage, width, kernel, rate))
            down = math.prod(rates[stage + 1 :])
            sides = (down - 1, 0) if causal else (down // 2, down // 2)
            self.source_downs.append(
                Conv(bins, width, 2 * down if down > 1 else 1, sides if down > 1 else (0, 0), stride=down)
            )
            size, dilations = source_blocks[stage]
            self.source_resblocks.append(ResBlock(width, size, dilations, causal=causal))
            self.resblocks.extend(ResBlock(width, size, dilations, causal=causal) for size, dilations in blocks)

    @property
    def delay(self) -> int:
        """Mel frames at the end of a stream's piece that give no samples yet."""
        return self.f0_predictor.lookahead + self.lookahead + 1 if self.causal else 0

    @torch.inference_mode()
    def inference(
        self,
        mels: Sequence[Tensor],
        generators: Sequence[torch.Generator | None] | None = None,
        cache_sources: Sequence[Tensor | None] | None = None,
    ) -> list[tuple[Tensor, Tensor]]:
        """`mels: [80, M]` each, ln magnitude -> each waveform `[M * upsample]` in +-audio_limit, and its source.

        `generators`: of each source's noise (not causal). `cache_sources`: overwrite the start of each source, so that
        a stream continues its phase. Mels of one length are one batch.
        """
        results: dict[int, tuple[Tensor, Tensor]] = {}
        for rows in _alike({row: mel.shape for row, mel in enumerate(mels)}):
            mel = self._batch([mels[row] for row in rows])
            noise = [self.m_source.noise(mel.shape[2], generators[row] if generators else None) for row in rows]
            pitch, signal = (Carry(final=True) if self.causal else None for _ in range(2))
            source = self.m_source(self.pitch(mel, pitch).to(mel), torch.stack(noise), pitch)
            for item, row in zip(source, rows, strict=True):
                if cache_sources and (cached := cache_sources[row]) is not None:
                    item[: len(cached)] = cached
            results |= zip(rows, zip(self.decode(mel, source, signal), source, strict=True), strict=True)
        return [results[row] for row in range(len(mels))]

    def new_state(self) -> VocoderState:
        """Of a stream that has not begun."""
        weight = self.conv_pre.weight
        return VocoderState(weight.new_zeros(weight.shape[1], 0))

    @torch.inference_mode()
    def stream(
        self, mels: Sequence[Tensor], states: Sequence[VocoderState], final: Sequence[bool]
    ) -> list[tuple[Tensor, VocoderState]]:
        """Causal. Each stream's next frames `[80, n]` -> the samples they complete, and the state for its next piece.

        A stream's pieces are the `inference` of its whole mel. `delay` frames are held back until the `final` piece,
        which may bring none. Pieces of one length are one batch.
        """
        frames = [torch.cat((state.waiting, mel.to(state.waiting)), 1) for mel, state in zip(mels, states, strict=True)]
        results, ready = {}, {}
        for row, (mel, state, last) in enumerate(zip(frames, states, final, strict=True)):
            least = (0 if last else 1) if state.frames else (1 if last else self.delay + 1)
            if mel.shape[1] >= least:
                ready[row] = (mel.shape[1], state.frames > 0, last)
            else:
                results[row] = (mel.new_zeros(0), replace(state, waiting=mel))
        for rows in _alike(ready):
            mel = self._batch([frames[row] for row in rows])
            results |= zip(rows, self._advance(mel, [states[row] for row in rows], final[rows[0]]), strict=True)
        return [results[row] for row in range(len(mels))]

    def _advance(
        self, mel: Tensor, states: Sequence[VocoderState], final: bool
    ) -> Iterator[tuple[Tensor, VocoderState]]:
        """`stream` for one batch `[B, 80, n]`."""
        pitch = Carry.of([state.pitch for state in states], final=final)
        signal = Carry.of([state.signal for state in states], final=final)
        f0 = self.pitch(mel, pitch).to(mel)
        noise = [self.m_source.noise(f0.shape[1], start=state.frames) for state in states]
        waves = self.decode(mel, self.m_source(f0, torch.stack(noise), pitch), signal)
        if final:
            return zip(waves, (self.new_state() for _ in states), strict=True)
        waiting = self.new_state().waiting
        done = [state.frames + f0.shape[1] for state in states]
        # Copies: a row of a batch would keep the whole batch.
        kept = ([row.clone() for row in carry.packed()] for carry in (pitch, signal))
        return zip(waves, map(VocoderState, repeat(waiting), done, *kept), strict=True)

    def _batch(self, mels: Sequence[Tensor]) -> Tensor:
        return torch.stack(tuple(mels)).to(self.conv_pre.weight)

    def pitch(self, mel: Tensor, carry: Carry | None = None) -> Tensor:
        """`mel: [B, 80, M] -> [B, M]` Hz."""
        if self.causal:
            return self.f0_predictor(mel, carry)
        # Rounding in float32 depends on the size of a batch, and the phase adds it up: one by one.
        return torch.cat([self.f0_predictor(item[None]) for item in mel])

    def decode(self, mel: Tensor, source: Tensor, carry: Carry | None = None) -> Tensor:
        """`mel: [B, 80, M]`, `source: [B, M * upsample] -> [B, M * upsample]` samples."""
        spectrum = self.stft.forward(source, carry)
        if carry is not None:  # the source of all frames whose pitch is known is there, more than `conv_pre` can use
            mel = carry.delay(mel, self.f0_predictor.lookahead)
            spectrum = carry.delay(spectrum, self.stages_upsample * self.lookahead - self.stft.overlaps // 2)
        x = self.conv_pre(mel, carry)
        for stage, up in enumerate(self.ups):
            x = up(F.leaky_relu_(x, self.slope), carry)
            if stage == len(self.ups) - 1 and (carry is None or carry.starts):
                x = torch.cat((x[..., 1:2], x), dim=-1)  # the STFT has one frame more
            x.add_(self.source_resblocks[stage](self.source_downs[stage](spectrum, carry), carry))
            first = stage * self.blocks_per_stage
            x = _mean([block(x, carry) for block in self.resblocks[first : first + self.blocks_per_stage]])
        x = self.conv_post(F.leaky_relu_(x, _POST_SLOPE), carry)
        if carry is not None:
            x = carry.delay(x, self.stages_upsample - 1)  # samples leave in whole mel frames
        bins = x.shape[1] // 2
        wave = self.stft.inverse(x[:, :bins].exp().clamp(max=_MAX_MAGNITUDE), x[:, bins:].sin(), carry)
        return wave.clamp(-self.limit, self.limit)


def _alike(kinds: Mapping[int, Hashable]) -> list[list[int]]:
    """The rows of each kind."""
    groups: dict[Hashable, list[int]] = {}
    for row, kind in kinds.items():
        groups.setdefault(kind, []).append(row)
    return list(groups.values())


def _mean(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total.add_(part)
    return total / len(parts) if len(parts) > 1 else total


def _source_settings(hift: Mapping[str, Any], upsample: int) -> SourceSettings:
    return SourceSettings(
        sample_rate=hift["sampling_rate"],
        harmonics=hift["nb_harmonics"] + 1,
        sine_amplitude=hift["nsf_alpha"],
        noise_std=hift["nsf_sigma"],
        voiced_threshold=hift["nsf_voiced_threshold"],
        upsample=upsample,
    )


def _kernel(state: Mapping[str, Tensor], key: str) -> int:
    """The kernel size of a convolution that only the checkpoint tells; 1 when it is amiss: strict loading says so."""
    return state[key].shape[-1] if key in state and state[key].dim() == 3 else 1


def _kernels(state: Mapping[str, Tensor], prefix: str) -> list[int]:
    """The kernel sizes of the convolutions `prefix0.weight`, `prefix2.weight`, ... in their order."""
    indices = {int(key[len(prefix) :].split(".")[0]) for key in state if key.startswith(prefix)}
    return [_kernel(state, f"{prefix}{index}.weight") for index in sorted(indices)]
