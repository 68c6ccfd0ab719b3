"""Make the digits classifier smaller, step by step: prune, distil, quantise to 4 bits.

    python examples/compress/digits.py

Needs PyTorch and scikit-learn: `pip install torch==2.13.0 scikit-learn`. It takes about a minute.
Training sees the digits that are not among the 360 of digits_test.npz; these measure accuracy.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import intaglio
from intaglio.compress import Distillation, Labelled, Logits, Recipe, Teacher, Training

HERE = Path(__file__).parent
EPOCHS = 12


def digits() -> tuple[Labelled, Labelled]:
    """Data to train with, and the digits that the network never saw."""
    kept = np.load(HERE.parent / "digits" / "digits_test.npz")
    unseen = {image.tobytes() for image in kept["images"]}
    data = load_digits()
    images = data.images[:, None].astype(np.uint8)
    new = np.array([image.tobytes() not in unseen for image in images])
    # pixels from 0 to 16 become 0 to 1, as digits.onnx takes them
    scale = {"mean": (0.0,), "std": (16.0,)}
    train = Labelled(images[new], data.target[new], **scale)
    return train, Labelled(kept["images"], kept["labels"], **scale)


def main() -> None:
    train, test = digits()
    recipe = Recipe(HERE.parent / "digits" / "digits.onnx", dims={"batch": 1})
    print(f"as loaded            {recipe.accuracy(test):6.2f} %")

    teacher = Teacher(recipe.graph)
    pruned = recipe.prune(macs=0.35, criterion="taylor", data=train, round_to=8)
    print(f"pruned               {recipe.accuracy(test):6.2f} %   {pruned}")

    distil = Distillation([teacher], [Logits(temperature=4.0)])
    recipe.train(train, Training(epochs=EPOCHS, batch=32, rate=0.003), loss=distil)
    print(f"trained by teacher   {recipe.accuracy(test):6.2f} %")

    samples = [{"image": train.floats(x[None]).numpy()} for x in train.x[:50]]
    recipe.quantize(samples, weights=4, activations=4, fast=True)
    print(f"4 bits, calibrated   {recipe.accuracy(test):6.2f} %")
    recipe.train(train, Training(epochs=EPOCHS, batch=32, rate=0.002), loss=distil)
    print(f"4 bits, trained      {recipe.accuracy(test):6.2f} %")

    graph = recipe.finish()  # refuses unless the twin equals the interpreter in every byte
    with intaglio.open(intaglio.compile(graph)) as session:
        name = next(iter(graph.output_names))
        right = [
            int(np.argmax(session.run({"image": test.floats(x[None]).numpy()})[name])) == y
            for x, y in zip(test.x, test.y, strict=True)
        ]
    print(f"compiled package     {100 * np.mean(right):6.2f} %")


if __name__ == "__main__":
    main()
