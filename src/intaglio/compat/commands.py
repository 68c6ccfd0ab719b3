"""The vendors' command lines: names, and the functions that run them.

python -m intaglio.compat model_transform --model_name net ...
python -m intaglio.compat -m ufw.cali.cali_model --net_name net ...
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from intaglio.compat.log import Log
from intaglio.errors import IntaglioError, did_you_mean

TPU_MLIR, NNTC = "intaglio.compat.tpu_mlir", "intaglio.compat.nntc"
FRONT_ENDS = ("bmneto", "bmnetp", "bmnetc", "bmnett", "bmnetd", "bmnetu", "bmpaddle", "bmnetm")
COMMANDS = {  # name without .py -> module and function
    "model_transform": (f"{TPU_MLIR}.transform", "main"),
    "run_calibration": (f"{TPU_MLIR}.calibration", "main"),
    "run_qtable": (f"{TPU_MLIR}.calibration", "qtable"),
    "fp_forward": (f"{TPU_MLIR}.fp_forward", "main"),
    "model_deploy": (f"{TPU_MLIR}.deploy", "main"),
    "model_runner": (f"{TPU_MLIR}.runner", "main"),
    "model_tool": (f"{TPU_MLIR}.model_tool", "main"),
    "npz_tool": (f"{TPU_MLIR}.npz_tool", "main"),
    "tpu_model": (f"{TPU_MLIR}.model_tool", "main"),
    **{name: (f"{NNTC}.bmnet", name) for name in FRONT_ENDS},
    "ufw.cali.cali_model": (f"{NNTC}.cali_model", "main"),
    "ufw.tools.app": (f"{NNTC}.cali_model", "show_precision"),
    "ncc": ("intaglio.compat.nncase.ncc", "main"),
    "install-scripts": ("intaglio.compat.launchers", "main"),
}
FAILED = 2  # exit code for a wrong option, file or model


def find(name: str) -> str | None:
    """The command of this name, with or without .py; None if there is none."""
    plain = name.removesuffix(".py")
    return plain if plain in COMMANDS else None


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a command: its exit code, or 2 and one line for a mistake of the user."""
    log = Log()
    found = find(name)
    if found is None:
        log.error(f"no command is called '{name}'{did_you_mean(name, COMMANDS) or known()}")
        return FAILED
    module, function = COMMANDS[found]
    try:
        with log.collecting():
            code: int = getattr(import_module(module), function)(list(arguments), log)
        return code
    except IntaglioError as e:
        log.error(f"{found}: {' '.join(str(e).split())}")
    except OSError as e:
        log.error(f"{found}: {e.filename or ''}: {(e.strerror or str(e)).lower()}")
    except MemoryError:
        log.error(f"{found}: out of memory; use a smaller model, batch or dataset")
    except SystemExit as e:  # of argparse, after --help
        sys.stdout.flush()
        return int(e.code or 0)
    return FAILED


def known() -> str:
    """The names of all commands, for a message."""
    return f"; commands are {', '.join(COMMANDS)}"
