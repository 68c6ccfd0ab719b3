"""`utils.preprocess` of tpu-mlir: the words that --customization_format takes."""

from __future__ import annotations

from intaglio.compat.tpu_mlir.deploy_options import FORMATS

supported_customization_format = list(FORMATS)
