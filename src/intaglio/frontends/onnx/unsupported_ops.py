"""ONNX ops that are not supported on purpose, by family, with the reason."""

from __future__ import annotations

from intaglio.errors import Unsupported, did_you_mean, option
from intaglio.frontends.custom_ops import remedy
from intaglio.frontends.onnx.importer import OnnxNode, known_ops

REASONS: dict[str, tuple[str, str]] = {
    "strings": (
        "strings are not tensors of numbers",
        "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer",
    ),
    "sequences": (
        "a sequence has no fixed place in memory",
        "SequenceEmpty SequenceErase SequenceInsert SequenceMap",
    ),
    "optionals": (
        "an optional has no fixed type at run time",
        "Optional OptionalGetElement OptionalHasElement",
    ),
    "maps": ("a map is not a tensor", "CastMap DictVectorizer ZipMap"),
    "training": ("only inference is supported", "Adagrad Adam Gradient Momentum GraphCall"),
    "classical machine learning": (
        "classical machine-learning operators are not neural networks",
        "ArrayFeatureExtractor Binarizer CategoryMapper FeatureVectorizer Imputer LabelEncoder "
        "LinearClassifier LinearRegressor Normalizer OneHotEncoder SVMClassifier SVMRegressor "
        "Scaler TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor",
    ),
    "image decoding": ("a compressed image is not a tensor; decode it first", "ImageDecoder"),
    "random": (
        "random results cannot be reproduced or checked",
        "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    ),
}
READS_SEQUENCES = {
    "SequenceAt",
    "SequenceLength",
    "ConcatFromSequence",
}  # supported for known lengths
_FAMILY = {op: family for family, (_, ops) in REASONS.items() for op in ops.split()}


def family_of(op_type: str) -> str | None:
    """The family of unsupported ops that this op belongs to; None if none."""
    return _FAMILY.get(op_type)


def why_unsupported(domain: str, op_type: str) -> str:
    """The reason why this op has no importer."""
    if family := family_of(op_type):
        return REASONS[family][0]
    if domain == "ai.onnx.ml":
        return REASONS["classical machine learning"][0]
    if domain.startswith("ai.onnx.") and "training" in domain:
        return REASONS["training"][0]
    if domain in ("", "com.microsoft"):
        return "there is no importer for it"
    return f"domain '{domain}' is unknown, and the model has no function of this name"


def near_op(domain: str, op_type: str) -> str:
    """A hint at the supported op that a misspelt one resembles; "" for ops that ONNX has."""
    if family_of(op_type) or domain not in ("", "com.microsoft"):
        return ""
    known = [name for d, name in known_ops() if d == domain]
    return did_you_mean(op_type, known, likeness=0.8)


def unsupported(n: OnnxNode) -> Unsupported:
    """The error for a node whose op nothing knows."""
    called = f"{n.domain}::{n.op_type}"
    return Unsupported(
        f"onnx: node '{n.origin}': {n.domain + '.' if n.domain else ''}{n.op_type} "
        f"(opset {n.opset}) is not supported: {why_unsupported(n.domain, n.op_type)}"
        f"{near_op(n.domain, n.op_type)}; {remedy('onnx', called)}, or cut the graph around it "
        f"with {option('inputs')} and {option('outputs')}"
    )
