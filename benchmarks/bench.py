"""The engine's claims about speed, measured in one run: `python -m benchmarks.bench`, `make bench`.

Parts: `embedded` (the voice that comes along: closed and open loops, streaming), `decode` (the language model at full
size), `full-2`, and, when asked for, `full-3` (CosyVoice 2 and 3 at their genuine size, with random weights that are
written first, 3 and 4 GB, unless `--folder` names a model). Each runs in a process of its own, beside upstream's
structure, and everything is said as a ratio of two things that were measured in it. Progress goes to stderr;
bench.json, bench.md and plots to out/bench.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from benchmarks import decode
from benchmarks.full_size import write_model
from benchmarks.measure.charts import draw_all
from benchmarks.measure.machine import Machine
from benchmarks.measure.model_report import Effort, ModelReport, measure_model
from benchmarks.measure.report import Bench
from models.config import EMBEDDED
from runners.settings import available_cores

EMBEDDED_VOICE, DECODE, FULL_2, FULL_3 = PARTS = ("embedded", "decode", "full-2", "full-3")
_USUAL = (
    EMBEDDED_VOICE,
    DECODE,
    FULL_2,
)  # a quarter of an hour on two cores; full-3 takes as long again
_VERSIONS = {DECODE: 3, FULL_2: 2, FULL_3: 3}

Result = TypeVar("Result")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be repeated")
    parser.add_argument("--quick", action="store_true", help="the embedded voice alone, and less of it: 2 minutes")
    parser.add_argument("--folder", action="append", default=[], metavar="PART=DIR", help="a model for a part")
    parser.add_argument("--clients", type=_numbers, help="of the closed loops; default 1,4,8,16, quick 1,4,16")
    parser.add_argument("--threads", type=int, default=min(2, available_cores()))
    parser.add_argument("--out", type=Path, default=Path("out/bench"))
    options = parser.parse_args(arguments)
    parts = options.only or ([EMBEDDED_VOICE] if options.quick else _USUAL)
    folders = {part: Path(folder) for part, _, folder in (item.partition("=") for item in options.folder)}
    if unknown := set(folders) - set(PARTS):
        parser.error(f"--folder: no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    clients = options.clients or ((1, 4, 16) if options.quick else (1, 4, 8, 16))
    voice = Effort(options.threads, clients=clients, requests=2, rounds=2)
    bench = measure(parts, folders, voice, Effort(options.threads))
    print(publish(bench, options.out), end="")


def publish(bench: Bench, folder: Path) -> str:
    """Write bench.json, bench.md and the plots; the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    bench.write(folder / "bench.json")
    text = bench.markdown(draw_all(bench, folder))
    (folder / "bench.md").write_text(text, "utf-8")
    return text


def measure(parts: Sequence[str], folders: Mapping[str, Path], voice: Effort, full: Effort) -> Bench:
    """`parts`, in an order of its own; `folders`: those that exist; `voice`: the effort for the embedded voice."""
    machine = Machine.of(full.threads)
    models: list[ModelReport] = []
    decoding = None
    if EMBEDDED_VOICE in parts:
        folder = folders.get(EMBEDDED_VOICE, EMBEDDED)
        models.append(_alone(partial(measure_model, EMBEDDED_VOICE, folder, voice)))
    # The language model is a part of Fun-CosyVoice 3's folder, which is therefore written once.
    for version, wanted in (
        (3, [part for part in (DECODE, FULL_3) if part in parts]),
        (2, [FULL_2] * (FULL_2 in parts)),
    ):
        missing = [part for part in wanted if part not in folders]
        with _written(version, bool(missing)) as written:
            for part in wanted:
                folder = folders.get(part, written)
                if part == DECODE:
                    decoding = _alone(partial(_decode, folder, full.threads))
                else:
                    models.append(_alone(partial(measure_model, part, folder, full)))
    return Bench(machine, tuple(models), decoding)


def _decode(folder: Path, threads: int) -> decode.DecodeReport:
    import torch

    torch.set_num_threads(threads)
    _tell("decode: the language model")
    return decode.measure(folder, rounds=8, sentences=5)


def _alone(function: Callable[[], Result]) -> Result:
    """In a process of its own, whose memory ends with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function).result()


@contextmanager
def _written(version: int, needed: bool) -> Iterator[Path]:
    """A folder of the genuine size, if it is needed."""
    with tempfile.TemporaryDirectory(prefix="cosyserve-") as scratch:
        root = Path(scratch) / f"full-{version}"
        if needed:
            _tell(f"full-{version}: writing random weights")
            _alone(partial(write_model, version, root))
        yield root


def _tell(what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


if __name__ == "__main__":
    main()
