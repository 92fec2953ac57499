"""The velocity estimator of the CosyVoice 2 flow: a causal U-Net of residual convolutions and transformer blocks.

Equal to upstream's CausalConditionalDecoder (one resolution: no down-sampling), but time-major throughout, and with
everything that depends only on time or only on the conditioning taken out of the step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from models.cfm import TimeConditioning
from models.flow_graphs import BlockStack
from models.flow_layers import CausalConv, Linear, SelfAttention, mish, product, sinusoids
from models.packing import Packing

_KERNEL = 3
_TIME_FACTOR = 4  # width of the time embedding over the U-Net's channels
_FEED_FORWARD_FACTOR = 4


class UNetEstimator(nn.Module):
    """Velocity of the flow; see `models.cfm.Estimator`."""

    def __init__(
        self,
        *,
        channels_in: int,
        channels_out: int,
        channels: int,
        heads: int,
        head_width: int,
        blocks: int,
        mid_blocks: int,
    ) -> None:
        super().__init__()
        time = channels * _TIME_FACTOR
        self.channels_in = channels_in
        self.attention_channels = (2 + mid_blocks) * blocks * heads * head_width  # of all layers

        def stage(resnet: ResnetBlock, *convs: CausalConv) -> Stage:
            return Stage(resnet, [TransformerBlock(channels, heads, head_width) for _ in range(blocks)], *convs)

        def conv() -> CausalConv:
            return CausalConv(channels, channels, _KERNEL)

        first = InputResnetBlock(channels_in, channels_out, channels, time)
        self.time_mlp = TimeEmbedding(channels_in, time)
        self.down_blocks = nn.ModuleList([stage(first, conv())])
        self.mid_blocks = nn.ModuleList(stage(ResnetBlock(channels, channels, time)) for _ in range(mid_blocks))
        self.up_blocks = nn.ModuleList([stage(ResnetBlock(2 * channels, channels, time), conv())])
        self.final_block = CausalBlock(channels, channels)
        self.final_proj = CausalConv(channels, channels_out, 1)

    def time_conditioning(self, t: Tensor) -> list[Tensor]:
        """`t: [S]` in 0..1 -> per residual block, in order of use, `[S, 1, C]`."""
        embedding = mish(self.time_mlp(sinusoids(t, self.channels_in)))[:, None]
        stages: Iterable[Any] = (*self.down_blocks, *self.mid_blocks, *self.up_blocks)
        return [stage.resnet.mlp["1"](embedding) for stage in stages]

    def condition(self, mu: Tensor, spk: Tensor, cond: Tensor, packing: Packing) -> tuple[Tensor, ...]:
        first: Any = self.down_blocks[0]
        return first.resnet.condition(torch.cat((mu, spk, cond), dim=-1), packing)

    def forward(self, x: Tensor, conditioning: tuple[Tensor, ...], time: TimeConditioning, packing: Packing) -> Tensor:
        times = iter(time)
        down: Any = self.down_blocks[0]
        up: Any = self.up_blocks[0]
        x = skip = down.attend(down.resnet(x, conditioning, next(times), packing), packing)
        x = down.conv(x, packing)
        for mid in self.mid_blocks:
            x = mid(x, next(times), packing)
        x = up(torch.cat((x, skip), dim=-1), next(times), packing)
        return self.final_proj(self.final_block(up.conv(x, packing), packing), packing)


class Stage(nn.ModuleList):
    """A residual block, its transformer blocks and, in the outer stages, a convolution that the caller applies."""

    def __init__(self, resnet: ResnetBlock, transformers: list[TransformerBlock], *convs: CausalConv) -> None:
        super().__init__([resnet, BlockStack(transformers), *convs])

    @property
    def resnet(self) -> nn.Module:
        return self[0]

    @property
    def conv(self) -> nn.Module:
        return self[2]

    def attend(self, x: Tensor, packing: Packing) -> Tensor:
        return self[1](x, packing)

    def forward(self, x: Tensor, time: Tensor, packing: Packing) -> Tensor:
        return self.attend(self.resnet(x, time, packing), packing)


class TimeEmbedding(nn.Module):
    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(channels_in, channels)
        self.linear_2 = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(F.silu(self.linear_1(x)))


class CausalBlock(nn.Module):
    """Convolution, LayerNorm, Mish."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        # Upstream transposes between the two; the keys 0 and 2 are the checkpoint's.
        self.block = nn.ModuleDict({"0": CausalConv(channels_in, channels, _KERNEL), "2": nn.LayerNorm(channels)})

    def forward(self, x: Tensor, packing: Packing) -> Tensor:
        return self.activate(self.block["0"](x, packing))

    def activate(self, x: Tensor) -> Tensor:
        return mish(self.block["2"](x))


class ResnetBlock(nn.Module):
    """Two causal blocks with the time added between them, around a 1x1 shortcut."""

    def __init__(self, channels_in: int, channels: int, time: int) -> None:
        super().__init__()
        self.mlp = nn.ModuleDict({"1": nn.Linear(time, channels)})
        self.block1 = CausalBlock(channels_in, channels)
        self.block2 = CausalBlock(channels, channels)
        self.res_conv = CausalConv(channels_in, channels, 1)

    def forward(self, x: Tensor, time: Tensor, packing: Packing) -> Tensor:
        return self.block2(self.block1(x, packing) + time, packing) + self.res_conv(x, packing)


class InputResnetBlock(ResnetBlock):
    """The first residual block: its input is `[x | fixed]`, of which the fixed part is convolved once per mel."""

    def __init__(self, channels_in: int, varying: int, channels: int, time: int) -> None:
        super().__init__(channels_in, channels, time)
        self.block1.block["0"] = SplitConv(channels_in, varying, channels, _KERNEL)
        self.res_conv = SplitConv(channels_in, varying, channels, 1)

    def condition(self, fixed: Tensor, packing: Packing) -> tuple[Tensor, ...]:
        """`fixed: [R, N, channels_in - varying]` -> its share of both convolutions, biases included."""
        convs: tuple[Any, Any] = self.block1.block["0"], self.res_conv
        return tuple(conv.fixed(fixed, packing) for conv in convs)

    def forward(  # type: ignore[override]
        self, x: Tensor, conditioning: Sequence[Tensor], time: Tensor, packing: Packing
    ) -> Tensor:
        hidden, shortcut = conditioning
        h = self.block1.activate(self.block1.block["0"](x, packing) + hidden) + time
        return self.block2(h, packing) + (self.res_conv(x, packing) + shortcut)


class SplitConv(CausalConv):
    """A causal convolution over `[x | fixed]` as the sum of two: `forward(x)` and, with the bias, `fixed(fixed)`."""

    def __init__(self, channels_in: int, varying: int, channels_out: int, kernel: int) -> None:
        super().__init__(channels_in, channels_out, kernel)
        self.varying = varying

    def pack(self) -> None:
        weight = self.weight.detach().permute(0, 2, 1)
        parts = weight[..., : self.varying], weight[..., self.varying :]
        varying, fixed = (nn.Parameter(part.flatten(1).contiguous(), requires_grad=False) for part in parts)
        self.weight, self.weight_fixed = varying, fixed

    def of_windows(self, x: Tensor) -> Tensor:
        return product(x, self.weight)

    def fixed(self, x: Tensor, packing: Packing) -> Tensor:
        low = packing.windows(x.to(self.weight.dtype), self.kernel)
        return product(low, self.weight_fixed, self.bias).to(x.dtype)


class TransformerBlock(nn.Module):
    """Self-attention and GELU feed-forward, pre-normalised (diffusers: BasicTransformerBlock); see BlockStack."""

    def __init__(self, channels: int, heads: int, head_width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(channels)
        self.attn1 = SelfAttention(channels, heads, head_width, bias=False)
        self.norm3 = nn.LayerNorm(channels)
        self.ff = FeedForward(channels, channels * _FEED_FORWARD_FACTOR)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.attn1.project(self.norm1(x))

    def mix(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.attn1.to_out[0](attended)
        return x + self.ff(self.norm3(x))


class FeedForward(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.net = nn.ModuleDict({"0": Projection(channels, hidden), "2": Linear(hidden, channels)})

    def forward(self, x: Tensor) -> Tensor:
        return self.net["2"](F.gelu(self.net["0"](x)))


class Projection(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.proj = Linear(channels, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x)
