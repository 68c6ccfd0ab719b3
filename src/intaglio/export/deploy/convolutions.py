"""Prints convolutions and poolings: fields of their windows, packed weights, temporary memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from intaglio.export.deploy.packing import COLUMN_UNIT, pack_dense, pack_rows, unfolded_bytes
from intaglio.ir import Array
from intaglio.plan import Step, Tensor

if TYPE_CHECKING:
    from intaglio.export.deploy.calls import Printer

MAX_EXACT_SUM = 1 << 24  # whole numbers below it are exact in f32
MAX_EXACT_RESULT = 1 << 14
EXACT_SCALES = (2.0**-24, 2.0**7)
PLANE = 4096  # bytes of a copied channel, as in itg_planes.c


def window_fields(step: Step, x_zero: int = 0, y_zero: int = 0) -> dict[str, Any]:
    """The fields of itg_window of a convolution or pooling; images of one line have height 1."""
    x, y = step.inputs[0], step.outputs[0]
    assert x is not None
    ins, outs, attrs = list(x.type.shape), list(y.type.shape), dict(step.attrs)
    kernel = tuple(attrs["kernel"]) if "kernel" in attrs else _tensor(step, 1).type.shape[1:3]
    line = len(ins) == 3
    if line:
        ins.insert(1, 1)
        outs.insert(1, 1)
        kernel = (1, *kernel)
    stride, dilation = ((1,) * line + tuple(attrs[k]) for k in ("stride", "dilation"))
    top, left = (0, attrs["pad"][0]) if line else attrs["pad"][:2]
    u8 = {t: 128 * (v.type.dtype == "u8") for t, v in (("x", x), ("y", y))}
    return {
        **dict(zip(("n", "h", "w", "c"), ins, strict=True)),
        **dict(zip(("oh", "ow", "oc"), outs[1:], strict=True)),
        "kh": kernel[0],
        "kw": kernel[1],
        "sh": stride[0],
        "sw": stride[1],
        "top": top,
        "left": left,
        "dh": dilation[0],
        "dw": dilation[1],
        "groups": attrs.get("groups", 1),
        "x_zero": x_zero - u8["x"],
        "y_zero": y_zero - u8["y"],
        "x_flip": u8["x"],
        "y_flip": u8["y"],
    }


def _tensor(step: Step, i: int) -> Tensor:
    t = step.inputs[i]
    assert t is not None
    return t


def _data(step: Step, i: int) -> Array:
    data = _tensor(step, i).data
    assert data is not None
    return data


@dataclass
class Convolution:
    """A step micro.conv in one form of the kernels."""

    step: Step
    form: str
    pointer_bytes: int

    @cached_property
    def fields(self) -> dict[str, Any]:
        attrs = self.step.attrs
        return window_fields(self.step, attrs["x_zero"], attrs["y_zero"])

    @property
    def is_depthwise(self) -> bool:
        f = self.fields
        eight = self.step.attrs["dtype"] != "f32" and not self.has_more
        return bool(f["groups"] == f["c"] == f["oc"] > 1 and eight)

    @property
    def is_planar(self) -> bool:
        """3x3 windows that the form DSP moves over a copied channel."""
        f = self.fields
        steps = (f["dh"], f["dw"]) == (1, 1) and f["sw"] in (1, 2) and f["left"] <= 2
        square = (f["kh"], f["kw"]) == (3, 3) and (f["sw"] == 2 or f["sh"] == 1)
        return self.form == "dsp" and self.is_depthwise and steps and square

    @property
    def has_more(self) -> bool:
        """Whether a residual is added, or a table looked up."""
        return any(t is not None for t in self.step.inputs[5:7])

    @property
    def is_dense(self) -> bool:
        """One window that is the whole image, in a form with a kernel for it."""
        f = self.fields
        whole = (f["n"], f["groups"], f["oh"], f["ow"]) == (1, 1, 1, 1)
        same = (f["kh"], f["kw"]) == (f["h"], f["w"]) and not any(self.step.attrs["pad"])
        return self.form == "dsp" and whole and same and not self.has_more

    @property
    def kernel(self) -> str:
        """The C file and function."""
        if self.is_planar:
            return "planes"
        return "depthwise" if self.is_depthwise else "dense" if self.is_dense else "conv"

    @property
    def products(self) -> int:
        """Products of one output."""
        f = self.fields
        return int(f["kh"] * f["kw"] * (f["c"] // f["groups"]))

    @property
    def scratch(self) -> int:
        """Bytes of temporary memory."""
        f = self.fields
        if self.is_planar:
            pitch = ((f["ow"] - 1) * f["sw"] + 5) // 2 * 2
            fit = PLANE // (2 * pitch) - 3
            lines = min(1 if fit < 0 else fit // f["sh"] + 1, f["oh"])
            return int(2 * pitch * ((lines - 1) * f["sh"] + 3))
        if self.is_depthwise:
            return int(self.pointer_bytes * self.products + f["c"])
        if self.is_dense:
            return 0
        direct = self.form != "dsp" and not f["x_flip"] and f["kh"] == f["kw"] == f["groups"] == 1
        direct = direct and not any(self.step.attrs["pad"])
        direct = direct and self.products % COLUMN_UNIT[self.form] == 0
        return 0 if direct else unfolded_bytes(self.products, f["n"] * f["oh"] * f["ow"], self.form)

    def bias(self) -> Array:
        """The bias with all terms that do not depend on the image."""
        rows = _data(self.step, 1).reshape(self.fields["oc"], -1).astype(np.int64)
        x_zero, zeros = self.fields["x_zero"], self._zeros
        whole: Array = _data(self.step, 2) - x_zero * (rows.sum(1) - rows.shape[1] * zeros)
        return whole

    @property
    def _zeros(self) -> Array:
        zeros = self.step.inputs[4]
        return np.zeros(self.fields["oc"], np.int64) if zeros is None else _data(self.step, 4)

    def exact(self) -> bool:
        """Whether all sums and scales have the bounds of the integer requantisation."""
        rows = _data(self.step, 1).reshape(self.fields["oc"], -1).astype(np.int64)
        farthest = max(127 - self.fields["x_zero"], self.fields["x_zero"] + 128)
        sums = np.abs(rows - self._zeros.astype(np.int64)[:, None]).sum(1) * farthest
        sums, scale = sums + np.abs(_data(self.step, 2)), _data(self.step, 3)
        within = (scale >= EXACT_SCALES[0]) & (scale < EXACT_SCALES[1])
        return bool((sums < MAX_EXACT_SUM).all() and (sums * scale < MAX_EXACT_RESULT).all()) and (
            bool(within.all())
        )

    def weights(self) -> Array:
        """Weights in the order that the kernel reads."""
        w, f = _data(self.step, 1), self.fields
        if self.is_planar:
            return np.ascontiguousarray(w[:, :, :, 0])
        if self.is_depthwise:
            return np.ascontiguousarray(w[:, :, :, 0].transpose(1, 2, 0))
        if self.is_dense:
            return pack_dense(w.reshape(f["oc"], -1))
        rows = w.reshape(f["groups"], f["oc"] // f["groups"], -1)
        return np.concatenate([pack_rows(group, self.form) for group in rows])

    def call(self, p: Printer, scratch: str) -> None:
        floats = self.step.attrs["dtype"] == "f32"
        scale = _data(self.step, 3)
        per = int((scale != scale[0]).any())
        whole = {"exact": int(self.exact()), "floats": int(floats), "per": per}
        whole["pairs"] = int(_data(self.step, 1).min(initial=0) > -128)
        layer = p.layer("itg_window", {**self.fields, **whole})
        constants = [self.weights(), self.bias().astype(np.int32), scale if per else scale[:1]]
        zeros = "0" if self.step.inputs[4] is None else p.constant(_data(self.step, 4))
        x, y = self.step.inputs[0], self.step.outputs[0]
        name = self.kernel
        places = p.address(x), p.address(y, "float" if floats else "int8_t"), scratch
        more = [self.more(p)] if name == "conv" else []
        p.call(name, f"itg_{name}", layer, *map(p.constant, constants), zeros, *more, *places)

    def more(self, p: Printer) -> str:
        """The residual and table of a convolution as an argument."""
        if not self.has_more:
            return "0"
        (r, table), attrs, fields = self.step.inputs[5:7], self.step.attrs, {}
        if r is not None:
            off = 128 * (r.type.dtype == "u8")
            fields = {"residual": p.address(r, "float" if r.type.dtype == "f32" else "int8_t")}
            fields |= {"r_zero": str(attrs["r_zero"] - off), "r_flip": str(off)}
            fields |= {"r_scale": f"{float(np.float32(attrs['r_scale'])).hex()}f"}
        if table is not None:
            data = _data(self.step, 6)
            fields |= {"table": p.constant(data.view(np.uint8)), "y_zero": str(attrs["y_zero"])}
            fields |= {"lo": str(attrs["lo"]), "hi": str(attrs["lo"] + len(data) - 1)}
        return "&(const itg_more){" + ", ".join(f".{k} = {v}" for k, v in fields.items()) + "}"
