"""Is a GPU used right, and how well: `python -m benchmarks.gpu MODEL_DIR`, under ten minutes.

First what the device computes is compared with the CPU's float32, graphs with single launches, overlap with turns. Then
the engine's targets are measured in every mode. Without MODEL_DIR, random weights of Fun-CosyVoice 3's size are written
first (4 GB). What fails leaves the rest standing; the exit status is 1 if a check did not pass or a part broke. A
target that is missed is only said. `--device cpu --quick` is a rehearsal on any machine. out/gpu/gpu.json has it all.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from benchmarks.full_size import write_model
from benchmarks.measure.device_checks import Check, Checks, load_usual
from benchmarks.measure.device_load import Effort, Mode, Target, measure
from benchmarks.measure.machine import Machine
from runners.settings import available_cores

TURNS = Mode("in turns", graphs=False, overlap=False)
OVERLAP = Mode("overlap", graphs=False, overlap=True)
GRAPHS = Mode("graphs", graphs=True, overlap=False)
BOTH = Mode("graphs and overlap", graphs=True, overlap=True)
QUICK = Effort(tokens=40, alone=1, streams=2, many=2, rounds=1)


@dataclass(frozen=True)
class Broken:
    """A part that ended with an exception, or was not begun as there was no time left."""

    part: str
    error: str


@dataclass(frozen=True)
class Report:
    """`checks`: by name. `skipped`: why some parts are not there."""

    device: str
    machine: Machine
    checks: dict[str, Check]
    targets: tuple[Target, ...]
    broken: tuple[Broken, ...]
    skipped: str
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.broken and all(check.passed for check in self.checks.values())

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**asdict(self), "passed": self.passed}, indent=2), "utf-8")

    def text(self) -> str:
        lines = [f"{self.device}, {self.machine.processor}, torch {self.machine.torch}; {self.seconds:.0f} s"]
        for name, check in self.checks.items():
            verdict = "ok" if check.passed else "WRONG"
            lines.append(f"{verdict:6} {name:40} {check.error:10.2e} (at most {check.tolerance:g})")
        for one in self.targets:
            bound = f"at {'least' if one.at_least else 'most'} {one.target:g}"
            verdict = "met" if one.met else "missed"
            lines.append(f"{verdict:6} {f'{one.what}, {one.mode}':46} {one.figure:10.3f} ({bound})")
        lines += [f"BROKEN {one.part}: {one.error}" for one in self.broken]
        if self.skipped:
            lines.append(self.skipped)
        return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?", help="a model folder; without it, random weights")
    parser.add_argument("--device", default="cuda", help="cuda (the default), cuda:1, cpu")
    parser.add_argument("--quick", action="store_true", help="as little as shows that everything runs")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no further part is begun")
    parser.add_argument("--out", type=Path, default=Path("out/gpu"))
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device here; --device cpu --quick rehearses on the CPU")
    with _folder(options.model) as folder:
        report = run(folder, device, QUICK if options.quick else Effort(), 60 * options.minutes)
    report.write(options.out / "gpu.json")
    print(report.text(), end="")
    return 0 if report.passed else 1


def run(folder: Path, device: torch.device, effort: Effort, seconds: float) -> Report:
    """All parts that are begun within so many seconds, each whatever became of the others."""
    torch.set_num_threads(available_cores())
    torch.backends.cudnn.allow_tf32 = False  # as in the service
    began = time.monotonic()
    checks: dict[str, Check] = {}
    targets: list[Target] = []
    broken: list[Broken] = []

    def part(name: str, work: Callable[[], None]) -> None:
        if time.monotonic() - began > seconds:
            broken.append(Broken(name, "no time was left for it"))
            return
        print(f"{time.strftime('%H:%M:%S')} {name}", file=sys.stderr, flush=True)
        try:
            work()
        except Exception as error:
            traceback.print_exc()
            broken.append(Broken(name, f"{type(error).__name__}: {error}"))

    comparisons = Checks(folder, device)
    for name, check in comparisons.named().items():
        part(name, lambda name=name, check=check: checks.update({name: check()}))  # type: ignore[misc]
    del comparisons  # its models leave the device
    cuda = device.type == "cuda"
    # What matters most comes first, should time run out. Each with a model of its own: graphs stay in it.
    for mode in (BOTH, TURNS, GRAPHS, OVERLAP) if cuda else (OVERLAP,):
        part(f"load, {mode.name}", lambda mode=mode: measure(load_usual(folder, device), mode, effort, targets.append))  # type: ignore[misc]
    return Report(
        torch.cuda.get_device_name(device) if cuda else str(device),
        Machine.of(torch.get_num_threads()),
        checks,
        tuple(targets),
        tuple(broken),
        "" if cuda else "CUDA graphs and streams were not tried: this is no CUDA device.",
        time.monotonic() - began,
    )


@contextmanager
def _folder(model: Path | None) -> Iterator[Path]:
    if model is not None:
        yield model
        return
    with tempfile.TemporaryDirectory(prefix="cosyserve-") as scratch:
        root = Path(scratch) / "full-3"
        print("writing random weights of Fun-CosyVoice 3's size", file=sys.stderr, flush=True)
        write_model(3, root)
        yield root


if __name__ == "__main__":
    sys.exit(main())
