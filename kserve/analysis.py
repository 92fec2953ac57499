"""Canary analysis: what Prometheus measured on two revisions, and whether the canary may go on."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import httpx

from exchange import exchange

METRICS = ("ttfa", "rtf", "errors", "continuity")
# Outcomes that are the server's doing, as in the alert CosyServeErrors. A client's mistakes are no fault of a revision.
FAULTS = (
    "engine_error",
    "nonfinite_audio",
    "internal_error",
    "engine_unavailable",
    "overloaded",
    "loading",
    "draining",
    "voice_damaged",
    "voice_store_full",
    "voice_store_unavailable",
)


@dataclass(frozen=True)
class Thresholds:
    """What a canary must keep to: bounds of its own, and how much worse than the stable revision it may be."""

    ttfa_seconds: float = 1.5
    ttfa_ratio: float = 1.25
    rtf: float = 0.8
    rtf_ratio: float = 1.25
    # A stable revision without errors has no ratio, so errors are compared by difference.
    error_rate: float = 0.01
    error_excess: float = 0.005
    continuity: float = 0.99
    continuity_ratio: float = 0.995


@dataclass(frozen=True)
class Measurement:
    """One revision over one window. None: Prometheus has no number for it."""

    requests: float | None = None
    ttfa: float | None = None  # seconds to first audio, 95th percentile
    rtf: float | None = None  # real-time factor, 95th percentile
    errors: float | None = None  # share of the requests, 0 to 1
    continuity: float | None = None  # share of the streams whose listener never ran dry, 0 to 1

    def missing(self, needed: Collection[str]) -> tuple[str, ...]:
        """Which of the needed metrics have no number."""
        return tuple(name for name in ("requests", *METRICS) if name in needed and getattr(self, name) is None)

    def __str__(self) -> str:
        figures = (
            ("requests", self.requests, "{:.0f}"),
            ("P95 TTFA", self.ttfa, "{:.3f} s"),
            ("P95 RTF", self.rtf, "{:.3f}"),
            ("errors", self.errors, "{:.2%}"),
            ("continuity", self.continuity, "{:.2%}"),
        )
        return ", ".join(f"{name} {'none' if value is None else form.format(value)}" for name, value, form in figures)


class PrometheusError(Exception):
    """Prometheus did not answer a query, in one sentence."""


class Prometheus:
    """The metrics of single revisions, by Prometheus' HTTP API at `url`."""

    def __init__(self, url: str, namespace: str, timeout: float = 15.0) -> None:
        self._url, self._namespace, self._timeout = url.rstrip("/"), namespace, timeout

    def measure(self, revision: str, seconds: float) -> Measurement:
        """`revision` over the last `seconds`; PrometheusError if it cannot be asked."""
        window = f"{max(round(seconds), 1)}s"
        series = f'namespace="{self._namespace}",revision="{revision}"'
        requests = self._value(_grown("cosyserve_requests_total", series, window))
        faults = self._value(_grown("cosyserve_requests_total", f'{series},outcome=~"{"|".join(FAULTS)}"', window))
        streams = self._value(_grown("cosyserve_streams_total", series, window))
        broken = self._value(_grown("cosyserve_discontinuous_streams_total", series, window))
        share = _share(broken, streams)
        return Measurement(
            requests=requests if requests is None or math.isfinite(requests) else None,
            ttfa=_finite(self._value(_percentile("cosyserve_ttfa_seconds", series, window))),
            rtf=_finite(self._value(_percentile("cosyserve_rtf", series, window))),
            errors=_share(faults, requests),
            continuity=None if share is None else 1 - share,
        )

    def _value(self, query: str) -> float | None:
        """The one number of an instant query; None for an empty answer. NaN stays NaN."""
        try:
            answer = exchange("GET", f"{self._url}/api/v1/query", self._timeout, params={"query": query})
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise PrometheusError(f"{self._url} cannot be reached ({type(error).__name__}: {error})") from None
        try:
            result = answer.json()
            if result["status"] != "success":
                raise PrometheusError(f"Prometheus refuses a query: {result.get('error', answer.status_code)}")
            samples = result["data"]["result"]
            if len(samples) > 1:
                raise PrometheusError(f"{self._url} answers one query with {len(samples)} numbers")
            return float(samples[0]["value"][1]) if samples else None
        except (ValueError, TypeError, KeyError, IndexError, RecursionError):
            raise PrometheusError(f"{self._url} answers {answer.status_code} without a query result") from None


def judge(canary: Measurement, stable: Measurement, limits: Thresholds, needed: Collection[str]) -> list[str]:
    """Why the canary must not go on; empty if it may. A number that is None breaks no limit: see `missing`."""
    reasons: list[str] = []

    def above(name: str, value: float | None, bound: float, form: str, what: str) -> None:
        if name in needed and value is not None and value > bound:
            reasons.append(f"{what} is {form.format(value)}, over {form.format(bound)}")

    def worse(name: str, form: str, what: str, ratio: float) -> None:
        value, other = getattr(canary, name), getattr(stable, name)
        if name in needed and value is not None and other and value > ratio * other:
            times = f"{value / other:.2f} times the stable revision's {form.format(other)}, over {ratio:g} times"
            reasons.append(f"{what} is {form.format(value)}, {times}")

    above("ttfa", canary.ttfa, limits.ttfa_seconds, "{:.3f} s", "P95 TTFA")
    worse("ttfa", "{:.3f} s", "P95 TTFA", limits.ttfa_ratio)
    above("rtf", canary.rtf, limits.rtf, "{:.3f}", "P95 RTF")
    worse("rtf", "{:.3f}", "P95 RTF", limits.rtf_ratio)
    above("errors", canary.errors, limits.error_rate, "{:.2%}", "the error rate")
    if canary.errors is not None and stable.errors is not None:
        above("errors", canary.errors - stable.errors, limits.error_excess, "{:.2%}", "the excess of errors")
    if "continuity" in needed and canary.continuity is not None:
        if canary.continuity < limits.continuity:
            reasons.append(f"continuity is {canary.continuity:.2%}, under {limits.continuity:.2%}")
        if stable.continuity is not None and canary.continuity < limits.continuity_ratio * stable.continuity:
            bound = f"under {limits.continuity_ratio:g} times the stable revision's {stable.continuity:.2%}"
            reasons.append(f"continuity is {canary.continuity:.2%}, {bound}")
    return reasons


def _grown(counter: str, series: str, window: str) -> str:
    """By how much a counter grew. A series that began within the window counts whole, which `increase` would not:

    the first error of its kind would be lost.
    """
    now, then = f"{counter}{{{series}}}", f"{counter}{{{series}}} offset {window}"
    return f"sum((increase({counter}{{{series}}}[{window}]) and {then}) or ({now} unless {then}))"


def _percentile(histogram: str, series: str, window: str) -> str:
    return f"histogram_quantile(0.95, sum by (le) (rate({histogram}_bucket{{{series}}}[{window}])))"


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _share(part: float | None, whole: float | None) -> float | None:
    """None where nothing was counted; a part without a series is none of a whole that has one."""
    part = 0.0 if part is None else part
    if whole is None or not math.isfinite(whole) or whole <= 0 or not math.isfinite(part):
        return None
    return min(max(part / whole, 0.0), 1.0)
