"""Compile a trained network, run it natively, and print its accuracy, latency and memory."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import intaglio

HERE = Path(__file__).parent


def main() -> None:
    print("Intaglio demo: a handwritten-digit classifier, from ONNX to a native package\n")
    start = time.perf_counter()
    package = intaglio.compile(HERE / "digits.onnx", dims={"batch": 1})
    seconds = time.perf_counter() - start
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.itg"
        package.save(path)
        size = path.stat().st_size
        print(f"compiled   in {seconds:.2f} s: {size:,} bytes, {package.steps} steps")
        with np.load(HERE / "digits_test.npz") as data:
            images, labels = data["images"].astype(np.float32) / 16, data["labels"]
        with intaglio.open(path, threads=1) as session:
            right, times = 0, []
            for image, label in zip(images, labels, strict=True):
                start = time.perf_counter()
                outputs = session.run({"image": image[None]})
                times.append((time.perf_counter() - start) * 1e6)
                right += int(outputs["probabilities"].argmax()) == label
            memory = session.memory()
        print(f"accuracy   {right} of {len(labels)} test images right: {right / len(labels):.2%}")
        median = statistics.median(times)
        print(f"latency    {min(times):.0f} µs fastest, {median:.0f} µs median, on one thread")
        print(f"memory     {memory['weights']:,} bytes of weights, mapped and not copied")
        print(
            f"           {memory['arena']:,} bytes of intermediate tensors, planned at compile time"
        )
        with intaglio.open(path) as session:
            some = images[:6]
            guesses = [session.run({"image": i[None]})["probabilities"].argmax() for i in some]
    print("\n" + draw(some[:, 0]))
    print("   ".join(f"it is a {g}".center(16) for g in guesses))
    print("\nWhat to try next")
    print("  make build    adds kernels for the other instruction sets of this CPU (int8, bf16)")
    print("  .venv/bin/intaglio inspect examples/digits/digits.onnx --dim batch=1")
    print("  .venv/bin/intaglio compile examples/digits/digits.onnx --dim batch=1 -o digits.itg")
    print("  .venv/bin/intaglio bench digits.itg --layers")
    print("  your own model: .venv/bin/intaglio compile model.onnx")
    print("  tutorials: docs/tutorials, or `make site`")


def draw(images: np.ndarray) -> str:
    """Images of values 0 to 1 side by side, in characters."""
    ink = np.array(list(" .:-=+*#%@"))
    marks = ink[np.clip(images * 9, 0, 9).round().astype(int)]
    rows = range(images.shape[1])
    return "\n".join("   ".join("".join(np.repeat(m[r], 2)) for m in marks) for r in rows)


if __name__ == "__main__":
    main()
