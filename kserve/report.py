"""The state of a rollout, for eyes as one table and for programs as JSON."""

from __future__ import annotations

from inference_service import InferenceService
from manifest import Record

COLUMNS = ("REVISION", "TRAFFIC", "READY", "ROLE", "TAG")


def as_data(service: InferenceService) -> dict:
    """What `as_table` says, and more, as plain data."""
    record = Record.read(service)
    return {
        "name": service.name,
        "namespace": service.document["metadata"].get("namespace"),
        "mode": service.mode,
        "ready": service.ready,
        "generation": service.generation,
        "observedGeneration": service.observed,
        "canaryTrafficPercent": service.percent,
        "url": service.url,
        "revisions": _standard_rows(service) if service.mode == "Standard" else _revision_rows(service),
        "conditions": [dict(vars(condition)) for condition in service.conditions.values()],
        "loadFailure": service.load_failure,
        "keptForRollback": record.revision if record is not None and not record.restored else None,
    }


def as_table(service: InferenceService) -> str:
    """Name, revisions with their traffic, and every condition that is not True."""
    data = as_data(service)
    state = [("ready" if service.ready else "not ready"), service.mode or "mode unknown"]
    if service.percent is not None:
        state.append(f"canary at {service.percent} %")
    lines = [f"{service.name} in {data['namespace']}: {', '.join(state)}"]
    if data["url"]:
        lines.append(data["url"])
    rows = [COLUMNS] + [
        (row["name"], f"{row['percent']} %", "yes" if row["ready"] else "no", row["role"], row["tag"])
        for row in data["revisions"]
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += [f"! {trouble}" for trouble in service.troubles()]
    if data["loadFailure"]:
        lines.append(f"! {data['loadFailure']}")
    if data["keptForRollback"]:
        lines.append(f"rollback leads back to the template of {data['keptForRollback']}")
    return "\n".join(lines)


def _revision_rows(service: InferenceService) -> list[dict]:
    roles = {
        service.previous_revision: "previous",
        service.rolled_out_revision: "stable",
        service.created_revision: "newest",
    }
    if service.created_revision == service.rolled_out_revision:
        roles[service.created_revision] = "stable"
    elif service.canary_under_way:
        roles[service.created_revision] = "canary"
    names = dict.fromkeys([*roles, *(target.revision for target in service.traffic)])
    return [
        {
            "name": name,
            "percent": service.share_of(name),
            # Only the newest can be one that never was ready; every other name here had to be for traffic or rank.
            "ready": name != service.created_revision or name == service.ready_revision,
            "role": roles.get(name, ""),
            "tag": ",".join(target.tag for target in service.traffic if target.revision == name and target.tag),
        }
        for name in names
        if name
    ]


def _standard_rows(service: InferenceService) -> list[dict]:
    reported = {item["name"]: item for item in service.status.get("canaryStatuses", [])}
    rows = [
        {
            "name": item["predictor"]["name"],
            "percent": item["trafficPercent"],
            "ready": bool(reported.get(item["predictor"]["name"], {}).get("ready")),
            "role": "canary",
            "tag": "",
        }
        for item in service.canaries
    ]
    rest = 100 - sum(row["percent"] for row in rows)
    name = service.spec["predictor"].get("name") or f"{service.name}-predictor"
    return [
        {"name": name, "percent": rest, "ready": service.is_true("PredictorReady"), "role": "stable", "tag": ""},
        *rows,
    ]
