"""The flow of CosyVoice 2 and 3: speech tokens and a voice's prompt to a mel spectrogram."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.cfm import ConditionalFlowMatching
from models.checkpoint import load_strict, read_state_dict
from models.config import ModelConfig
from models.decode_graphs import Capture
from models.device import to_device
from models.errors import ModelError
from models.flow_dit import DiTEstimator
from models.flow_encoder import UpsampleConformerEncoder
from models.flow_graphs import BUCKETS, BlockStack, FrameGraphs
from models.flow_layers import PreLookahead, lower_precision, pack
from models.flow_unet import UNetEstimator
from models.key_values import Window
from models.packing import Memory, Packing, Span

FLOW_FILE = "flow.pt"
_TOKENS, _FRAMES, _SOLVER = range(3)  # passes: at the rate of tokens, of frames, and from here on the solver's


@dataclass(frozen=True)
class Prefix:
    """What a stream keeps of its frames so far: a memory for each pass. A snapshot, free to share."""

    memories: tuple[Memory, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(memory.bytes for memory in self.memories)

    def memory(self, index: int) -> Memory:
        return self.memories[index] if self.memories else Memory()


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive tokens of one utterance, the voice's prompt first, and what the flow needs with them.

    With a `prefix` it follows on it, at a chunk's end, and attends chunk by chunk; without, it is the whole utterance
    and attends to all of it.
    """

    tokens: Tensor  # [T] int64
    ahead: Tensor  # [0] or [lookahead] int64: the tokens after these, which only colour the last of them
    cond: Tensor  # [0..mel_ratio * T, mels]: the prompt's mel, as far as it reaches into these frames
    embedding: Tensor  # [192] float32: x-vector
    prefix: Prefix | None = None
    window: Window | None = None  # of the estimator's attention, in frames; the encoder, which is small, sees all
    expected: int = 0  # tokens, the prompt included, that the stream may come to: memory is taken for them at once


class Flow(nn.Module):
    """Both versions behind one interface: encode tokens to mean frames, then solve the flow around them."""

    input_embedding: nn.Embedding
    spk_embed_affine_layer: nn.Linear
    decoder: ConditionalFlowMatching
    lookahead: int  # tokens
    mel_ratio: int  # mel frames per token
    chunk: int  # mel frames per streaming chunk of the estimator
    dtype: torch.dtype  # that the estimator computes in

    @classmethod
    def load(
        cls, config: ModelConfig, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> Flow:
        """The flow of a model folder; the estimator's matrix products, nearly all of its work, compute in `dtype`.

        Raises ModelError (see `models.checkpoint`).
        """
        path = config.root / FLOW_FILE
        state = read_state_dict(path)
        try:
            with torch.device("meta"):
                flow: Flow = TokenEncoderFlow(config, state) if config.version == 2 else DiTFlow(config, state)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            detail = f"no value for {error}" if isinstance(error, KeyError) else str(error)
            raise ModelError("model_config_invalid", f"{config.root}: flow section: {detail}") from error
        load_strict(flow, state, path, dtype=torch.float32)
        pack(flow)
        lower_precision(flow.decoder.estimator, dtype, device)
        flow.dtype = dtype
        return flow.to(device)

    def _build_common(self, flow: Any, config: ModelConfig, estimator: nn.Module) -> None:
        mels = flow["output_size"]
        self.lookahead = config.pre_lookahead_len
        self.mel_ratio = config.token_mel_ratio
        self.chunk = flow["decoder"]["estimator"]["static_chunk_size"]
        if self.chunk != config.chunk_size * self.mel_ratio:
            raise ValueError(f"a chunk of {config.chunk_size} tokens is not one of {self.chunk} frames")
        self.input_embedding = nn.Embedding(flow["vocab_size"], flow["input_size"])
        self.spk_embed_affine_layer = nn.Linear(flow["spk_embed_dim"], mels)
        guidance = _cfm_params(flow["decoder"])["inference_cfg_rate"]
        self.decoder = ConditionalFlowMatching(estimator, mels=mels, guidance=guidance)

    @property
    def device(self) -> torch.device:
        return self.spk_embed_affine_layer.weight.device

    @property
    def estimator_frame_bytes(self) -> int:
        """What the estimator's attention keeps of a stream's frame, over all steps."""
        estimator: Any = self.decoder.estimator
        rows = 2 if self.decoder.guidance else 1
        values = 2 * rows * len(self.decoder.times) * estimator.attention_channels
        return values * self.dtype.itemsize

    @property
    def encoder_frame_bytes(self) -> int:
        """The same of the encoder, per mel frame."""
        return 0

    def use_graphs(self, capture: Capture | None = None, buckets: Sequence[int] = BUCKETS) -> None:
        """From now on the estimator's blocks run as graphs (see `models.flow_graphs`). All are captured here, so that
        nobody has to wait for one later."""
        graphs = FrameGraphs(capture, buckets)
        for module in self.decoder.estimator.modules():
            if isinstance(module, BlockStack):
                module.graphs = graphs
        no_more = torch.zeros(0, dtype=torch.int64), torch.zeros(0, self.decoder.mels)
        speaker = torch.ones(self.spk_embed_affine_layer.in_features)
        for frames in buckets:
            tokens = torch.zeros(frames // self.mel_ratio, dtype=torch.int64)
            self.inference([Piece(tokens, *no_more, speaker)])

    @torch.inference_mode()
    def inference(self, pieces: Sequence[Piece]) -> list[tuple[Tensor, Prefix]]:
        """All pieces in one batch: each one's mel `[mels, mel_ratio * T]` (float32, ln magnitude, 50 Hz) and the prefix
        that the next piece of its stream follows on. Equal to each piece alone, up to rounding.

        Raises ModelError model_input_invalid beyond MAX_FRAMES.
        """
        packings = self._packings(pieces)
        mu = self.means(pieces, packings)
        frames = [span.frames for span in packings[-1].spans]
        speakers = self.speaker(to_device(torch.stack([piece.embedding for piece in pieces]), self.device))
        spk = torch.cat([speaker.expand(n, -1) for speaker, n in zip(speakers, frames, strict=True)])
        prompts = [piece.cond for piece in pieces]
        cond = torch.cat([F.pad(mel, (0, 0, 0, n - len(mel))) for mel, n in zip(prompts, frames, strict=True)])
        mel = self.decoder.solve(mu, spk, to_device(cond, self.device), packings[_SOLVER:])
        kept = zip(*(packing.memories() for packing in packings), strict=True)
        return [(part.T.contiguous(), Prefix(memories)) for part, memories in zip(mel.split(frames), kept, strict=True)]

    def means(self, pieces: Sequence[Piece], packings: Sequence[Packing] | None = None) -> Tensor:
        """Mean frames `mu: [N, mels]` of all pieces, one after the other."""
        packings = packings or self._packings(pieces)
        tokens = to_device(torch.cat([part for piece in pieces for part in (piece.tokens, piece.ahead)]), self.device)
        parts = self.input_embedding(tokens.clamp(min=0))[None].split([len(p.tokens) + len(p.ahead) for p in pieces], 1)
        return self._means(parts, [len(piece.ahead) for piece in pieces], packings[_TOKENS], packings[_FRAMES])[0]

    def speaker(self, embedding: Tensor) -> Tensor:
        """`[B, 192]` x-vectors -> `[B, mels]`."""
        return self.spk_embed_affine_layer(F.normalize(embedding, dim=1))

    def _packings(self, pieces: Sequence[Piece]) -> list[Packing]:
        packings = []
        for index in range(_SOLVER + self.decoder.passes):
            rate = 1 if index == _TOKENS else self.mel_ratio
            spans = [
                Span(
                    rate * len(piece.tokens),
                    piece.prefix.memory(index) if piece.prefix is not None else None,
                    piece.window if index >= _SOLVER else None,
                    rate * piece.expected,
                )
                for piece in pieces
            ]
            packings.append(Packing(spans, self.chunk * rate // self.mel_ratio))
        return packings

    @abstractmethod
    def _means(self, parts: Sequence[Tensor], ahead: Sequence[int], tokens: Packing, frames: Packing) -> Tensor:
        """`parts`: per piece `[1, T + ahead, C]` embedded tokens -> `[1, N, mels]`."""


class TokenEncoderFlow(Flow):
    """CosyVoice 2 (upstream: CausalMaskedDiffWithXvec): conformer encoder, U-Net estimator."""

    def __init__(self, config: ModelConfig, state: dict[str, Tensor]) -> None:
        super().__init__()
        flow = config.flow
        encoder, unet = flow["encoder"], flow["decoder"]["estimator"]
        if len(unet["channels"]) != 1:
            raise ValueError(f"channels {unet['channels']} of the estimator: only one resolution is causal")
        channels = unet["channels"][0]
        estimator = UNetEstimator(
            channels_in=unet["in_channels"],
            channels_out=unet["out_channels"],
            channels=channels,
            heads=unet["num_heads"],
            head_width=unet["attention_head_dim"],
            blocks=unet["n_blocks"],
            mid_blocks=unet["num_mid_blocks"],
        )
        self._build_common(flow, config, estimator)
        self.encoder = UpsampleConformerEncoder(
            channels_in=flow["input_size"],
            channels=encoder["output_size"],
            heads=encoder["attention_heads"],
            hidden=encoder["linear_units"],
            blocks=encoder["num_blocks"],
            # The rest is fixed in upstream's code, not in the yaml: the checkpoint tells.
            up_blocks=_count(state, "encoder.up_encoders."),
            lookahead=config.pre_lookahead_len,
            lookahead_kernel=_shape(state, "encoder.pre_lookahead_layer.conv2.weight", 3)[2],
            stride=config.token_mel_ratio,
            up_kernel=_shape(state, "encoder.up_layer.conv.weight", 3)[2],
        )
        self.encoder_proj = nn.Linear(encoder["output_size"], flow["output_size"])

    @property
    def encoder_frame_bytes(self) -> int:
        encoder: Any = self.encoder
        per_token = len(encoder.encoders) / self.mel_ratio + len(encoder.up_encoders)
        return int(2 * per_token * self.encoder_proj.weight.nbytes / len(self.encoder_proj.weight))

    def _means(self, parts: Sequence[Tensor], ahead: Sequence[int], tokens: Packing, frames: Packing) -> Tensor:
        return self.encoder_proj(self.encoder(parts, ahead, tokens, frames))


class DiTFlow(Flow):
    """Fun-CosyVoice 3 (upstream: CausalMaskedDiffWithDiT): token embeddings with look-ahead, DiT estimator."""

    def __init__(self, config: ModelConfig, state: dict[str, Tensor]) -> None:
        super().__init__()
        flow = config.flow
        dit, pre = flow["decoder"]["estimator"], flow["pre_lookahead_layer"]
        position = "decoder.estimator.input_embed.conv_pos_embed.conv1.0.weight"
        time = "decoder.estimator.time_embed.time_mlp.0.weight"
        estimator = DiTEstimator(
            mels=dit["mel_dim"],
            conditioning=dit["mel_dim"] + dit["mu_dim"] + dit["spk_dim"],
            channels=dit["dim"],
            depth=dit["depth"],
            heads=dit["heads"],
            head_width=dit["dim_head"],
            hidden=dit["dim"] * dit["ff_mult"],
            # The rest is fixed in upstream's code, not in the yaml: the checkpoint tells.
            time_width=_shape(state, time, 2)[1],
            position_kernel=_shape(state, position, 3)[2],
            position_group=_shape(state, position, 3)[1],
        )
        self._build_common(flow, config, estimator)
        self.pre_lookahead_layer = PreLookahead(
            pre["in_channels"],
            pre["channels"],
            config.pre_lookahead_len,
            _shape(state, "pre_lookahead_layer.conv2.weight", 3)[2],
        )

    def _means(self, parts: Sequence[Tensor], ahead: Sequence[int], tokens: Packing, frames: Packing) -> Tensor:
        return self.pre_lookahead_layer(parts, ahead, tokens).repeat_interleave(self.mel_ratio, dim=1)


def _cfm_params(decoder: Any) -> Any:
    """The solver's options; upstream wraps them in `omegaconf.DictConfig(content=...)`."""
    params = decoder["cfm_params"]
    params = params.get("content", params)
    if (params["solver"], params["t_scheduler"]) != ("euler", "cosine"):
        raise ValueError(f"solver {params['solver']} with {params['t_scheduler']} times is not supported")
    return params


def _count(state: dict[str, Tensor], prefix: str) -> int:
    """How many numbered modules a checkpoint has under `prefix`."""
    return len({key[len(prefix) :].split(".")[0] for key in state if key.startswith(prefix)})


def _shape(state: dict[str, Tensor], key: str, dimensions: int) -> torch.Size | tuple[int, ...]:
    """The shape of a tensor, or ones: then strict loading tells what is wrong with it."""
    if key in state and state[key].dim() == dimensions:
        return state[key].shape
    return (1,) * dimensions
