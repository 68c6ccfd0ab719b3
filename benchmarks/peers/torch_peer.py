"""PyTorch, compiled ahead of time by Inductor with frozen weights; bf16 by autocast.

Inductor takes 10 to 50 seconds for most networks, but many minutes for some: those are traced and
frozen instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.models import Case
from benchmarks.peers import Array

ENGINE = "torch"
PACKAGES = ("torch",)
PRECISIONS = ("f32", "bf16")
PATIENCE = 120.0  # seconds for Inductor


def convert(case: Case, folder: Path, threads: int, precision: str) -> Path:
    import torch
    from torch._inductor import aoti_compile_and_package, config

    torch.set_num_threads(threads)
    config.freezing = True
    config.cpp.dynamic_threads = True  # one library for any number of threads
    with torch.no_grad(), _autocast(precision):
        program = torch.export.export(case.net(), _samples(case))
        aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    return folder / "model.pt2"


def instead(case: Case, folder: Path, threads: int, precision: str) -> Path:
    import torch

    torch.set_num_threads(threads)
    with torch.no_grad(), _autocast(precision):
        traced = torch.jit.trace(case.net().eval(), _samples(case), check_trace=False)
        torch.jit.freeze(traced).save(str(folder / "model.ts"))
    return folder / "model.ts"


def note(file: Path) -> str | None:
    """A note for readers of the figures."""
    if file.suffix == ".pt2":
        return None
    return f"traced and frozen, because Inductor took longer than {PATIENCE:.0f} s"


def _samples(case: Case) -> tuple[Any, ...]:
    import torch

    return tuple(map(torch.from_numpy, case.feeds.values()))


def _autocast(precision: str) -> Any:
    import torch

    return torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)


class Runner:
    def __init__(self, file: Path, feeds: dict[str, Array], threads: int, precision: str) -> None:
        import torch

        torch.set_num_threads(threads)
        self.inputs = [torch.from_numpy(a) for a in feeds.values()]
        self.grad = torch.inference_mode()
        self.grad.__enter__()
        if file.suffix == ".pt2":
            self.net = torch._inductor.aoti_load_package(str(file))
        else:
            self.net = torch.jit.optimize_for_inference(torch.jit.load(str(file)))

    def run(self) -> None:
        self.made = self.net(*self.inputs)

    def outputs(self) -> list[Array]:
        made = self.made if isinstance(self.made, list | tuple) else [self.made]
        return [
            t.float().numpy().copy() if t.is_floating_point() else t.numpy().copy() for t in made
        ]


load = Runner
