"""What is said in one file holds in the others: limits that enclose each other, names that select, hardening."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from runners.settings import EngineSettings
from tests.kserve.budgets import LIVE_SECONDS, SLOW_READING, load_seconds, probe_seconds
from tests.kserve.manifests import OVERLAYS, Object, mode, of_kind, render, runtimes, services, with_mode
from tests.kserve.quantity import quantity, seconds
from tests.kserve.revision import Revision, revision_of
from text.frontend import MAX_INPUT_CHARS

KNATIVE, STANDARD = with_mode("Knative"), with_mode("Standard")
ISVC_LABEL = "serving.kserve.io/inferenceservice"
QUEUE_PROXY = {"http1": 8012, "h2c": 8013}


def revision(overlay: str, isvc: Object) -> Revision:
    return revision_of(isvc, runtimes(overlay))


def serving_container(overlay: str, isvc: Object) -> Object:
    (container,) = revision(overlay, isvc).pod["containers"]
    assert container["name"] == "kserve-container"
    return container


def each(overlays: Iterable[str]) -> list[tuple[str, Object]]:
    return [(overlay, isvc) for overlay in overlays for isvc in services(overlay)]


def ports_from(policy: Object, namespace: str) -> set[int]:
    """Ports that the policy opens to the pods of a namespace."""
    found: set[int] = set()
    for rule in policy["spec"]["ingress"]:
        for peer in rule["from"]:
            selector = peer["namespaceSelector"]
            names = [selector.get("matchLabels", {}).get("kubernetes.io/metadata.name")]
            for expression in selector.get("matchExpressions", []):
                assert (expression["key"], expression["operator"]) == ("kubernetes.io/metadata.name", "In")
                names += expression["values"]
            if namespace in names:
                found |= {port["port"] for port in rule["ports"]}
    return found


@pytest.mark.parametrize("overlay", STANDARD)
def test_the_longest_input_fits_into_standard_modes_timeouts(overlay):
    for _, isvc in each([overlay]):
        predictor = isvc["spec"]["predictor"]
        container = serving_container(overlay, isvc)
        assert predictor["timeout"] >= MAX_INPUT_CHARS / SLOW_READING
        stop = container["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert stop > 0
        assert predictor["terminationGracePeriodSeconds"] >= stop + predictor["timeout"]


@pytest.mark.parametrize("overlay", KNATIVE)
def test_a_live_stream_fits_into_knatives_timeout(overlay):
    for _, isvc in each([overlay]):
        assert isvc["spec"]["predictor"]["timeout"] >= LIVE_SECONDS


@pytest.mark.parametrize("overlay", KNATIVE)
def test_the_load_fits_into_the_start_up_probe_and_that_into_the_deadline(overlay):
    for _, isvc in each([overlay]):
        start = probe_seconds(serving_container(overlay, isvc)["startupProbe"])
        deadline = seconds(revision(overlay, isvc).annotations["serving.knative.dev/progress-deadline"])
        assert 2 * load_seconds(overlay) <= start <= deadline


@pytest.mark.parametrize("overlay", STANDARD)
def test_the_load_fits_into_the_start_up_probe_in_standard_mode(overlay):
    for _, isvc in each([overlay]):
        assert probe_seconds(serving_container(overlay, isvc)["startupProbe"]) >= 2 * load_seconds(overlay)


@pytest.mark.parametrize("overlay", KNATIVE)
def test_help_is_called_before_the_hard_limit_and_that_is_below_the_engines(overlay):
    for _, isvc in each([overlay]):
        predictor = isvc["spec"]["predictor"]
        env = {item["name"]: item.get("value") for item in serving_container(overlay, isvc)["env"]}
        engine = int(env.get("COSYSERVE_MAX_REQUESTS", EngineSettings().max_requests))
        assert predictor["scaleMetric"] == "concurrency"
        annotations = revision(overlay, isvc).annotations
        utilization = float(annotations["autoscaling.knative.dev/target-utilization-percentage"]) / 100
        assert 1 <= predictor["scaleTarget"] <= predictor["containerConcurrency"] <= engine
        assert predictor["scaleTarget"] * utilization < 0.75 * predictor["containerConcurrency"]
        assert annotations["autoscaling.knative.dev/target-burst-capacity"] == "-1"
        assert annotations["autoscaling.knative.dev/initial-scale"] == "1"
        assert predictor["minReplicas"] == 0 < predictor["maxReplicas"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes_say_their_port_and_ask_the_open_inference_protocol(overlay):
    for _, isvc in each([overlay]):
        container = serving_container(overlay, isvc)
        for name, path in (("startup", "ready"), ("readiness", "ready"), ("liveness", "live")):
            assert container[f"{name}Probe"]["httpGet"] == {"path": f"/v2/health/{path}", "port": 8080}
        assert probe_seconds(container["livenessProbe"]) > probe_seconds(container["readinessProbe"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_serving_container_is_hardened_and_writes_only_to_its_volume(overlay):
    for _, isvc in each([overlay]):
        pod, container = revision(overlay, isvc).pod, serving_container(overlay, isvc)
        assert container["securityContext"] == {
            "runAsUser": 1034,
            "runAsGroup": 1034,
            "runAsNonRoot": True,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert pod["automountServiceAccountToken"] is False
        writable = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
        env = {item["name"]: item.get("value", "") for item in container["env"]}
        for name in ("HOME", "BENTOML_HOME"):
            assert any(env[name] == path or env[name].startswith(path + "/") for path in writable)
        sizes = [quantity(volume["emptyDir"]["sizeLimit"]) for volume in pod["volumes"]]
        assert sum(sizes) < quantity(container["resources"]["limits"]["ephemeral-storage"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_requests_are_within_limits(overlay):
    for _, isvc in each([overlay]):
        resources = serving_container(overlay, isvc)["resources"]
        assert {"cpu", "memory", "ephemeral-storage"} <= resources["requests"].keys() <= resources["limits"].keys()
        for name, value in resources["requests"].items():
            assert quantity(value) <= quantity(resources["limits"][name])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_gpu_comes_with_the_gpu_image_and_weights(overlay):
    for _, isvc in each([overlay]):
        container = serving_container(overlay, isvc)
        gpu = "nvidia.com/gpu" in container["resources"]["limits"]
        names = {item["name"] for item in container["env"]}
        weights = "STORAGE_URI" in names or "storageUri" in isvc["spec"]["predictor"].get("model", {})
        registry, _, tag = container["image"].rpartition(":")
        assert registry == "registry.example.com/cosyserve"
        assert tag.endswith("-gpu" if gpu else "-cpu")
        assert gpu == weights


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_surrounds_the_pods_selects_the_labels_that_kserve_gives_them(overlay):
    for _, isvc in each([overlay]):
        name, objects = isvc["metadata"]["name"], render(overlay)
        for kind, selector in (
            ("NetworkPolicy", "podSelector"),
            ("PodDisruptionBudget", "selector"),
            ("PodMonitor", "selector"),
        ):
            (item,) = of_kind(objects, kind)
            assert item["spec"][selector] == {"matchLabels": {ISVC_LABEL: name}}
            assert item["metadata"]["namespace"] == isvc["metadata"]["namespace"]
        accounts = {item["metadata"]["name"]: item for item in of_kind(objects, "ServiceAccount")}
        assert accounts[isvc["spec"]["predictor"]["serviceAccountName"]]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_budget_lets_a_single_replica_be_drained(overlay):
    for item in of_kind(render(overlay), "PodDisruptionBudget"):
        assert item["spec"]["maxUnavailable"] >= 1
        assert "minAvailable" not in item["spec"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_network_policy_lets_requests_and_the_scraper_in(overlay):
    for _, isvc in each([overlay]):
        (policy,) = of_kind(render(overlay), "NetworkPolicy")
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule.get("from") for rule in policy["spec"]["ingress"]), "no rule for everybody"
        ports = serving_container(overlay, isvc)["ports"]
        if mode(isvc) == "Knative":
            needed = {QUEUE_PROXY[ports[0]["name"]], 9090}
            assert needed <= ports_from(policy, "knative-serving")
        else:
            assert {port["containerPort"] for port in ports} <= ports_from(policy, "envoy-gateway-system")
        assert 8080 in ports_from(policy, "monitoring")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_weights_over_the_network_have_a_way_out_and_nothing_else_has(overlay):
    for _, isvc in each([overlay]):
        (policy,) = of_kind(render(overlay), "NetworkPolicy")
        uri = isvc["spec"]["predictor"].get("model", {}).get("storageUri", "pvc://")
        open_ports = {port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]}
        assert open_ports == ({53} if uri.startswith("pvc://") else {53, 443})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_scraper_finds_the_port_and_names_the_revision(overlay):
    for _, isvc in each([overlay]):
        (monitor,) = of_kind(render(overlay), "PodMonitor")
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        ports = serving_container(overlay, isvc)["ports"]
        if mode(isvc) == "Knative":
            assert endpoint["port"] == "user-port"  # what Knative calls it, whatever its name here
        else:
            assert endpoint["port"] in {port["name"] for port in ports if port["containerPort"] == 8080}
        rewrites = {item["targetLabel"]: item for item in endpoint["relabelings"]}
        assert {"revision", "isvc"} <= rewrites.keys()
        assert ("__address__" in rewrites) == (ports[0]["containerPort"] != 8080)
        assert seconds(endpoint["scrapeTimeout"]) < seconds(endpoint["interval"])


def test_grpc_has_a_port_of_its_own_and_http_stays_where_the_probes_ask():
    (isvc,) = services("overlays/grpc")
    container = serving_container("overlays/grpc", isvc)
    env = {item["name"]: item.get("value") for item in container["env"]}
    (port,) = container["ports"]
    assert (port["name"], str(port["containerPort"])) == ("h2c", env["GRPC_PORT"])
    assert container["args"] == ["--port", str(container["readinessProbe"]["httpGet"]["port"])]


@pytest.mark.parametrize("overlay", STANDARD)
def test_standard_mode_sets_the_port_that_knative_would(overlay):
    for _, isvc in each([overlay]):
        container = serving_container(overlay, isvc)
        env = {item["name"]: item.get("value") for item in container["env"]}
        ports = {port["name"]: str(port["containerPort"]) for port in container["ports"]}
        assert env["PORT"] == ports["http1"]
        assert env.get("GRPC_PORT") == ports.get("h2c")
        assert isvc["spec"]["predictor"]["minReplicas"] >= 1
        assert [name for name in isvc["metadata"]["annotations"] if "knative.dev" in name] == []
        assert {"containerConcurrency", "scaleTarget", "scaleMetric"}.isdisjoint(isvc["spec"]["predictor"])


@pytest.mark.parametrize(
    ("overlay", "kind"), [("standard-hpa", "HorizontalPodAutoscaler"), ("standard-warm", "ScaledObject")]
)
def test_an_autoscaler_of_ours_targets_kserves_deployment_alone(overlay, kind):
    (isvc,) = services(f"overlays/{overlay}")
    (scaler,) = of_kind(render(f"overlays/{overlay}"), kind)
    assert scaler["spec"]["scaleTargetRef"]["name"] == f"{isvc['metadata']['name']}-predictor"
    assert isvc["metadata"]["annotations"]["serving.kserve.io/autoscalerClass"] == "external"
    assert "autoScaling" not in isvc["spec"]["predictor"]
    low = scaler["spec"].get("minReplicas", scaler["spec"].get("minReplicaCount"))
    high = scaler["spec"].get("maxReplicas", scaler["spec"].get("maxReplicaCount"))
    assert (low, high) == (isvc["spec"]["predictor"]["minReplicas"], isvc["spec"]["predictor"]["maxReplicas"])


def test_weights_that_are_fetched_fit_into_the_pods_storage():
    (cache,) = of_kind(render("overlays/local-cache"), "LocalModelCache")
    uris = [(item, item[1]["spec"]["predictor"].get("model", {}).get("storageUri", "")) for item in each(OVERLAYS)]
    fetched = [item for item, uri in uris if uri.startswith("hf://")]
    assert fetched
    for overlay, isvc in fetched:
        resources = serving_container(overlay, isvc)["resources"]
        own = [quantity(volume["emptyDir"]["sizeLimit"]) for volume in revision(overlay, isvc).pod["volumes"]]
        needed = quantity(cache["spec"]["modelSize"]) + sum(own)
        assert quantity(resources["requests"]["ephemeral-storage"]) >= needed, overlay
        assert quantity(resources["limits"]["ephemeral-storage"]) >= needed, overlay


def test_a_canary_is_another_image_even_where_the_stable_one_is_a_digest():
    (isvc,) = services("overlays/standard-canary")
    (canary,) = isvc["spec"]["canary"]
    stable = serving_container("overlays/standard-canary", isvc)["image"]
    model = canary["predictor"]["model"]
    assert "runtimeVersion" not in model, "KServe leaves an image with a digest alone"
    assert model["image"] != stable
    assert model["image"].rpartition(":")[0] == stable.rpartition(":")[0]


def test_two_cores_get_two_streams_and_a_gpu_more():
    limits: dict[bool, set[tuple[int, int]]] = {}
    for overlay, isvc in each(KNATIVE):
        if overlay != "base":  # what others start from
            gpu = "nvidia.com/gpu" in serving_container(overlay, isvc)["resources"]["limits"]
            predictor = isvc["spec"]["predictor"]
            limits.setdefault(gpu, set()).add((predictor["containerConcurrency"], predictor["scaleTarget"]))
    assert limits == {False: {(2, 2)}, True: {(8, 4)}}


def test_the_cache_holds_the_weights_that_the_service_asks_for():
    objects = render("overlays/local-cache")
    (cache,), (group,) = of_kind(objects, "LocalModelCache"), of_kind(objects, "LocalModelNodeGroup")
    (isvc,) = services("overlays/local-cache")
    assert isvc["spec"]["predictor"]["model"]["storageUri"].startswith(cache["spec"]["sourceModelUri"])
    assert cache["spec"]["nodeGroups"] == [group["metadata"]["name"]]
    assert quantity(cache["spec"]["modelSize"]) <= quantity(group["spec"]["storageLimit"])


def test_the_warm_up_jobs_may_do_what_they_do_and_nothing_else():
    objects = render("overlays/warm")
    (role,), (binding,) = of_kind(objects, "Role"), of_kind(objects, "RoleBinding")
    (isvc,) = services("base")
    assert role["rules"] == [
        {
            "apiGroups": ["serving.kserve.io"],
            "resources": ["inferenceservices"],
            "resourceNames": [isvc["metadata"]["name"]],
            "verbs": ["get", "patch"],
        }
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    jobs = of_kind(objects, "CronJob")
    assert len(jobs) == 2
    for job in jobs:
        pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert [subject["name"] for subject in binding["subjects"]] == [pod["serviceAccountName"]]
        assert pod["restartPolicy"] == "Never"
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"]
        assert job["metadata"]["namespace"] == isvc["metadata"]["namespace"] == binding["subjects"][0]["namespace"]
        command = pod["containers"][0]["command"]
        assert command[:4] == ["kubectl", "patch", "inferenceservice.serving.kserve.io", isvc["metadata"]["name"]]
        assert job["spec"]["timeZone"] and job["spec"]["concurrencyPolicy"] == "Forbid"
