"""How fast and how faithfully the language model decodes, in each precision, against upstream's structure.

`python -m benchmarks.decode`: tokens per second of a model of the genuine size with random weights (written to a
temporary folder first, 2.6 GB; or give a folder as `--model`). All ways take their steps in turn, so that whatever else
the machine does meets them alike. Then what a reduced precision changes, in the embedded voice, whose weights are
trained, and in that model.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.fidelity import Fidelity, embedded_texts, measure_fidelity
from benchmarks.full_size import shapes, write_folder
from benchmarks.upstream_lm import UpstreamLM, walk_sample
from models.config import EMBEDDED, SamplingConfig, load_config
from models.precision import int8_supported
from models.sampling import Draw, mask_ids, ras_sample_batch
from models.speech_lm import SpeechLM

BATCHES = (1, 2, 4, 8, 16)
TEXT, SPEECH = 50, 125  # tokens that a sequence begins with: a sentence, 5 s of prompt
_BURST = 4
UPSTREAM, EXACT = "upstream", "fp32"


@dataclass(frozen=True)
class Speed:
    """One way of decoding: `way` is upstream's structure, or ours in a precision. `step`: median seconds, sampling
    included; `ratio`: tokens per second to upstream's."""

    way: str
    batch: int
    step: float
    tokens_per_second: float
    ratio: float


@dataclass(frozen=True)
class DecodeReport:
    threads: int
    speeds: tuple[Speed, ...]
    fidelities: tuple[Fidelity, ...]

    def markdown(self) -> str:
        batches = sorted({speed.batch for speed in self.speeds})
        cells = {(s.way, s.batch): f"{s.tokens_per_second:.1f} ({s.ratio:.1f}x)" for s in self.speeds}
        ways = dict.fromkeys(speed.way for speed in self.speeds)
        return "\n".join(
            [
                f"Tokens per second with {self.threads} threads, and how many times upstream's structure that is:",
                "",
                _row("", *(f"batch {batch}" for batch in batches)),
                "|---" * (1 + len(batches)) + "|",
                *(_row(way, *(cells.get((way, batch), "") for batch in batches)) for way in ways),
                "",
                "Against fp32, in nats where it is no share:",
                "",
                _row("", "precision", "tokens", "mean drift", "worst", "KL", "same most probable", "same drawn"),
                "|---" * 8 + "|",
                *(_row(f.model, f.precision, str(f.tokens), *_shares(f)) for f in self.fidelities),
            ]
        )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _shares(f: Fidelity) -> tuple[str, ...]:
    return f"{f.drift:.4f}", f"{f.worst:.3f}", f"{f.divergence:.1e}", f"{f.greedy:.1%}", f"{f.drawn:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a model folder; without it, random weights")
    parser.add_argument("--version", type=int, choices=(2, 3), default=3, help="whose size random weights have")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5, help="of four steps of each way")
    parser.add_argument("--batches", type=lambda text: tuple(map(int, text.split(","))), default=BATCHES)
    parser.add_argument("--sentences", type=int, default=20, help="of the embedded voice, whose fidelity is measured")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with _folder(options.model, options.version) as folder:
        print(measure(folder, options.rounds, options.batches, options.sentences).markdown())


def measure(
    folder: Path, rounds: int = 5, batches: Sequence[int] = BATCHES, sentences: int = 20, steps: int = 30
) -> DecodeReport:
    """The report on the language model in `folder`; `steps`: tokens for each of two texts of its fidelity."""
    reduced = {name: dtype for name, dtype in precisions().items() if name != EXACT}
    speeds = measure_speed(folder, rounds, batches)
    texts = [list(range(start, start + TEXT)) for start in (100, 200)]
    trained = measure_fidelity(EMBEDDED, "embedded voice", embedded_texts(sentences), reduced, steps=400)
    return DecodeReport(
        torch.get_num_threads(),
        speeds,
        (*trained, *measure_fidelity(folder, folder.name, texts, reduced, steps=steps)),
    )


def precisions() -> dict[str, torch.dtype]:
    """Those that this processor computes in, by name."""
    eight_bits = {"int8": torch.int8} if int8_supported() else {}
    return {EXACT: torch.float32, "bf16": torch.bfloat16, **eight_bits}


def measure_speed(folder: Path, rounds: int, batches: Sequence[int]) -> tuple[Speed, ...]:
    """Every round takes a few steps of each way, one after the other as in a service."""
    config = load_config(folder)
    ways: dict[tuple[str, int], Callable[[], None]] = {}
    for name, dtype in precisions().items():
        batch = _Batch(SpeechLM.load(config, dtype=dtype), max(batches), config.sampling)
        if name == EXACT:
            ways[UPSTREAM, 1] = _Upstream(UpstreamLM(config), batch.inputs, batch.stop_ids, config.sampling).step
        ways |= {(name, size): partial(batch.step, size) for size in batches}
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in ways}
    for step in ways.values():
        step()  # first calls read weights and choose kernels
    for _ in range(rounds):
        for key, step in ways.items():
            for _ in range(_BURST):
                began = time.perf_counter()
                step()
                seconds[key].append(time.perf_counter() - began)
    medians = {key: statistics.median(values) for key, values in seconds.items()}
    base = medians[UPSTREAM, 1]
    return tuple(Speed(way, size, step, size / step, size * base / step) for (way, size), step in medians.items())


class _Batch:
    """Sequences in one cache, of which the first few take a step."""

    def __init__(self, lm: SpeechLM, size: int, sampling: SamplingConfig) -> None:
        self._lm = lm
        self._sampling = sampling
        self.stop_ids = lm.stop_ids
        text, speech = (torch.arange(count).mul(7).tolist() for count in (TEXT, SPEECH))
        self.inputs = lm.build_input(text, speech)
        self._cache = lm.new_cache(size)
        lm.extend(self._cache, self._cache.add(), self.inputs)
        for _ in range(size - 1):  # the same again, without the time of a prefill
            slot = self._cache.add()
            for storage in (*self._cache.keys, *self._cache.values):
                storage[slot] = storage[0]
            self._cache.advance(slot, len(self.inputs))
        self._tokens: list[list[int]] = [[1] for _ in range(size)]
        self._generators = [torch.Generator().manual_seed(row) for row in range(size)]

    def step(self, size: int) -> None:
        tokens = self._tokens[:size]
        logp = self._lm.decode(self._cache, torch.tensor([row[-1] for row in tokens]))
        draws = [Draw(row, generator, self.stop_ids) for row, generator in zip(tokens, self._generators, strict=False)]
        for row, token in zip(tokens, ras_sample_batch(logp, draws, self._sampling), strict=True):
            if isinstance(token, Exception):
                raise token
            row.append(token)


class _Upstream:
    """One sequence, in upstream's structure."""

    def __init__(self, lm: UpstreamLM, inputs: Tensor, stop_ids: range, sampling: SamplingConfig) -> None:
        self._lm = lm
        self._stop_ids = stop_ids
        self._sampling = sampling
        self._tokens = [1]
        self._generator = torch.Generator().manual_seed(0)
        lm.prefill(inputs)

    def step(self) -> None:
        logp = mask_ids(self._lm.step(self._tokens[-1]), self._stop_ids)
        self._tokens.append(walk_sample(logp, self._tokens, self._sampling, self._generator))


@contextmanager
def _folder(model: Path | None, version: int) -> Iterator[Path]:
    if model is not None:
        yield model
        return
    with tempfile.TemporaryDirectory(prefix="cosyserve-") as scratch:
        root = Path(scratch) / f"full-{version}"
        write_language_model(version, root)
        yield root


def write_language_model(version: int, root: Path) -> None:
    """A folder of the genuine size that holds the language model alone, with random weights."""
    write_folder(version, root)
    generator = torch.Generator().manual_seed(0)
    state = {key: torch.empty(shape) for key, shape in shapes(version)["llm"].items()}
    for key, weight in state.items():
        if key.endswith("norm.weight"):
            weight.fill_(1.0)
        else:
            weight.normal_(std=0.02, generator=generator)
    torch.save(state, root / "llm.pt")


if __name__ == "__main__":
    main()
