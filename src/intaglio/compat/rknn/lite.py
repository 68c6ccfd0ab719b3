"""`RKNNLite`, the class for programs on boards; here the simulator of the chip runs the model."""

from __future__ import annotations

from typing import Any

from intaglio.compat.guard import guarded
from intaglio.compat.rknn.device import Device


class RKNNLite(Device):
    """Runs a file that `RKNN.export_rknn` wrote."""

    @guarded(-1)
    def init_runtime(
        self,
        target: Any = None,
        device_id: Any = None,
        async_mode: bool = False,
        core_mask: int = Device.NPU_CORE_AUTO,
    ) -> int:
        """Make the loaded model ready to run.

        Deviation: the simulator runs it, on any machine.

        Missing: connections to boards; with async_mode, inference waits for its own frame.
        """
        if async_mode:
            self.log.warning("init_runtime: async_mode: inference still waits for its own frame")
        self._async = bool(async_mode)
        return self._start(target, device_id, core_mask, "load_rknn")

    @guarded(None)
    def inference(
        self,
        inputs: Any,
        data_type: Any = None,
        data_format: Any = None,
        inputs_pass_through: Any = None,
        get_frame_id: bool = False,
    ) -> Any:
        """Run the model; the outputs in order, None after a mistake."""
        return self._inference(inputs, data_format, inputs_pass_through, get_frame_id)
