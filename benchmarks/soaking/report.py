"""A soak as Markdown and as JSON."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.measure.machine import Machine
from benchmarks.scaling.summary import table
from benchmarks.soaking.processes import Sample
from benchmarks.soaking.verdict import Line, Rest

SHOWN = 20  # faults


@dataclasses.dataclass(frozen=True)
class Report:
    """`flat`: the greatest growth; `differences`: by request, of each answer the greatest to the answer alone;
    `outcomes`: the service's own count, by outcome; `faults`: sentences, none if the soak was passed."""

    machine: Machine
    settings: Mapping[str, object]
    flat: float
    seconds: float
    asked: Mapping[str, int]
    differences: Mapping[str, Sequence[float]]
    outcomes: Mapping[str, float]
    lines: Sequence[Line]
    rests: Sequence[Rest]
    samples: Sequence[Sample]
    faults: Sequence[str]

    @property
    def passed(self) -> bool:
        return not self.faults

    def write(self, path: Path) -> None:
        values = {**dataclasses.asdict(self), "passed": self.passed}
        path.write_text(json.dumps(values, indent=1, default=str) + "\n", "utf-8")

    def markdown(self) -> str:
        settings = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in Counter(self.asked).most_common())
        outcomes = ", ".join(f"{count:.0f} {outcome}" for outcome, count in sorted(self.outcomes.items()))
        idle = [rest.idle_after for rest in self.rests if rest.idle_after is not None]
        machine = self.machine
        parts = [
            f"# Soak: {'passed' if self.passed else 'FAILED'}",
            f"{sum(self.asked.values()):,} requests in {self.seconds:.0f} s ({settings}): {kinds}.",
            f"{machine.processor}, {machine.cores} cores, load {machine.load:.1f}, torch {machine.torch}.",
            "The service counted, besides those that it refused before they were counted: " + outcomes + ".",
            "## Held at rest, after the warm-up",
            table([_row(line) for line in self.lines]) if self.lines else "No round came to its end.",
            f"Flat: the line through all rounds grows by at most {self.flat:.0%}, by one thing, or, for a cache, "
            "by less than what it keeps of one voice. At rest, at most "
            f"{max(idle, default=0):.1f} s after the last client of a round had gone.",
            "## The same request alone",
            self._sameness(),
        ]
        if self.faults:
            parts += ["## Faults", "\n".join(f"* {count} x {fault}" for fault, count in _counted(self.faults))]
        return "\n\n".join(parts) + "\n"

    def _sameness(self) -> str:
        found = np.array([value for values in self.differences.values() for value in values])
        if not found.size:
            return "Nothing was compared."
        rows = [
            {
                "request": name,
                "answers": str(len(values)),
                "equal to the bit": f"{np.mean(np.array(values) == 0):.0%}",
                "greatest difference": f"{max(values):.1e}" if max(values) else "0",
            }
            for name, values in sorted(self.differences.items())
        ]
        different = found[found > 0]
        summary = f"{found.size:,} answers, {np.mean(found == 0):.1%} of them equal to the bit."
        if different.size:
            summary += f" The others differ by up to {different.max():.1e} of full scale at their worst sample, "
            summary += f"half of them by under {np.median(different):.1e}."
        return summary + "\n\n" + table(rows)


def _counted(faults: Sequence[str]) -> list[tuple[str, int]]:
    return Counter(faults).most_common(SHOWN)


def _row(line: Line) -> dict[str, str]:
    digits = 0 if line.name.endswith(("threads", "fds")) else 1
    return {
        "held": line.name,
        "first": f"{line.first:.{digits}f}",
        "last": f"{line.last:.{digits}f}",
        "least": f"{line.least:.{digits}f}",
        "most": f"{line.most:.{digits}f}",
        "growth": f"{line.growth:+.1%}",
        "flat": "yes" if line.flat else "NO",
    }
