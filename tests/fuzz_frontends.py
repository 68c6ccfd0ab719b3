"""Fuzzing of model files: each mutant is read or refused, within limits of time and memory.

    python -m tests.fuzz_frontends [--count 2000] [--only tflite] [--seed 0]

Files are those of ../shared/models and some that the tests build. Bytes are changed, numbers put to
their limits, pieces cut out, doubled and cut off; records of archives are packed again with right
checksums. Every format has a process to itself, with a limit on its memory and a clock for each
file. A crash, a hang, memory beyond the limit or an error that is not ours fails; the file is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.shared_models import SHARED

import intaglio
from intaglio.errors import IntaglioError

SECONDS = 20  # of the CPU for one file
MEGABYTES = 2048  # above what the process has at first
EDGES = 2048  # bytes at the ends of a file, where its structure often is
NUMBERS = (b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"9999", b"-1, ")
Sample = tuple[Path, list[Path], dict[str, Any]]  # what to load, what to change, how to load it

FILES = {
    "onnx": ["onnx/mnist_cntk_26k.onnx", "onnx/yunet_n_320_320.onnx"],
    "tflite": [
        "tflite/trained_lstm.tflite",
        "tflite/kws_ref_model.tflite",
        "tflite/pretrainedResnet_quant.tflite",
        "tflite/trained_lstm_int8.tflite",
    ],
    "torch": ["torchscript/vit4mnist_dynq.pt"],
    "tensorflow": ["tf_pb/DS_CNN_S.pb", "tf_pb/Basic_LSTM_S.pb"],
    "caffe": ["caffe/mtcnn/det1.prototxt", "caffe/ultraface/RFB-320.prototxt"],
    "darknet": ["darknet/yolo-fastest-1.1.cfg"],
}
HALVES = {".prototxt": ".caffemodel", ".cfg": ".weights"}
HOW = {
    "vit4mnist_dynq.pt": {"shapes": {"img": (1, 1, 28, 28)}},
    "DS_CNN_S.pb": {"inputs": ["Mfcc"], "shapes": {"Mfcc": (1, 49, 10)}},
    "Basic_LSTM_S.pb": {"inputs": ["Mfcc"], "shapes": {"Mfcc": (1, 49, 10)}},
}


# ---- files ---------------------------------------------------------------------------------------
def samples(kind: str, folder: Path) -> list[Sample]:
    """Good files of a format, in a folder of our own."""
    found: list[Sample] = []
    for name in FILES[kind]:
        source = SHARED / "models" / name
        if source.exists():
            parts = [source]
            if source.suffix in HALVES:
                parts.append(source.with_suffix(HALVES[source.suffix]))
            mine = [Path(shutil.copy(p, folder)) for p in parts]
            found.append((mine[0], mine, HOW.get(source.name, {})))
    return found + list(built(kind, folder))


def built(kind: str, folder: Path) -> Iterator[Sample]:
    """Files that tests build; fewer where what they need is not installed."""
    made: list[Sample] = []
    with contextlib.suppress(ImportError, BaseSkip):
        made = list(BUILD[kind](folder))
    yield from made


def require_good(every: Sequence[Sample]) -> None:
    """RuntimeError unless every sample loads unchanged: mutants of a bad file test nothing.

    It also imports what loading needs, before the limit on memory is set.
    """
    if not every:
        raise RuntimeError("there is no sample of this format")
    for path, _, how in every:
        try:
            intaglio.load(path, **how)
        except IntaglioError as e:
            raise RuntimeError(f"the sample {path.name} does not load unchanged: {e}") from None


def _onnx(folder: Path) -> Iterator[Sample]:
    from tests.frontends.test_preprocess import net

    intaglio.save_onnx(net(), folder / "built.onnx")
    yield folder / "built.onnx", [folder / "built.onnx"], {}


def _tflite(folder: Path) -> Iterator[Sample]:
    import numpy as np
    from tests.frontends.tflite_build import T, model, op

    w = np.ones((4, 3, 3, 2), np.float32)
    data = model(
        [T((1, 8, 8, 2)), T(data=w), T(data=np.ones(4, np.float32)), T((1, 8, 8, 4))],
        [op("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", StrideW=1, StrideH=1)],
        [0],
        [3],
    )
    (folder / "built.tflite").write_bytes(data)
    yield folder / "built.tflite", [folder / "built.tflite"], {}


def _torch(folder: Path) -> Iterator[Sample]:
    from tests.frontends import test_torch_files as t

    for name, data in (("net", t.net()), ("program", t.program())):
        (folder / f"{name}.pt").write_bytes(data)
        yield folder / f"{name}.pt", [folder / f"{name}.pt"], {}


def _tensorflow(folder: Path) -> Iterator[Sample]:
    from tests.frontends import test_tensorflow as t

    saved = t.dense(folder / "dense")
    yield saved, [saved / "saved_model.pb", saved / "variables" / "variables.index"], {}
    for path in (t.tf2_loop(folder, 4), t.tf1_cond(folder, None)):
        yield path, [path], {}


def _caffe(folder: Path) -> Iterator[Sample]:
    from tests.frontends.test_caffe_rare_layers import ssd

    (folder / "ssd").mkdir()
    net = ssd(folder / "ssd", "keep_top_k: 9 nms_param { top_k: 20 }")
    yield net, [net, net.with_suffix(".caffemodel")], {}


def _darknet(folder: Path) -> Iterator[Sample]:
    from tests.frontends import test_darknet_recurrent as t

    (folder / "rnn").mkdir()
    numbers = [*t.dense(t.D, t.H, 1), *t.dense(t.H, t.H, 2), *t.dense(t.H, t.H, 3)]
    net = t.write(folder / "rnn", f"{t.NET}[rnn]\noutput={t.H}\n[softmax]\n", numbers)
    yield net, [net, net.with_suffix(".weights")], {}


BUILD = {
    "onnx": _onnx,
    "tflite": _tflite,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "caffe": _caffe,
    "darknet": _darknet,
}


def skipped() -> type[BaseException]:
    """What a test module raises that needs something which is not installed."""
    try:
        from _pytest.outcomes import Skipped
    except ImportError:
        return ImportError
    return Skipped


BaseSkip = skipped()


# ---- changing them -------------------------------------------------------------------------------
def mutated(data: bytes, rng: random.Random) -> bytes:
    """The file with a few changes; of an archive often one of its records."""
    if data.startswith(b"PK") and rng.random() < 0.85:
        return _in_archive(data, rng)
    return _bent(data, rng)


def _in_archive(data: bytes, rng: random.Random) -> bytes:
    import io

    with zipfile.ZipFile(io.BytesIO(data)) as source:
        records = {n: source.read(n) for n in source.namelist()}
    small = [n for n, d in records.items() if 0 < len(d) < 1 << 16]
    name = rng.choice(small or list(records))
    records[name] = _bent(records[name], rng)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as target:
        for n, d in records.items():
            target.writestr(n, d)
    return made.getvalue()


def _bent(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 5])):
        if not made:
            break
        at = rng.randrange(len(made))
        if rng.random() < 0.5:
            near = rng.randrange(min(len(made), EDGES))
            at = near if rng.random() < 0.5 else len(made) - 1 - near
        match rng.randrange(6):
            case 0 | 1:
                made[at] = rng.randrange(256)
            case 2:
                del made[at : at + rng.choice([1, 4, 40])]
            case 3:
                made[at:at] = made[rng.randrange(len(made)) :][: rng.choice([1, 8, 64])]
            case 4:
                made[at : at + 4] = rng.choice(NUMBERS)
            case 5:
                made = made[:at] if rng.random() < 0.2 else made
    return bytes(made)


# ---- one format, in a process of its own ---------------------------------------------------------
def _late(signum: int, frame: Any) -> None:
    raise TimeoutError(f"it takes more than {SECONDS} s")


def work(kind: str, count: int, seed: int, folder: Path) -> None:
    """Read `count` mutated files; say after each what became of it."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, _late)
    every = samples(kind, folder)
    require_good(every)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (MEGABYTES << 20),) * 2)
    for i in range(count):
        rng = random.Random(f"{kind} {seed} {i}")
        path, parts, how = every[i % len(every)]
        part = rng.choice(parts)
        good = part.read_bytes()
        part.write_bytes(mutated(good, rng))
        print(json.dumps({"file": str(part)}), flush=True)
        start, outcome = time.process_time(), "read"
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            intaglio.load(path, **how)
        except IntaglioError as e:
            outcome = "refused" if str(e) and "\n" not in str(e) else f"words: {e!r}"
        except BaseException as e:
            outcome = f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        told = {"outcome": outcome, "seconds": time.process_time() - start}
        if outcome not in ("read", "refused"):
            kept = Path(tempfile.gettempdir()) / f"intaglio-{kind}-{seed}-{i}{part.suffix}"
            told["kept"] = str(shutil.copy(part, kept))
        part.write_bytes(good)
        print(json.dumps(told), flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(json.dumps({"peak": peak, "samples": len(every)}), flush=True)


def run(kind: str, count: int, seed: int) -> tuple[str, bool]:
    """The line of a format, and whether all went well."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "tests.fuzz_frontends",
            "--work",
            kind,
            folder,
            "--count",
            str(count),
            "--seed",
            str(seed),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        outcomes = Counter(t["outcome"] for t in told if "outcome" in t)
        slowest = max((t["seconds"] for t in told if "seconds" in t), default=0.0)
        last = next((t for t in told if "peak" in t), {"peak": 0, "samples": 0})
        bad = [f"{t['outcome']} ({t['kept']})" for t in told if "kept" in t]
        if done.returncode:
            said = done.stderr.strip().splitlines()[-1:] or [""]
            bad.append(
                f"the process ended with {done.returncode} after {sum(outcomes.values())} "
                f"files: {said[0]}"
            )
            if told and "file" in told[-1]:
                kept = Path(tempfile.gettempdir()) / f"intaglio-{kind}-{seed}-crash"
                bad[-1] += f" ({shutil.copy(told[-1]['file'], kept)})"
    line = (
        f"{kind:12} {last['samples']:5} {sum(outcomes.values()):7} {outcomes['read']:7} "
        f"{outcomes['refused']:8} {len(bad):6} {slowest:9.2f} {last['peak']:8}"
    )
    return "\n".join([line, *(f"  {b}" for b in bad[:10])]), not bad


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz_frontends", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--count", type=int, default=2000, help="files per format")
    parser.add_argument("--only", default="", help="formats whose name contains this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.work:
        work(options.work[0], options.count, options.seed, Path(options.work[1]))
        return 0
    print(
        f"{'format':12} {'good':>5} {'mutated':>7} {'read':>7} {'refused':>8} {'failed':>6} "
        f"{'slowest s':>9} {'peak MB':>8}"
    )
    well = True
    for kind in FILES:
        if options.only in kind:
            line, fine = run(kind, options.count, options.seed)
            print(line, flush=True)
            well &= fine
    return int(not well)


if __name__ == "__main__":
    sys.exit(main())
