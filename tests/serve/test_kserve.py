"""Manifests for KServe: what they say, and that KServe's schemas allow it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from tests.serve.kserve_fields import KINDS, definition, differences

from intaglio.cli import cli
from intaglio.errors import BadInput
from intaglio.serve.kserve import Service, check, inference_service, manifests, serving_runtime

SHARED = Path(os.environ.get("INTAGLIO_SHARED", Path(__file__).parents[3] / "shared"))
CRDS = SHARED / "serving/crd"
SERVICES = [
    Service("digits", "pvc://models/digits/3", "me/serve:1"),
    Service("digits", "s3://models/digits/4", "me/serve:1", canary=10, max_replicas=4,
            concurrency=16, cpu="500m", memory="1Gi", namespace="vision"),
    Service("d", "oci://r.io/m:1", "me/serve:1", grpc=True, min_replicas=0),
]  # fmt: skip


@pytest.mark.parametrize("service", SERVICES)
def test_manifests(service):
    runtime, model = yaml.safe_load_all(manifests(service))
    assert (runtime["kind"], model["kind"]) == ("ServingRuntime", "InferenceService")
    formats = [f["name"] for f in runtime["spec"]["supportedModelFormats"]]
    predictor = model["spec"]["predictor"]
    assert formats == [predictor["model"]["modelFormat"]["name"]]
    assert predictor["model"]["runtime"] == runtime["metadata"]["name"]
    assert predictor["model"]["storageUri"] == service.storage
    assert predictor.get("canaryTrafficPercent") == service.canary
    assert model["metadata"].get("namespace") == service.namespace


def test_the_container_runs_a_command_that_exists():
    container = serving_runtime(SERVICES[0])["spec"]["containers"][0]
    import click

    command = cli.get_command(click.Context(cli), container["args"][0])
    known = {o for p in command.params for o in p.opts}
    options = [a.partition("=")[0] for a in container["args"] if a.startswith("--")]
    assert container["command"] == ["intaglio"]
    assert len(options) >= 5
    assert set(options) <= known


@pytest.fixture(params=["the fields that are used here", "KServe's own"])
def definitions(request, tmp_path):
    """A folder of CustomResourceDefinitions."""
    pytest.importorskip("jsonschema")
    if request.param == "KServe's own":
        if not CRDS.is_dir():
            pytest.skip(f"needs KServe's CustomResourceDefinitions in {CRDS}")
        return CRDS
    for kind, (file, *_) in KINDS.items():
        (tmp_path / f"{file}.yaml").write_text(yaml.safe_dump(definition(kind)))
    return tmp_path


@pytest.mark.parametrize("service", SERVICES)
def test_schemas_allow_them(service, definitions):
    runtimes, services = (definitions / f"{file}.yaml" for file, *_ in KINDS.values())
    runtime, model = serving_runtime(service), inference_service(service)
    assert check(runtime, runtimes) == []
    assert check(model, services) == []
    model["spec"]["predictor"]["modle"] = {}
    runtime["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "512K"
    del runtime["spec"]["containers"][0]["name"]
    model["spec"]["predictor"]["maxReplicas"] = "many"
    wrong = check(model, services)
    assert len(wrong) == 2
    assert any("'modle' was unexpected" in w for w in wrong)
    wrong = check(runtime, runtimes)
    assert len(wrong) == 2
    assert any("'name' is a required" in w for w in wrong)
    assert any("limits/cpu: '512K'" in w for w in wrong)
    assert check(model, runtimes)


@pytest.mark.skipif(not CRDS.is_dir(), reason=f"needs KServe's definitions in {CRDS}")
@pytest.mark.parametrize("kind", KINDS)
def test_fields_are_those_of_kserve(kind):
    file, version, _ = KINDS[kind]
    text = (CRDS / f"{file}.yaml").read_text(encoding="utf-8")
    theirs = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))["spec"]
    ours = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    (found,) = [v["schema"]["openAPIV3Schema"] for v in theirs["versions"] if v["name"] == version]
    assert differences(ours, found, kind) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "Digits"}, "small letters"),
        ({"storage": "/models"}, "it begins with pvc://"),
        ({"cpu": "lots"}, "cpu is 'lots'"),
        ({"memory": "512K"}, "memory is '512K'"),
        ({"canary": 101}, "canary is 101"),
        ({"min_replicas": 5}, "replicas are 5 to 1"),
    ],
)
def test_wrong_values(change, words):
    with pytest.raises(BadInput, match=words):
        Service(**{"name": "m", "storage": "pvc://m", "image": "i", **change})


def test_command(tmp_path):
    words = ["kserve", "digits", "--storage", "pvc://m/1", "--image", "me/serve:1"]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0, shown.output
    out = tmp_path / "digits.yaml"
    assert CliRunner().invoke(cli, [*words, "-o", str(out)]).exit_code == 0
    assert out.read_text() == shown.output
