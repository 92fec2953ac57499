"""Deploying a manifest: created, or laid over what is live, and waited for."""

from __future__ import annotations

import goals
from cluster import Cluster
from errors import RolloutError
from inference_service import InferenceService
from knative import KnativeRollout, refuse_half_rolled_back
from manifest import Record, content, keep, lay_over, new_document, set_percent
from waiting import Patience, Progress, describe, wait_for


def deploy(cluster: Cluster, manifest: dict, patience: Patience, progress: Progress, force: bool = False) -> None:
    """Returns when the manifest's revision is ready and has its traffic; RolloutError otherwise.

    What is live already is not written again. A canary under way is replaced only with `force`.
    """
    before, after = cluster.retry(lambda: _write(cluster, manifest, force))
    if before is None:
        progress.say(f"created {cluster.name} in namespace {cluster.namespace}, generation {after.generation}")
    elif before is after:
        progress.say(f"unchanged: {cluster.name} is of this manifest already, generation {after.generation}")
    else:
        progress.say(f"updated {cluster.name}, generation {before.generation} -> {after.generation}")
    service = wait_for(cluster, goals.deployed(before, after), patience, progress)
    if after.canary_under_way and manifest["spec"]["predictor"].get("canaryTrafficPercent") is None:
        service = KnativeRollout(cluster, patience, progress).clear("100 % on the deployed revision")
    progress.say(f"ready: {describe(service) or service.url}")


def _write(cluster: Cluster, manifest: dict, force: bool) -> tuple[InferenceService | None, InferenceService]:
    live = cluster.get()
    if live is None:
        return None, cluster.create(new_document(manifest, cluster.namespace))
    if live.deleting:
        raise RolloutError(f"{cluster.name} is being deleted: deploy again when it is gone")
    document = lay_over(live, manifest)
    # What admission and defaulting make of it is compared, so that defaults are no difference.
    if content(cluster.replace(document, dry_run=True)) == content(live):
        return live, live
    if live.canary_under_way:
        refuse_half_rolled_back(live)
        if not force:
            raise RolloutError("a canary is under way: promote it or roll it back first, or replace it with --force")
        if live.mode == "Knative":
            # Cleared in this write, all traffic would go to the canary until the new revision is ready.
            set_percent(document, live.percent)
    keep(document, Record.leading_back_from(live))
    return live, cluster.replace(document)
