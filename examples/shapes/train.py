"""Train a detector of coloured shapes and write it as ONNX.

Needs `pip install torch==2.13.0 onnx onnxscript pillow`. The result ships with the repository, so
that nobody has to run this: shapes.onnx (the network), with the names of its classes inside, and
picture.jpg, which it never saw. Five minutes on a GPU.

The output has YOLOv8's layout, [1, 4 + classes, cells]: centre x, centre y, width and height in
pixels of the 160 x 160 input, then a score for each class.
"""

from __future__ import annotations

import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import torch
from PIL import Image
from torch import Tensor, nn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from draw import NAMES, scene  # noqa: E402  # the folder is no package

SIZE, STRIDES, GREY = 160, (8, 16), 114
SIZES = ((160, 120), (120, 160), (160, 160), (200, 150))  # width and height of the pictures
LARGE = 26  # pixels: larger shapes belong to the coarse level
PICTURES, STEPS, BATCH, PART = 24000, 10000, 32, 500
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Block(nn.Module):
    """Depthwise 3x3 and pointwise convolution, with a shortcut where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.depthwise = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
        self.norm1 = nn.BatchNorm2d(inputs)
        self.pointwise = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(self.depthwise(x)))
        y = self.norm2(self.pointwise(y))
        return torch.relu(x + y if self.shortcut else y)


def convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    layers = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layers, nn.BatchNorm2d(outputs), nn.ReLU())


class Shapes(nn.Module):
    """A backbone of strides 8 and 16, a top-down path, and one head for both levels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolution(3, 16, stride=2), convolution(16, 32, stride=2))
        self.fine = nn.Sequential(
            Block(32, 32), Block(32, 64, 2), Block(64, 64), Block(64, 64), Block(64, 64)
        )
        self.coarse = nn.Sequential(Block(64, 64, 2), Block(64, 64), Block(64, 64))
        self.merge = convolution(128, 64, 1)
        self.head = nn.Sequential(Block(64, 64), Block(64, 64))
        self.box, self.score = nn.Conv2d(64, 4, 1), nn.Conv2d(64, len(NAMES), 1)
        nn.init.constant_(self.score.bias, -4.6)  # scores start at 0.01

    def forward(self, x: Tensor) -> Tensor:
        fine = self.fine(self.stem(x))
        coarse = self.coarse(fine)
        above = nn.functional.interpolate(coarse, scale_factor=2.0, mode="nearest")
        levels = (self.merge(torch.cat([fine, above], 1)), coarse)
        return torch.cat([self._level(y, s) for y, s in zip(levels, STRIDES, strict=True)], 2)

    def _level(self, y: Tensor, stride: int) -> Tensor:
        y = self.head(y)
        distances = torch.exp(self.box(y)).flatten(2) * stride
        low = cells(stride, y.device).T - distances[:, :2]
        high = cells(stride, y.device).T + distances[:, 2:]
        scores = torch.sigmoid(self.score(y)).flatten(2)
        return torch.cat([(low + high) / 2, high - low, scores], 1)


def cells(stride: int, device: torch.device | str) -> Tensor:
    """Centre x and y of every cell of a level, in pixels."""
    along = (torch.arange(SIZE // stride, device=device) + 0.5) * stride
    y, x = torch.meshgrid(along, along, indexing="ij")
    return torch.stack([x.flatten(), y.flatten()], 1)


# ---- data ----
PLACES = [cells(stride, "cpu").numpy() for stride in STRIDES]


def letterboxed(picture: Image.Image) -> tuple[np.ndarray, float, int, int]:
    """The picture in the middle of a grey square, its factor and its place."""
    factor = SIZE / max(picture.size)
    width, height = (round(n * factor) for n in picture.size)
    made = np.full((SIZE, SIZE, 3), GREY, np.uint8)
    left, top = (SIZE - width) // 2, (SIZE - height) // 2
    small = picture.resize((width, height), Image.Resampling.BILINEAR)
    made[top : top + height, left : left + width] = np.asarray(small)
    return made, factor, left, top


def targets(boxes: np.ndarray) -> np.ndarray:
    """Of every cell: class or -1, then left, top, right, bottom of its shape."""
    made = []
    for level, stride in enumerate(STRIDES):
        middle = PLACES[level]
        rows = np.full((len(middle), 5), -1, np.float32)
        for label, *box in boxes:
            low, high = np.array(box[:2]), np.array(box[2:])
            if ((high - low).max() > LARGE) != level:
                continue
            near = np.abs(middle - (low + high) / 2).max(1) < 0.75 * stride
            rows[near & (middle > low).all(1) & (middle < high).all(1)] = (label, *box)
        made.append(rows)
    return np.concatenate(made)


def dataset(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures and targets, drawn by all cores."""
    with ProcessPoolExecutor() as pool:
        parts = list(pool.map(part, [(seed, i) for i in range(count // PART)]))
    pictures, rows = (torch.from_numpy(np.concatenate(p)) for p in zip(*parts, strict=True))
    return pictures, rows


def part(seed: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    rng, pictures, rows = np.random.default_rng(seed), [], []
    for _ in range(PART):
        width, height = SIZES[rng.integers(len(SIZES))]
        picture, boxes = scene(rng, width, height)
        pixels, factor, left, top = letterboxed(picture)
        placed = np.array(boxes, np.float32).reshape(-1, 5)
        placed[:, 1:] = placed[:, 1:] * factor + (left, top, left, top)
        pictures.append(pixels.transpose(2, 0, 1))
        rows.append(targets(placed))
    return np.stack(pictures), np.stack(rows)


def varied(x: Tensor) -> Tensor:
    """Colours in another order, and half of the pictures inverted: neither moves a shape."""
    x = x[:, torch.randperm(3, device=x.device)]
    return torch.where(torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5, x, 1 - x)


# ---- training ----
def loss_of(made: Tensor, wanted: Tensor) -> Tensor:
    """Focal loss of the scores, and 1 - IoU of the boxes."""
    middle, size, scores = made[:, :2], made[:, 2:4], made[:, 4:].transpose(1, 2)
    boxes = torch.cat([middle - size / 2, middle + size / 2], 1).transpose(1, 2)
    hit = wanted[..., 0] >= 0
    count = hit.sum().clamp(min=1)
    own, true = boxes[hit], wanted[hit][:, 1:]
    both = torch.minimum(own[:, 2:], true[:, 2:]) - torch.maximum(own[:, :2], true[:, :2])
    both = both.clamp(min=0).prod(1)
    areas = (own[:, 2:] - own[:, :2]).prod(1) + (true[:, 2:] - true[:, :2]).prod(1)
    overlap = both / (areas - both + 1e-6)
    right = torch.zeros_like(scores)
    right[hit] = nn.functional.one_hot(wanted[hit][:, 0].long(), len(NAMES)).float()
    scores = scores.clamp(1e-6, 1 - 1e-6)
    error = nn.functional.binary_cross_entropy(scores, right, reduction="none")
    focal = (error * (right - scores).abs() ** 1.5).sum() / count
    distance = (own - true).abs().mean(1) / 16
    return 2 * focal + (1 - overlap + 0.2 * distance).sum() / count


def train(net: Shapes) -> None:
    torch.manual_seed(0)
    print(f"drawing {PICTURES} pictures", flush=True)
    pictures, wanted = (t.to(DEVICE) for t in dataset(PICTURES, seed=1))
    optimizer = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=STEPS)
    net.to(DEVICE).train()
    for step in range(STEPS):
        rows = torch.randint(PICTURES, (BATCH,), device=DEVICE)
        loss = loss_of(net(varied(pictures[rows].float() / 255)), wanted[rows])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % 250 == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}", flush=True)
    net.cpu().eval()


def evaluate(net: Shapes, count: int = 1000) -> float:
    """The share of cells with a shape that score the right class above 0.5."""
    pictures, wanted = dataset(count, seed=2)
    with torch.no_grad():
        scores = torch.cat([net(p.float() / 255)[:, 4:] for p in pictures.split(50)])
    hit = wanted[..., 0] >= 0
    own = scores.transpose(1, 2)[hit]
    best, label = own.max(1)
    return float(((best > 0.5) & (label == wanted[hit][:, 0])).float().mean())


# ---- ONNX ----
def export(net: Shapes, path: Path) -> None:
    """Write the network, with the metadata that Ultralytics' exports have."""
    made = torch.onnx.export(
        net,
        (torch.zeros(1, 3, SIZE, SIZE),),
        input_names=["images"],
        output_names=["output0"],
        opset_version=18,
        dynamo=True,
    )
    model = made.model_proto
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    del model.graph.value_info[:]
    names = dict(enumerate(NAMES))
    about = {"task": "detect", "names": str(names), "imgsz": str([SIZE, SIZE])}
    onnx.helper.set_model_props(model, about)
    model.producer_name = "intaglio examples"
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())


def main() -> None:
    net = Shapes()
    print(f"{sum(p.numel() for p in net.parameters())} parameters")
    train(net)
    print(f"right class at {evaluate(net):.1%} of the shapes")
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    export(net, folder / "shapes.onnx")


if __name__ == "__main__":
    main()
