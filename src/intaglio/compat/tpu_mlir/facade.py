"""What docs/compat-sophgo.md lists."""

from __future__ import annotations

from intaglio.compat.conformance import Facade
from intaglio.compat.nntc.bmnet import BMNET, BMNETU
from intaglio.compat.nntc.cali_model import CALI_MODEL
from intaglio.compat.tpu_mlir.calibration_options import CALIBRATION, QTABLE
from intaglio.compat.tpu_mlir.deploy_options import DEPLOY
from intaglio.compat.tpu_mlir.fp_forward import FORWARD
from intaglio.compat.tpu_mlir.model_tool import TOOL
from intaglio.compat.tpu_mlir.npz_tool import TOOL as NPZ_TOOL
from intaglio.compat.tpu_mlir.runner_options import RUNNER
from intaglio.compat.tpu_mlir.transform_options import TRANSFORM

HEAD = (
    "The command lines of tpu-mlir 1.30 and tpu-nntc: `intaglio compat model_transform ...`, also "
    "with `.py` at the end of the name.\n"
    "[From tpu-mlir and tpu-nntc](migrate-sophgo.md) shows how to use them.\n\n"
    "`ignored`: the option is accepted and has no effect; a line that begins with `W` says so. "
    "`refused`: the command ends with\nexit code 2 and a line that says what to do instead. All "
    "other options work. *Tested* options stand in a command line of `tests/compat`."
)


def facade() -> Facade:
    """All command lines."""
    commands = (
        *(TRANSFORM, CALIBRATION, QTABLE, FORWARD, DEPLOY, RUNNER, TOOL, NPZ_TOOL),
        *(BMNET, BMNETU, CALI_MODEL),
    )
    return Facade("tpu-mlir and tpu-nntc: what is supported", HEAD, {}, {}, commands=commands)
