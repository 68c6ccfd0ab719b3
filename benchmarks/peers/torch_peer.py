"""PyTorch, compiled ahead of time by Inductor with frozen weights; bf16 by autocast."""

from __future__ import annotations

from pathlib import Path

from benchmarks.models import Case
from benchmarks.peers import Array

ENGINE = "torch"
PACKAGES = ("torch",)
PRECISIONS = ("f32", "bf16")


def convert(case: Case, folder: Path, threads: int, precision: str) -> Path:
    import torch
    from torch._inductor import aoti_compile_and_package, config

    torch.set_num_threads(threads)
    config.freezing = True
    config.cpp.dynamic_threads = True  # one library for any number of threads
    samples = tuple(map(torch.from_numpy, case.feeds.values()))
    small = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)
    with torch.no_grad(), small:
        program = torch.export.export(case.net(), samples)
        aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    return folder / "model.pt2"


class Runner:
    def __init__(self, file: Path, feeds: dict[str, Array], threads: int, precision: str) -> None:
        import torch

        torch.set_num_threads(threads)
        self.inputs = [torch.from_numpy(a) for a in feeds.values()]
        self.grad = torch.inference_mode()
        self.grad.__enter__()
        self.net = torch._inductor.aoti_load_package(str(file))

    def run(self) -> None:
        self.made = self.net(*self.inputs)

    def outputs(self) -> list[Array]:
        made = self.made if isinstance(self.made, list | tuple) else [self.made]
        return [
            t.float().numpy().copy() if t.is_floating_point() else t.numpy().copy() for t in made
        ]


load = Runner
