"""Rollouts in Knative mode: one template, one percentage, and the revisions that Knative makes of them."""

from __future__ import annotations

import goals
from cluster import Cluster
from errors import RolloutError
from inference_service import InferenceService
from manifest import Change, Record, keep, live_document, restore, set_percent, template
from waiting import Patience, Progress, shares_line, wait_for


class KnativeRollout:
    """Canary, promotion and rollback of one InferenceService; each may be called again after it was cut off."""

    def __init__(self, cluster: Cluster, patience: Patience, progress: Progress) -> None:
        self._cluster, self._patience, self._progress = cluster, patience, progress

    def canary(self, change: Change | None, percent: int, force: bool = False) -> InferenceService:
        """Sends `percent` of the traffic to the changed template; without `change`, to the canary under way.

        One write changes template and percentage, so one revision comes of it. At 0 % only its tag leads to it.
        """
        before, after = self._cluster.edit(lambda live: self._canary_document(live, change, percent, force))
        if after is before and change is not None and not before.canary_under_way:
            self._progress.say(f"nothing to do: {before.created_revision} has this template and is no canary any more")
            return before
        goal = goals.shifted(before, after, percent, f"{percent} % on the canary")
        service = wait_for(self._cluster, goal, self._patience, self._progress)
        self._progress.say(f"{service.ready_revision} is ready and has {percent} % of the traffic")
        if percent == 0:
            url = service.tag_url("latest") or "without serving.kserve.io/enable-tag-routing no URL"
            self._progress.say(f"{url} leads to it")
        return service

    def promote(self) -> InferenceService:
        """Gives the canary everything, once it is ready, by clearing the percentage."""
        live = self._cluster.require()
        refuse_half_rolled_back(live)
        if live.percent is None:
            goal = goals.shifted(live, live, None, "100 % on the newest revision")
            service = wait_for(self._cluster, goal, self._patience, self._progress)
            self._progress.say(f"nothing to promote: {shares_line(service)}")
            return service
        wait_for(self._cluster, goals.ready_canary(), self._patience, self._progress)
        service = self.clear("100 % on the canary")
        self._progress.say(f"promoted: {service.ready_revision} has 100 % of the traffic")
        return service

    def rollback(self, undo: bool = False) -> None:
        """Ends a canary, or a deploy that failed; with `undo` takes back a finished rollout too.

        Says so where there is nothing to roll back. It takes three writes. Percentage 0 brings the traffic back
        at once. Then the previous spec comes back, still at 0: were the percentage cleared now, all traffic would
        go to the newest *ready* revision, which is the canary. It is cleared when the restored revision is ready.
        """
        live = self._cluster.require()
        record = Record.read(live)
        used_up = record is None or record.restored
        if live.percent is None and (used_up or (live.settled and not undo)):
            hint = "" if used_up else "; --undo takes back the finished rollout"
            self._progress.say(f"nothing to roll back: {shares_line(live) or 'no revision has traffic'}{hint}")
            return
        if record is None or not record.half_done(live):
            self._traffic_back(live)
            record = self._restore()
        wait_for(self._cluster, goals.restored(record.revision), self._patience, self._progress)
        service = self.clear("100 % on the restored revision")
        self._progress.say(f"rolled back: {service.ready_revision} has the previous template and 100 % of the traffic")

    def clear(self, what: str) -> InferenceService:
        """Clears the percentage, which is safe only when the newest revision is ready, and waits for its 100 %."""
        before, after = self._cluster.edit(_cleared)
        return wait_for(self._cluster, goals.shifted(before, after, None, what), self._patience, self._progress)

    def _canary_document(self, live: InferenceService, change: Change | None, percent: int, force: bool) -> dict | None:
        refuse_half_rolled_back(live)
        if not live.rolled_out_revision:
            raise RolloutError(
                f"{live.name} was never ready, so a canary has nothing to be compared with: deploy it first"
            )
        if change is None:
            if live.percent is None:
                raise RolloutError("no canary is under way: say what to try with --image or -f")
            return _at_percent(live, percent)
        document = change(live)
        set_percent(document, percent)
        if template(self._cluster.replace(document, dry_run=True)) == template(live):
            return _at_percent(live, percent) if live.canary_under_way else None
        if live.canary_under_way and not force:
            raise RolloutError(
                f"another canary is under way at {live.percent} %: promote it, roll it back, or replace it with --force"
            )
        keep(document, Record.leading_back_from(live))
        return document

    def _traffic_back(self, live: InferenceService) -> None:
        stable = stable_revision(live)
        if not stable:
            raise RolloutError(f"no earlier revision of {live.name} was ever ready, so there is nothing to go back to")
        self._cluster.edit(lambda now: _at_percent(now, 0))
        wait_for(self._cluster, goals.traffic_on(stable), self._patience, self._progress)
        self._progress.say(f"{stable} has 100 % of the traffic again")

    def _restore(self) -> Record:
        def change(live: InferenceService) -> dict | None:
            record = Record.read(live)
            if record is not None and record.half_done(live):
                return None
            if record is None or record.restored:
                raise RolloutError(
                    f"the traffic is back, but the canary was not started by this command, so what {live.name} was "
                    "before is not known: deploy the previous manifest with --force to end it"
                )
            document = restore(live, record)
            set_percent(document, 0)
            keep(document, record.used_up(live))
            return document

        before, after = self._cluster.edit(change)
        marker = Record.read(after)
        assert marker is not None, "written by the edit above"
        self._progress.say(f"the template of before is back; it replaces that of {before.created_revision}")
        return marker


def refuse_half_rolled_back(live: InferenceService) -> None:
    """RolloutError if a rollback was cut off after it had restored the template."""
    record = Record.read(live)
    if record is not None and record.half_done(live):
        raise RolloutError("a rollback is under way: finish it with rollback")


def stable_revision(live: InferenceService) -> str:
    """The revision to fall back to: the last with all traffic, or the one before if the newest has it."""
    if live.rolled_out_revision == live.created_revision:
        return live.previous_revision
    return live.rolled_out_revision


def _at_percent(live: InferenceService, percent: int) -> dict | None:
    """The percentage alone, which makes no revision; None where it is so already."""
    if live.percent == percent:
        return None
    document = live_document(live)
    set_percent(document, percent)
    return document


def _cleared(live: InferenceService) -> dict | None:
    if live.percent is None:
        return None
    document = live_document(live)
    set_percent(document, None)
    return document
