"""The rollout command: python kserve/rollout.py deploy|status|canary|watch|promote|rollback|warm|delete.

Exit codes: 0 done; 1 failed, interrupted or rolled back; 2 a command line that is none. Whatever ends a command is one
sentence on stderr; SIGTERM and SIGHUP end it as Ctrl-C does. Every command may be cut off and run again: the cluster
holds all that it needs to go on.
"""

from __future__ import annotations

import argparse
import io
import json
import signal
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from errors import NotReachedError, RolloutError
from options import parse
from waiting import Patience, Progress, wait_gone

if TYPE_CHECKING:
    from cluster import Cluster
    from knative import KnativeRollout
    from stepwise import Plan, StepwiseRollout

# The SDK takes seconds to import, so what needs it is imported by the command that does: --help is at once.


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments, COMMANDS)
    _prepare_process()
    try:
        options.command(options)
    except ImportError as error:
        return _fail(f"the KServe SDK is not usable ({error}): pip install 'kserve>=0.21,<0.22' 'kubernetes>=36,<37'")
    except RolloutError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        return _fail(f"interrupted; the cluster goes on with what was written. {options.interrupted}")
    return 0


def _prepare_process() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends nothing


def _deploy(options: argparse.Namespace) -> None:
    from deploy import deploy

    progress = Progress()
    manifest = _manifest(options, progress)
    deploy(_cluster(options, progress, manifest), manifest, _patience(options), progress, options.force)


def _status(options: argparse.Namespace) -> None:
    from report import as_data, as_table

    service = _cluster(options, Progress(sys.stderr)).require()
    output = Progress()
    output.say(json.dumps(as_data(service), indent=2) if options.json else as_table(service))
    if output.failure:
        raise RolloutError(f"the status could not be written: {output.failure}")


def _canary(options: argparse.Namespace) -> None:
    from manifest import lay_over, with_image

    progress = Progress()
    manifest = _manifest(options, progress) if options.file else None
    cluster = _cluster(options, progress, manifest)
    change = None
    if manifest is not None:
        chosen = manifest
        change = lambda live: lay_over(live, chosen)  # noqa: E731 - one of two ways to change, both one call
    elif options.image:
        change = lambda live: with_image(live, options.image)  # noqa: E731
    percent = options.percent
    if not options.analyse:
        try:
            _rollout(cluster, options, progress).canary(change, percent, options.force)
        except NotReachedError as error:
            raise RolloutError(f"{error}; the canary stays as it is: end it with rollback") from None
        return
    analysis = _analysis(cluster, options, progress)
    if change is None:
        analysis.run()
    else:
        analysis.start(change, _plan(options).steps[0] if percent is None else percent, options.force)


def _watch(options: argparse.Namespace) -> None:
    progress = Progress()
    _analysis(_cluster(options, progress), options, progress).run()


def _promote(options: argparse.Namespace) -> None:
    progress = Progress()
    _rollout(_cluster(options, progress), options, progress).promote()


def _rollback(options: argparse.Namespace) -> None:
    progress = Progress()
    _rollout(_cluster(options, progress), options, progress).rollback(options.undo)


def _warm(options: argparse.Namespace) -> None:
    from warmup import warm

    url, progress = options.url, Progress()
    if not url:
        service = _cluster(options, progress).require()
        url = service.tag_url(options.tag)
        if not url:
            raise RolloutError(
                f"{service.name} has no URL for the tag {options.tag}: deploy it with the annotation "
                'serving.kserve.io/enable-tag-routing: "true", or give --url'
            )
    body: dict = {"input": options.text, "response_format": "pcm", "stream": False}
    if options.body:
        try:
            body = json.loads(Path(options.body).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise RolloutError(f"{options.body} is no JSON file: {error}") from None
    warm(url, options.host, body, _patience(options), progress)


def _delete(options: argparse.Namespace) -> None:
    progress = Progress()
    cluster = _cluster(options, progress)
    if not cluster.retry(cluster.delete):
        progress.say(f"absent: there is no InferenceService {cluster.name} in namespace {cluster.namespace}")
        return
    wait_gone(cluster, _patience(options), progress)
    progress.say(f"deleted: {cluster.name} is gone")


def _manifest(options: argparse.Namespace, progress: Progress) -> dict:
    from manifest import read_manifest

    manifest, others = read_manifest(options.file)
    if others:
        progress.say(f"left to kubectl apply: {', '.join(others)}")
    return manifest


def _cluster(options: argparse.Namespace, progress: Progress, manifest: dict | None = None) -> Cluster:
    from cluster import Cluster

    metadata = manifest["metadata"] if manifest else {}
    for option in ("name", "namespace"):
        given, written = getattr(options, option), metadata.get(option)
        if given and written and given != written:
            raise RolloutError(f"--{option} is {given}, but the manifest's is {written}")
    name = options.name or metadata["name"]
    namespace = options.namespace or metadata.get("namespace")
    return Cluster(options.kubeconfig, options.context, namespace, name, _patience(options), progress)


def _rollout(cluster: Cluster, options: argparse.Namespace, progress: Progress) -> Any:
    """The rollout of the mode that the live InferenceService is in."""
    from knative import KnativeRollout
    from standard import StandardRollout

    kind = StandardRollout if cluster.require().mode == "Standard" else KnativeRollout
    return kind(cluster, _patience(options), progress)


def _analysis(cluster: Cluster, options: argparse.Namespace, progress: Progress) -> StepwiseRollout:
    from analysis import Prometheus
    from knative import KnativeRollout
    from stepwise import StepwiseRollout

    rollout: KnativeRollout | Any = _rollout(cluster, options, progress)
    if not isinstance(rollout, KnativeRollout):
        raise RolloutError("analysis tells revisions apart by a label that only Knative mode gives them: use promote")
    prometheus = Prometheus(options.prometheus, cluster.namespace, options.query_timeout)
    return StepwiseRollout(cluster, rollout, prometheus, _plan(options), progress)


def _plan(options: argparse.Namespace) -> Plan:
    from analysis import Thresholds
    from stepwise import Plan

    given = {field.name: getattr(options, field.name) for field in fields(Thresholds)}
    return Plan(
        steps=options.steps,
        interval=options.interval,
        check=options.check,
        min_requests=options.min_requests,
        patience=options.patience,
        stop_without_data=options.without_data == "stop",
        skipped=tuple(options.skip),
        limits=Thresholds(**{name: value for name, value in given.items() if value is not None}),
    )


def _patience(options: argparse.Namespace) -> Patience:
    return Patience(options.timeout, options.poll, options.settle)


def _fail(sentence: str) -> int:
    Progress(sys.stderr).say(f"rollout.py: {sentence}")
    return 1


COMMANDS = {
    "deploy": _deploy,
    "status": _status,
    "canary": _canary,
    "watch": _watch,
    "promote": _promote,
    "rollback": _rollback,
    "warm": _warm,
    "delete": _delete,
}

if __name__ == "__main__":
    sys.exit(main())
