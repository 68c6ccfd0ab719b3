"""The options of model_runner."""

from __future__ import annotations

from intaglio.compat.tpu_mlir.option_table import Command, flag, option

RUNNER = Command(
    "model_runner",
    "Runs a model file on the arrays of an .npz and writes its outputs.",
    (
        option("--input", "an .npz with the inputs by name", required=True),
        option(
            "--model",
            "ONNX, TFLite, Caffe or other model, .mlir, .bmodel, .cvimodel or .itg",
            required=True,
        ),
        option("--weight", "the weights of a Caffe model", default=""),
        option("--output", "the .npz to write", default="_output.npz"),
        flag("--dump_all_tensors", "writes all tensors; of models and .mlir files"),
        option("--debug", "ignored: it is for the vendor's developers", nargs="?"),
        flag("--out_fixed", "outputs stay bytes"),
        flag("--cuda", "ignored: files run in Intaglio's simulator"),
        option("--decrypt_lib", "refused: give the decrypted file", default=""),
        option("--ip", "refused: files run in Intaglio's simulator; leave it out", default=""),
        option("--pwd", "ignored: it belongs to --ip", default=""),
    ),
)
