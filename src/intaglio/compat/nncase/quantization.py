"""Quantisation from samples: nncase's types and methods in terms of the core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intaglio import dtypes
from intaglio.compat.nncase import quant_scheme
from intaglio.compat.nncase.options import PTQ, Untouched
from intaglio.compat.nncase.refusals import LOG
from intaglio.compat.nncase.samples import Sample, Samples
from intaglio.compat.nncase.settings import Settings, quant_type
from intaglio.errors import BadInput, did_you_mean
from intaglio.ir import Graph
from intaglio.quant import Quantized, Scheme, calibrate

METHODS = {
    "noclip": "minmax",
    "no_clip": "minmax",
    "kld": "kl",
    "kld_m0": "kl",
    "kld_m1": "kl",
    "kld_m2": "kl",
    "l2": "mse",
    "cdf": "percentile",
}
ROUNDINGS = {"nofinetuneweights": "auto", "usesquant": "squant", "useadaround": "data"}
MIXED_COSINE = 0.99  # that `use_mix_quant` keeps
MIN_COSINE_SAMPLES = 1


@dataclass
class Quantization:
    """The attributes of PTQTensorOptions, checked."""

    activations: str
    weights: str
    method: str
    rounding: str
    mixed: bool
    samples: Samples
    scheme: Path | None
    strict: bool
    export: bool
    by_channel: bool
    errors: bool

    @classmethod
    def of(cls, options: Any, settings: Settings) -> Quantization:
        """Check an options object."""

        def get(name: str) -> Any:
            return getattr(options, name, PTQ[name][0])

        for name in vars(options) if hasattr(options, "__dict__") else ():
            if name not in PTQ and not name.startswith("_") and (hint := did_you_mean(name, PTQ)):
                LOG.warning(f"PTQTensorOptions has no attribute '{name}', which is ignored{hint}")
        given = {n: quant_type(n, get(n)) for n in ("quant_type", "w_quant_type")}
        if settings.old:  # nncase 1.x has them in CompileOptions
            own = {"quant_type": settings.quant_type, "w_quant_type": settings.w_quant_type}
            given = {n: t if t != PTQ[n][0] else own[n] for n, t in given.items()}
        method = get("calibrate_method")
        if isinstance(method, Untouched) and settings.old:
            method = "no_clip"
        activations, weights = _types(given["quant_type"], given["w_quant_type"], settings.target)
        scheme = get("quant_scheme")
        return cls(
            activations,
            weights,
            _choice("calibrate_method", method, METHODS, "Kld, NoClip"),
            _choice(
                "finetune_weights_method",
                get("finetune_weights_method"),
                ROUNDINGS,
                "NoFineTuneWeights, UseSquant, UseAdaRound",
            ),
            bool(get("use_mix_quant")),
            Samples(getattr(options, "_given", None), get("samples_count")),
            Path(scheme) if scheme else None,
            bool(get("quant_scheme_strict_mode")),
            bool(get("export_quant_scheme")),
            bool(get("export_weight_range_by_channel")),
            bool(get("dump_quant_error") or settings.dump_quant_error),
        )

    def run(self, graph: Graph, samples: Sequence[Sample], settings: Settings) -> Quantized:
        """Calibrate a graph; without samples all ranges come from the scheme."""
        if self.scheme is None and not samples:
            raise BadInput(
                "use_ptq: there are no calibration samples; give them by "
                "ptq_options.set_tensor_data([[x1, x2]]), or a quant_scheme"
            )
        if self.scheme is None:
            return self._calibrated(graph, samples, settings, None)
        asked = quant_scheme.read(self.scheme, graph, settings.target, self.strict)
        if samples:
            return self._calibrated(graph, samples, settings, asked)
        return self.at_scheme(graph, zeros(graph), settings, asked, check=True)

    def at_scheme(
        self,
        graph: Graph,
        samples: Sequence[Sample],
        settings: Settings,
        scheme: Scheme,
        check: bool = False,
    ) -> Quantized:
        """Quantise with the scales of a scheme; the samples show nothing."""
        result = self._calibrated(graph, samples, settings, scheme)
        if check and (missing := [n for n in result.scheme.tensors if n not in scheme.tensors]):
            raise BadInput(
                f"quant_scheme '{self.scheme}' has no range of '{missing[0]}'"
                f"{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}; give calibration "
                "samples by set_tensor_data"
            )
        return result

    def _calibrated(
        self, graph: Graph, samples: Sequence[Sample], settings: Settings, scheme: Scheme | None
    ) -> Quantized:
        buckets = bool(settings.buckets and settings.ranges)
        return calibrate(
            graph,
            [dict(s) for s in samples],
            method=self.method,
            rounding=self.rounding,
            accuracy=MIXED_COSINE if self.mixed else None,
            target=settings.target,
            activations=self.activations,
            weights=self.weights,
            bias_correction=not buckets and scheme is None,  # else plans would differ in weights
            limit=max(len(samples), 1),
            scheme=scheme,
            warn=LOG.warning,
        )


def _types(activations: str, weights: str, target: str) -> tuple[str, str]:
    """Types that the target computes."""
    if "int16" in (activations, weights) and target == "k210":
        raise BadInput(
            "k210 computes 8 bits only; set quant_type and w_quant_type to 'uint8', or another "
            "target"
        )
    if activations == weights == "int16":
        LOG.warning("quant_type and w_quant_type are both int16, which a K230 does not compute")
    if weights == "int16" and activations != "int16":
        LOG.warning("w_quant_type is int16: activations of these layers are int16 too")
        activations = "int16"
    return activations, "int16" if weights == "int16" else "int8"


def _choice(name: str, given: Any, known: dict[str, str], shown: str) -> str:
    found = known.get(str(given).lower())
    if found is None:
        raise BadInput(f"{name} is {given!r}; it is one of {shown}")
    return found


def zeros(graph: Graph) -> list[Sample]:
    """One sample of zeros."""
    return [{v.name: np.zeros(v.shape, dtypes.numpy_of(v.dtype)) for v in graph.inputs}]
