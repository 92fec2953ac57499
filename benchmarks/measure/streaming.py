"""What streaming costs: a stream's compute beside one buffered pass, and a late hop's beside an early one's.

Process CPU time on one thread: threads that wait for each other would count as work.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from benchmarks.measure.speakers import voice
from benchmarks.measure.stages import FLOW, VOCODER, watch
from benchmarks.measure.upstream import UpstreamStream
from models.cosyvoice import CosyVoice
from models.flow import Prefix
from models.key_values import KeyValues, Window
from models.packing import Memory
from models.token2wav import Audio, StreamState, Token2Wav, Turn, VoicePrompt

HOPS = (2, 10, 20)
WINDOWS = (20, 4)  # seconds


@dataclass(frozen=True)
class Compute:
    """CPU seconds of `flow` and `vocoder`."""

    flow: float
    vocoder: float

    @property
    def both(self) -> float:
        return self.flow + self.vocoder


@dataclass(frozen=True)
class StreamCompute:
    """One utterance, its voice known before: in one pass, streamed by the engine, streamed in upstream's structure."""

    precision: str
    seconds: float
    buffered: Compute
    streamed: Compute
    upstream: Compute


@dataclass(frozen=True)
class HopCost:
    """CPU seconds per speech token of hop `number` (from 1), which begins `at` seconds into the stream; `early`: of as
    long a hop right after the first one."""

    number: int
    at: float
    per_token: float
    early: float


@dataclass(frozen=True)
class Growth:
    """`window`: seconds that attention looks back beside the prompt, None: to the begin. `prefix_gb`: what the stream
    keeps at its last hop. `hops`: none where that would not fit into memory."""

    precision: str
    window: int | None
    prefix_gb: float
    hops: tuple[HopCost, ...]

    @property
    def late_to_early(self) -> float:
        """Per token, the last hop over the 2nd."""
        return self.hops[-1].per_token / self.hops[0].per_token

    @property
    def same_size(self) -> float:
        """The last hop over one of its size near the begin."""
        return self.hops[-1].per_token / self.hops[-1].early


def stream_compute(model: CosyVoice, precision: str, seconds: int, rounds: int) -> StreamCompute:
    """Medians of `rounds`, in each of which all three ways are gone."""
    token2wav, prompt = model.token2wav, model.token2wav.prompt(voice(model))
    tokens = _tokens(model, seconds * model.config.token_frame_rate)
    ways: dict[str, Callable[[], object]] = {
        "buffered": lambda: _said(token2wav, token2wav.whole(tokens, prompt, rng=_rng)),
        "streamed": lambda: _stream(token2wav, prompt, tokens),
        "upstream": lambda: _upstream(token2wav, prompt, tokens),
    }
    measured: dict[str, list[Compute]] = {name: [] for name in ways}
    with one_thread(), _remembering(token2wav):
        _said(
            token2wav, Turn(token2wav.new_stream(prompt, rng=_rng), tokens[:60], last=False)
        )  # the voice is known now
        for _ in range(rounds):
            for name, way in ways.items():
                with watch(model) as stopwatch:
                    way()
                measured[name].append(Compute(stopwatch.cpu(FLOW), stopwatch.cpu(VOCODER)))
    medians = {name: _median(computes) for name, computes in measured.items()}
    return StreamCompute(precision, seconds, medians["buffered"], medians["streamed"], medians["upstream"])


def growth(
    model: CosyVoice, precision: str, window: int | None, memory_bytes: int | None, numbers: Sequence[int], repeats: int
) -> Growth:
    """Hops `numbers` (from 1, ascending) of a stream; of each and its successors, `repeats` in all, the least counts.

    What the stream keeps before a hop is not computed but grown: frames of its first hops, repeated. Only their number
    matters to what a hop costs.
    """
    token2wav = with_window(model, window)
    prompt = token2wav.prompt(voice(model))
    starts = hop_starts(token2wav, prompt, max(numbers))
    kept = token2wav.stream_bytes(prompt, starts[-1])
    if memory_bytes is not None and 1.2 * kept > memory_bytes:
        return Growth(precision, window, kept / 1e9, ())
    tokens = _tokens(model, starts[-1] + 4 * (repeats + 1) * token2wav.chunk)
    with one_thread():
        begin = token2wav.new_stream(prompt, rng=_rng, expected_tokens=len(tokens))
        early = _said(token2wav, Turn(begin, tokens, last=False)).state
        hops = []
        for number in numbers:
            state = grown(token2wav, early, number, starts[number - 1])
            here = _hop_cost(token2wav, state, tokens, repeats)
            there = _hop_cost(token2wav, grown(token2wav, early, number, early.offset), tokens, repeats)
            hops.append(HopCost(number, starts[number - 1] / model.config.token_frame_rate, here, there))
    return Growth(precision, window, kept / 1e9, tuple(hops))


def hop_starts(token2wav: Token2Wav, prompt: VoicePrompt, count: int) -> list[int]:
    """Where a stream's first hops begin, in tokens."""
    state, starts = token2wav.new_stream(prompt, rng=_rng), []
    for hops in range(count):
        starts.append(state.offset)
        stop = token2wav.next_hop(replace(state, hops=hops)) - token2wav.lookahead
        state = replace(state, hops=hops + 1, offset=stop)
    return starts


def grown(token2wav: Token2Wav, state: StreamState, number: int, offset: int) -> StreamState:
    """`state`, after a first hop, as it is before hop `number` that begins at token `offset`: its frames repeated, and
    none of its memory shared. There is room for as many tokens as `state` expected."""
    assert state.prefix is not None
    tokens, most = len(state.prompt.tokens), len(state.prompt.tokens) + state.expected
    share = (tokens + offset) / (tokens + state.offset)
    encoder = len(state.prefix.memories) - token2wav.flow.decoder.passes  # its memories come first and see all
    window = token2wav.window_of(state.prompt)
    memories = [
        _grown(memory, round(memory.frames * share), None if index < encoder else window, token2wav.mel_ratio * most)
        for index, memory in enumerate(state.prefix.memories)
    ]
    return replace(state, hops=number - 1, offset=offset, prefix=Prefix(tuple(memories)))


def _grown(memory: Memory, frames: int, window: Window | None, expected: int) -> Memory:
    attended = []
    for first in memory.attended:
        keys, values = (half[:, :, : memory.frames] for half in (first.ring.keys, first.ring.values))
        held = KeyValues.of(keys, values, window)
        while held.frames < frames:
            count = min(memory.frames, frames - held.frames)
            held = held.followed_by(keys[:, :, :count], values[:, :, :count], window, expected)
        attended.append(held)
    return Memory(frames, memory.inputs, tuple(attended))


def _hop_cost(token2wav: Token2Wav, state: StreamState, tokens: list[int], repeats: int) -> float:
    costs = []
    for _ in range(repeats):
        stop = token2wav.next_hop(state)
        began = time.process_time()
        after = _said(token2wav, Turn(state, tokens[:stop], last=False)).state
        costs.append((time.process_time() - began) / (after.offset - state.offset))
        state = replace(after, hops=state.hops)  # hops of one size
    return min(costs)


def _stream(token2wav: Token2Wav, prompt: VoicePrompt, tokens: list[int]) -> None:
    state = token2wav.new_stream(prompt, rng=_rng, expected_tokens=len(tokens))
    while len(tokens) >= token2wav.next_hop(state):
        state = _said(token2wav, Turn(state, tokens, last=False)).state
    _said(token2wav, Turn(state, tokens, last=True))


def _upstream(token2wav: Token2Wav, prompt: VoicePrompt, tokens: list[int]) -> None:
    stream = UpstreamStream(token2wav, prompt, _rng)
    while len(tokens) >= stream.needed:
        stream.hop(tokens)
    stream.rest(tokens)


def _said(token2wav: Token2Wav, turn: Turn) -> Audio:
    (audio,) = token2wav.synthesize([turn])
    if isinstance(audio, Exception):
        raise audio
    return audio


def with_window(model: CosyVoice, seconds: int | None) -> Token2Wav:
    """The same networks, with another window."""
    flow, vocoder = model.token2wav.flow, model.token2wav.vocoder
    chunks = None if seconds is None else round(seconds * model.config.token_frame_rate / model.config.chunk_size)
    return Token2Wav(model.config, flow, vocoder, window_chunks=chunks, voice_bytes=1 << 40)


@contextmanager
def _remembering(token2wav: Token2Wav) -> Iterator[None]:
    before, token2wav.voices.max_bytes = token2wav.voices.max_bytes, 1 << 40
    yield
    token2wav.voices.max_bytes = before


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def _median(computes: list[Compute]) -> Compute:
    return Compute(
        statistics.median(compute.flow for compute in computes),
        statistics.median(compute.vocoder for compute in computes),
    )


def _tokens(model: CosyVoice, count: int) -> list[int]:
    return torch.randint(model.lm.speech_token_size, (count,), generator=_rng(0)).tolist()


def _rng(call: int) -> torch.Generator:
    return torch.Generator().manual_seed(call)
