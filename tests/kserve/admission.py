"""What the webhooks of KServe and Knative would say about an InferenceService: schemas do not know these rules.

Written after KServe 0.20 (pkg/apis/serving/v1beta1) and Knative Serving of August 2026 (pkg/apis/serving and
pkg/apis/autoscaling). A rule is a small function that yields what is wrong; its name is its rule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tests.kserve import knative_annotation_rules, knative_spec_rules, kserve_canary_rules, kserve_rules
from tests.kserve.revision import revision_of

Object = dict[str, Any]

KSERVE_RULES = kserve_rules.RULES + kserve_canary_rules.RULES
UPDATE_RULES = kserve_rules.UPDATE_RULES
KNATIVE_RULES = knative_annotation_rules.RULES + knative_spec_rules.RULES


def violations(isvc: Object, runtimes: Mapping[str, Object] | None = None, features: Collection[str] = ()) -> list[str]:
    """`rule: what is wrong` for an object to be created. `runtimes`: ClusterServingRuntimes by model format;
    `features`: flags of Knative's config-features that the cluster's administrator has enabled."""
    found = [f"{rule.__name__}: {message}" for rule in KSERVE_RULES for message in rule(isvc)]
    if kserve_rules.mode(isvc) == "Knative":
        revision = revision_of(isvc, runtimes or {}, features)
        found += [f"{rule.__name__}: {message}" for rule in KNATIVE_RULES for message in rule(revision)]
    return found


def update_violations(old: Object, new: Object) -> list[str]:
    """What forbids the change from `old` to `new`, beyond what forbids `new` itself."""
    return [f"{rule.__name__}: {message}" for rule in UPDATE_RULES for message in rule(old, new)]
