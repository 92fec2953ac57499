"""What a run comes to, as one row of a table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.scaling.pods import Outcome
from benchmarks.scaling.simulation import Run

FAILED_AT_MOST = 0.001
DRY_AT_MOST = 0.01


@dataclass(frozen=True)
class Summary:
    """Figures of one run. TTFA percentiles are over all requests, seconds; one that failed before any audio counts as
    infinite. `dry_share`: of the streams that began, those whose listener ran dry."""

    requests: int
    mean_pods: float
    max_pods: int
    max_queue: int
    ttfa_p50: float
    ttfa_p95: float
    ttfa_p99: float
    rejected: int
    timed_out: int
    dry_share: float
    cold_hits: int
    pod_hours: float

    @classmethod
    def of(cls, run: Run, duration: float) -> Summary:
        requests = run.requests
        waits = [
            request.first_audio - request.arrived if request.first_audio is not None else np.inf for request in requests
        ]
        # "lower": between a finite wait and an infinite one there is nothing to interpolate.
        percentiles = np.percentile(waits, (50, 95, 99), method="lower") if waits else np.zeros(3)
        began = [request for request in requests if request.first_audio is not None]
        return cls(
            requests=len(requests),
            mean_pods=run.pod_seconds / duration,
            max_pods=run.max_pods,
            max_queue=run.max_queue,
            ttfa_p50=float(percentiles[0]),
            ttfa_p95=float(percentiles[1]),
            ttfa_p99=float(percentiles[2]),
            rejected=sum(request.outcome is Outcome.REJECTED for request in requests),
            timed_out=sum(request.outcome is Outcome.TIMED_OUT for request in requests),
            dry_share=sum(request.dry for request in began) / max(1, len(began)),
            cold_hits=sum(request.cold for request in requests),
            pod_hours=run.pod_seconds / 3600,
        )

    def within(self, ttfa_p95: float) -> bool:
        """Whether users are served: the bound holds, hardly any request fails, hardly any stream runs dry."""
        failed = (self.rejected + self.timed_out) / max(1, self.requests)
        return self.ttfa_p95 <= ttfa_p95 and failed <= FAILED_AT_MOST and self.dry_share <= DRY_AT_MOST

    def cells(self, price: float) -> dict[str, str]:
        """Columns of the table; `price` per pod-hour."""
        return {
            "requests": str(self.requests),
            "pods mean/max": f"{self.mean_pods:.2f}/{self.max_pods}",
            "queue max": str(self.max_queue),
            "TTFA P50/P95/P99 s": f"{self.ttfa_p50:.2f}/{self.ttfa_p95:.2f}/{self.ttfa_p99:.2f}",
            "rejected": str(self.rejected),
            "timed out": str(self.timed_out),
            "ran dry %": f"{100 * self.dry_share:.2f}",
            "cold": str(self.cold_hits),
            "pod-hours": f"{self.pod_hours:.2f}",
            "cost": f"{self.pod_hours * price:.2f}",
        }


def table(rows: list[dict[str, str]]) -> str:
    """Rows with the same keys as a Markdown table."""
    heads = list(rows[0])
    widths = [max(len(head), *(len(row[head]) for row in rows)) for head in heads]

    def line(values: list[str]) -> str:
        return "| " + " | ".join(value.rjust(width) for value, width in zip(values, widths, strict=True)) + " |"

    rule = "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|"
    return "\n".join([line(heads), rule, *(line([row[head] for head in heads]) for row in rows)])
