"""Train the demo's network on scikit-learn's handwritten digits and write it as ONNX.

Needs `pip install torch==2.13.0 scikit-learn onnx`. The result ships with the repository, so that
nobody has to run this: digits.onnx (the network) and digits_test.npz (the images it never saw).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).parent


class Block(nn.Module):
    """Depthwise 3x3 and pointwise convolution with a shortcut, as MobileNets have it."""

    def __init__(self, channels: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.pointwise = nn.Conv2d(channels, channels, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm1(self.depthwise(x)))
        return torch.relu(x + self.norm2(self.pointwise(y)))


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(32)
        self.block1, self.block2 = Block(32), Block(32)
        self.down = nn.Conv2d(32, 64, 3, stride=2, padding=1)
        self.classify = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(self.down(self.block2(self.block1(x))))
        return self.classify(x.mean((2, 3)))


def to_onnx(net: Digits, path: Path) -> None:
    """Spell the network out as an exporter would: every norm and activation is a node."""
    nodes, weights = [], []

    def tensor(name: str, value: torch.Tensor) -> str:
        weights.append(numpy_helper.from_array(value.detach().numpy(), name))
        return name

    def emit(op: str, name: str, inputs: list[str], **attrs: object) -> str:
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attrs))
        return name

    def conv(name: str, x: str, layer: nn.Conv2d) -> str:
        inputs = [x, tensor(f"{name}.weight", layer.weight)]
        if layer.bias is not None:
            inputs.append(tensor(f"{name}.bias", layer.bias))
        pads = [*layer.padding, *layer.padding]
        return emit(
            "Conv",
            name,
            inputs,
            kernel_shape=list(layer.kernel_size),
            pads=pads,
            strides=list(layer.stride),
            group=layer.groups,
        )

    def norm(name: str, x: str, layer: nn.BatchNorm2d) -> str:
        parts = {
            "scale": layer.weight,
            "bias": layer.bias,
            "mean": layer.running_mean,
            "var": layer.running_var,
        }
        inputs = [x, *(tensor(f"{name}.{k}", v) for k, v in parts.items())]
        return emit("BatchNormalization", name, inputs, epsilon=layer.eps)

    def block(name: str, x: str, layer: Block) -> str:
        y = conv(f"{name}.depthwise", x, layer.depthwise)
        y = emit("Relu", f"{name}.relu1", [norm(f"{name}.norm1", y, layer.norm1)])
        y = norm(f"{name}.norm2", conv(f"{name}.pointwise", y, layer.pointwise), layer.norm2)
        return emit("Relu", f"{name}.relu2", [emit("Add", f"{name}.add", [x, y])])

    x = emit("Relu", "stem.relu", [norm("norm", conv("stem", "image", net.stem), net.norm)])
    x = block("block2", block("block1", x, net.block1), net.block2)
    x = emit("Relu", "down.relu", [conv("down", x, net.down)])
    x = emit("Flatten", "features", [emit("GlobalAveragePool", "pool", [x])])
    w, b = (
        tensor("classify.weight", net.classify.weight),
        tensor("classify.bias", net.classify.bias),
    )
    x = emit("Gemm", "logits", [x, w, b], transB=1)
    emit("Softmax", "probabilities", [x], axis=1)
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        weights,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
        producer_name="intaglio examples",
    )
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())


def main() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    images = digits.images.astype(np.float32)[:, None] / 16
    parts = train_test_split(
        images, digits.target, test_size=360, random_state=0, stratify=digits.target
    )
    train_x, test_x, train_y, test_y = (torch.from_numpy(np.ascontiguousarray(p)) for p in parts)
    net, epochs = Digits(), 60
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for epoch in range(epochs):
        net.train()
        for rows in torch.randperm(len(train_x)).split(64):
            x = train_x[rows]
            shift = torch.randint(
                -1, 2, (2,)
            ).tolist()  # a pixel up, down, left or right is the same digit
            x = torch.roll(x, shift, (2, 3)) + 0.03 * torch.randn_like(x)
            loss = nn.functional.cross_entropy(net(x), train_y[rows], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
        net.eval()
        with torch.no_grad():
            right = (net(test_x).argmax(1) == test_y).float().mean().item()
        print(f"epoch {epoch + 1:2}: loss {loss.item():.3f}, test accuracy {right:.2%}")
    to_onnx(net, HERE / "digits.onnx")
    pixels = np.round(test_x.numpy() * 16).astype(np.uint8)
    np.savez_compressed(
        HERE / "digits_test.npz", images=pixels, labels=test_y.numpy().astype(np.uint8)
    )


if __name__ == "__main__":
    main()
