"""Darknet importer: cfg and weights files (YOLO)."""

from __future__ import annotations

import warnings
from pathlib import Path

from intaglio.errors import BadFile, BadInput, Unsupported, did_you_mean, option
from intaglio.frontends.darknet import detection_heads as detection_heads
from intaglio.frontends.darknet import recurrent as recurrent
from intaglio.frontends.darknet.file import Weights, read_cfg
from intaglio.frontends.darknet.layers import LAYERS, Net
from intaglio.frontends.options import NO_OPTIONS, ImportOptions
from intaglio.frontends.two_files import find_both_files
from intaglio.ir import Graph, Type, Value

RECURRENT = ("rnn", "crnn", "lstm", "gru")
MAX_ELEMENTS = 1 << 31  # of a result


def load_darknet(model: str | Path, options: ImportOptions = NO_OPTIONS) -> Graph:
    """The graph of a cfg file and its weights; `model` is the path of either.

    The input is called `data`; a layer's result has the name of its section and its number, as in
    `yolo_30`. Outputs are all detection heads, or the last layer if there are none. Recurrent
    layers read the batch as one sequence; with `state` their states are the graph's state,
    `state.rnn_0.h` for example, which a session carries from call to call.
    """
    weights = Path(options.weights) if options.weights else None
    cfg, other = find_both_files(Path(model), weights, ".cfg", ".weights", "darknet")
    sections = read_cfg(cfg)
    own = sections[0]
    steps = own.whole("time_steps", 1) if any(s.name in RECURRENT for s in sections) else 1
    usual: tuple[int, ...]
    usual = (steps, own.whole("channels", 3), own.whole("height", 416), own.whole("width", 416))
    if "inputs" in own.settings and not {"channels", "height", "width"} & set(own.settings):
        usual = (steps, own.whole("inputs"))
    for name in options.shapes:
        if name != "data":
            raise BadInput(f"darknet: no input is called '{name}'; it is called 'data'")
    shape = tuple(options.shapes.get("data", usual))
    if len(shape) != len(usual) or not all(1 <= d <= 1 << 16 for d in shape):
        what = "batch, channels, height, width" if len(usual) == 4 else "steps, inputs"
        raise BadInput(f"darknet: input 'data' has shape {shape}; {what} are needed")
    data = Value(Type("f32", shape), "data")
    net = Net(shape[-1], shape[-2], Weights(other), carries=options.state)
    names = []
    x = data
    for section in sections[1:]:
        if section.name not in LAYERS:
            known = ", ".join(sorted(LAYERS))
            raise Unsupported(
                f"darknet: {section} is not supported; supported sections are {known}"
                f"{did_you_mean(section.name, LAYERS, likeness=0.8)}"
            )
        try:
            x = LAYERS[section.name](net, section, x)
        except BadInput as e:
            raise (
                e if str(e).startswith("darknet") else BadFile(f"darknet: {section}: {e}")
            ) from None
        if x.type.size > MAX_ELEMENTS:
            raise BadFile(f"darknet: {section} has a result {x.type}, which is too large")
        names.append(f"{section.name}_{section.number}")
        if x.producer is not None and not x.producer.origin:
            x.producer.origin = names[-1]
        net.made.append(x)
    if not net.made:
        raise BadFile(f"darknet: '{cfg}' has no layers")
    if net.weights.at < len(net.weights.floats):
        left = len(net.weights.floats) - net.weights.at
        raise BadFile(
            f"darknet: {left} floats of '{other}' are left over; the weights belong to another cfg"
        )
    wanted = list(options.outputs or [names[i] for i in net.heads or [len(names) - 1]])
    for name in wanted:
        if name not in names:
            raise BadInput(f"darknet: no layer is called '{name}'; the last is '{names[-1]}'")
    results = [net.made[names.index(name)] for name in wanted]
    if not options.state:
        if net.states:
            warnings.warn(
                f"darknet: every run of '{cfg.name}' starts with zeros in its "
                f"{len(net.states)} recurrent states; with {option('state', True)} a session "
                "carries them to the next run",
                stacklevel=2,
            )
        return Graph([data], results, wanted, cfg.stem)
    return Graph(
        [data, *net.states.values()],
        [*results, *net.after.values()],
        [*wanted, *net.after],
        cfg.stem,
        state=dict.fromkeys(net.states),
    )
