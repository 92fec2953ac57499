"""HiFT, the vocoder of CosyVoice 2 and 3: mel to waveform through a harmonic source and an inverse STFT.

Equal to upstream's HiFTGenerator and, with `causal`, CausalHiFTGenerator (HiFTNet, Li et al. 2023).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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

VOCODER_FILE = "hift.pt"
_MAX_MAGNITUDE = 100.0
_POST_SLOPE = 0.01  # of the last leaky ReLU; the others' is in the yaml


class Vocoder(nn.Module):
    """`inference(mel: [80, M]) -> [M * upsample]` samples. `causal`: Fun-CosyVoice 3."""

    causal: bool

    @classmethod
    def load(cls, config: ModelConfig, *, device: torch.device | str = "cpu") -> Vocoder:
        """The vocoder of a model folder, float32, weight norm folded. Raises ModelError (see `models.checkpoint`)."""
        path = config.root / VOCODER_FILE
        normed = read_state_dict(path)
        # Cloned, so that no small tensor keeps the whole file mapped beside the folded weights.
        state = {key: value.clone() for key, value in fold_weight_norm(normed).items()}
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
        """Mel frames at the end of a non-final call that give no samples yet."""
        return self.f0_predictor.lookahead + self.lookahead + 1 if self.causal else 0

    @torch.inference_mode()
    def inference(
        self,
        mel: Tensor,
        *,
        generator: torch.Generator | None = None,
        cache_source: Tensor | None = None,
        finalize: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """`mel: [80, M]` ln magnitude -> the waveform `[M * upsample]` in +-audio_limit, and its source.

        `generator`: of the source's noise (not causal). `cache_source`: overwrites the start of the source, so that
        a stream continues its phase. Not `finalize` (causal): without the last `delay` frames' samples.
        """
        mel = mel.to(self.conv_pre.weight)[None]
        f0 = self.pitch(mel, finalize=finalize)
        source = self.m_source(f0.to(mel.dtype), generator)
        if cache_source is not None:
            source[: len(cache_source)] = cache_source
        if not finalize:
            mel = mel[..., : f0.shape[0]]
        return self.decode(mel, source, finalize=finalize), source

    def pitch(self, mel: Tensor, *, finalize: bool = True) -> Tensor:
        """`mel: [1, 80, M] -> [M]` Hz."""
        return self.f0_predictor(mel, finalize=finalize or not self.causal)[0]

    def decode(self, mel: Tensor, source: Tensor, *, finalize: bool = True) -> Tensor:
        """`mel: [1, 80, M]`, `source: [M * upsample] -> [M * upsample]` samples."""
        spectrum = self.stft.forward(source)[None]
        cut = not finalize and self.causal
        if cut:
            x = self.conv_pre.valid(mel)
            spectrum = spectrum[..., : spectrum.shape[-1] - self.stages_upsample * self.lookahead]
        else:
            x = self.conv_pre(mel)
        for stage, up in enumerate(self.ups):
            x = up(F.leaky_relu(x, self.slope))
            if stage == len(self.ups) - 1:
                x = torch.cat((x[..., 1:2], x), dim=-1)  # the STFT has one frame more
            x = x + self.source_resblocks[stage](self.source_downs[stage](spectrum))
            first = stage * self.blocks_per_stage
            x = _mean([block(x) for block in self.resblocks[first : first + self.blocks_per_stage]])
        x = self.conv_post(F.leaky_relu(x, _POST_SLOPE))[0]
        bins = x.shape[0] // 2
        wave = self.stft.inverse(x[:bins].exp().clamp(max=_MAX_MAGNITUDE), x[bins:].sin())
        if cut:
            wave = wave[: len(wave) - self.upsample]
        return wave.clamp(-self.limit, self.limit)


def _mean(parts: list[Tensor]) -> Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
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
