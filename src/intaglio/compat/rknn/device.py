"""What RKNN and RKNNLite share: constants, loading .rknn files, runs, devices and versions."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import intaglio
from intaglio.compat.distributions import RKNN
from intaglio.compat.guard import guarded
from intaglio.compat.log import Log
from intaglio.compat.rknn import model_file
from intaglio.compat.rknn.inference import Runtime
from intaglio.compat.rknn.inputs import InputInfo, read_inputs
from intaglio.compat.rknn.platforms import PLATFORMS, cores_of, platform
from intaglio.errors import BadInput
from intaglio.ir import Array
from intaglio.package import Package

API_VERSION = RKNN  # of RKNN-Toolkit2 whose methods these are
STARS = "*" * 25


class Device:
    """A model on the simulator of its chip."""

    NPU_CORE_AUTO = 0
    NPU_CORE_0 = 1
    NPU_CORE_1 = 2
    NPU_CORE_2 = 4
    NPU_CORE_0_1 = 3
    NPU_CORE_0_1_2 = 7
    NPU_CORE_ALL = 0xFFFF

    def __init__(self, verbose: bool | str = False, verbose_file: Any = None):
        try:
            self.log = Log(verbose, verbose_file)
        except BadInput as e:
            self.log = Log()
            self.log.error(str(e))
        self.package: Package | None = None
        self.infos: list[InputInfo] = []
        self.runtime: Runtime | None = None
        self._async = False  # whether inference may return the number of its frame
        self.log.info(f"intaglio {intaglio.__version__}, API of RKNN-Toolkit2 {API_VERSION}")

    @guarded(-1)
    def load_rknn(self, path: Any) -> int:
        """Load a file that `export_rknn` wrote.

        Deviation: a file of Rockchip's compiler is refused; damaged files are refused here too.
        """
        self.package = model_file.read(path)
        self.infos = read_inputs(self.package)
        return 0

    def _start(self, target: Any, device_id: Any, core_mask: Any, method: str) -> int:
        """Open a session; `core_mask` is checked against the chip."""
        if self.package is None:
            raise BadInput(f"there is no model; call {method} first")
        chip = str(self.package.meta.get("target"))
        if target is not None:
            self._check_target(target)
            board = f" {device_id}" if device_id is not None else ""
            self.log.warning(
                f"init_runtime: boards are not reached from here; the simulator of {chip} runs the "
                f"model instead of board{board or ' ' + str(target)}"
            )
        cores = cores_of(core_mask, chip) if chip in PLATFORMS else 1
        self._use_cores(cores)
        if self.runtime is not None:
            self.runtime.close()
        self.runtime = Runtime(self.package, self.infos)
        self.log.detail(f"init_runtime: simulator of {chip}, {cores} NPU core{'s' * (cores > 1)}")
        return 0

    def _check_target(self, target: Any) -> None:
        """BadInput if the model was not built for this chip."""
        assert self.package is not None
        if platform(target, "target") not in model_file.platforms_of(self.package):
            raise BadInput(
                f"target is '{target}', but the model was built for "
                f"{self.package.meta.get('target')}; build it with "
                f"config(target_platform='{target}')"
            )

    def _use_cores(self, cores: int) -> None:
        """A loaded file was compiled for its number of cores."""
        if cores > 1:
            self.log.warning(
                "init_runtime: the file was compiled for one NPU core; results are the same, and "
                "eval_perf predicts one core; build and init_runtime in one program for several"
            )

    def _inference(
        self, inputs: Any, data_format: Any, inputs_pass_through: Any, get_frame_id: bool
    ) -> Any:
        if self.runtime is None:
            raise BadInput("the runtime is not ready; call init_runtime first")
        found: list[Array] = self.runtime.run(inputs, data_format, inputs_pass_through, self.log)
        numbered = get_frame_id and self._async
        return (found, self.runtime.frames - 1) if numbered else found

    @guarded(None)
    def list_devices(self) -> tuple[list[str], list[str]]:
        """Print the connected boards.

        Missing: connections to boards; both lists are empty.
        """
        print(f"{STARS}\nNone devices connected.\n{STARS}")
        return [], []

    @guarded(None)
    def get_sdk_version(self) -> str | None:
        """The versions of the runtime, as text.

        Deviation: the driver is the simulator.
        """
        if self.runtime is None:
            raise BadInput("the runtime is not ready; call init_runtime first")
        assert self.package is not None
        chip = self.package.meta.get("target")
        return (
            f"RKNN VERSION:\n  API: {API_VERSION} (intaglio {intaglio.__version__})\n"
            f"  DRV: simulator of {chip}"
        )

    @guarded(None)
    def list_support_target_platform(self, rknn_model: Any = None) -> Any:
        """Print and return the chips that a model runs on, or all chips."""
        if rknn_model is None:
            found = OrderedDict({"support_target_platform": [p.upper() for p in PLATFORMS]})
            print(f"{STARS}\nTarget platforms: {found['support_target_platform']}\n{STARS}")
            return found
        package = model_file.read(rknn_model)
        target = str(package.meta.get("target"))
        found = OrderedDict(
            filled_target_platform=[target],
            support_target_platform=[p.upper() for p in model_file.platforms_of(package)],
        )
        print(
            f"{STARS * 2}\nTarget platforms filled in RKNN model: {found['filled_target_platform']}"
            f"\nTarget platforms supported by this RKNN model: {found['support_target_platform']}"
            f"\n{STARS * 2}"
        )
        return found

    def release(self) -> None:
        """Close the session; may be called twice."""
        if self.runtime is not None:
            self.runtime.close()
        self.runtime = self.package = None
        self.infos = []
        self.log.close()
