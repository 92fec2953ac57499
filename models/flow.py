"""The flow of CosyVoice 2 and 3: speech tokens and a voice's prompt to a mel spectrogram."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.cfm import ConditionalFlowMatching
from models.checkpoint import load_strict, read_state_dict
from models.config import ModelConfig
from models.errors import ModelError
from models.flow_dit import DiTEstimator
from models.flow_encoder import UpsampleConformerEncoder
from models.flow_layers import PreLookahead, attention_mask, pack, zero_padding
from models.flow_unet import UNetEstimator

FLOW_FILE = "flow.pt"


class Flow(nn.Module):
    """Both versions behind one interface: encode tokens to mean frames, then solve the flow around them."""

    input_embedding: nn.Embedding
    spk_embed_affine_layer: nn.Linear
    decoder: ConditionalFlowMatching
    lookahead: int  # tokens
    mel_ratio: int  # mel frames per token
    chunk: int  # mel frames per streaming chunk of the estimator

    @classmethod
    def load(cls, config: ModelConfig, *, device: torch.device | str = "cpu") -> Flow:
        """The flow of a model folder, float32. Raises ModelError (see `models.checkpoint`)."""
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
        return flow.to(device)

    def _build_common(self, flow: Any, config: ModelConfig, estimator: nn.Module) -> None:
        mels = flow["output_size"]
        self.lookahead = config.pre_lookahead_len
        self.mel_ratio = config.token_mel_ratio
        self.chunk = flow["decoder"]["estimator"]["static_chunk_size"]
        self.input_embedding = nn.Embedding(flow["vocab_size"], flow["input_size"])
        self.spk_embed_affine_layer = nn.Linear(flow["spk_embed_dim"], mels)
        guidance = _cfm_params(flow["decoder"])["inference_cfg_rate"]
        self.decoder = ConditionalFlowMatching(estimator, mels=mels, guidance=guidance)

    @property
    def device(self) -> torch.device:
        return self.spk_embed_affine_layer.weight.device

    @torch.inference_mode()
    def inference(
        self,
        tokens: Tensor,
        prompt_tokens: Tensor,
        prompt_mel: Tensor,
        embedding: Tensor,
        *,
        streaming: bool,
        finalize: bool,
    ) -> Tensor:
        """The mel of one utterance after its prompt: `[80, M']` float32, ln magnitude, 50 Hz.

        `tokens: [T]`, `prompt_tokens: [P]` ints; `prompt_mel: [M, 80]`; `embedding: [192]`. `streaming`: attend
        chunk by chunk; not `finalize`: the last `lookahead` tokens are context only, M' = 2 (P + T - 3) - M.
        """
        every = torch.cat((prompt_tokens, tokens)).to(self.device, torch.int64)[None]
        mu = self.encode(every, streaming=streaming, finalize=finalize)
        prompt_mel = prompt_mel.to(mu)
        cond = F.pad(prompt_mel, (0, 0, 0, mu.shape[1] - prompt_mel.shape[0]))[None]
        mask = attention_mask(mu.shape[1], self.chunk if streaming else None, like=mu)
        mel = self.decoder.solve(mu, self.speaker(embedding.to(mu)[None]), cond, mask)
        return mel[0, prompt_mel.shape[0] :].T.contiguous()

    def encode(self, tokens: Tensor, *, streaming: bool, finalize: bool, lengths: Tensor | None = None) -> Tensor:
        """Mean frames `mu: [B, M, mels]` of `tokens: [B, T]` int64, prompt first.

        Not `finalize`: the last `lookahead` tokens of each item only colour those before. `lengths: [B]`: tokens per
        item, look-ahead included, when some are padded; what comes out for padding is undefined.
        """
        ahead = 0 if finalize else self.lookahead
        return self._means(self.input_embedding(tokens.clamp(min=0)), ahead, streaming, lengths)

    def speaker(self, embedding: Tensor) -> Tensor:
        """`[B, 192]` x-vectors -> `[B, mels]`."""
        return self.spk_embed_affine_layer(F.normalize(embedding, dim=1))

    @abstractmethod
    def _means(self, embedded: Tensor, ahead: int, streaming: bool, lengths: Tensor | None) -> Tensor:
        """`embedded: [B, T, C]` tokens, `ahead` of them look-ahead -> `[B, mel_ratio * (T - ahead), mels]`."""


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
            chunk=encoder["static_chunk_size"],
        )
        self.encoder_proj = nn.Linear(encoder["output_size"], flow["output_size"])

    def _means(self, embedded: Tensor, ahead: int, streaming: bool, lengths: Tensor | None) -> Tensor:
        return self.encoder_proj(self.encoder(embedded, ahead=ahead, streaming=streaming, lengths=lengths))


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

    def _means(self, embedded: Tensor, ahead: int, streaming: bool, lengths: Tensor | None) -> Tensor:
        mixed = self.pre_lookahead_layer(zero_padding(embedded, lengths))
        return mixed[:, : mixed.shape[1] - ahead].repeat_interleave(self.mel_ratio, dim=1)


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
