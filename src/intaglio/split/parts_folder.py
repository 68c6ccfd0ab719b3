"""Writes both parts of a split model, and what a client must know of them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from intaglio.errors import BadInput
from intaglio.files import write_atomically
from intaglio.ir import Graph
from intaglio.split.cuts import parts
from intaglio.split.machines import Machine
from intaglio.split.plan import ALL_CLOUD, ALL_EDGE, Row

EDGE, CLOUD, WHOLE, ABOUT = "edge.itg", "cloud.itg", "whole.itg", "split.json"


def write_parts(
    graph: Graph, row: Row, edge: Machine, cloud: Machine, folder: str | Path
) -> list[Path]:
    """Compile the parts of one row of a plan into a folder; the files that were written.

    `whole.itg` runs the whole model on the device: the answer while the link is down.
    """
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadInput(f"cannot write to '{folder}': {e.strerror}") from None
    written = [place / WHOLE]
    edge.compile(graph).save(written[0])
    if row.place == ALL_CLOUD:
        written.append(place / CLOUD)
        cloud.compile(graph).save(written[-1])
    elif row.place != ALL_EDGE:
        device, server = parts(graph, row.place)
        for name, machine, part in ((EDGE, edge, device), (CLOUD, cloud, server)):
            written.append(place / name)
            machine.compile(part).save(written[-1])
    about = {
        "sent": None if row.place in (ALL_CLOUD, ALL_EDGE) else row.place,
        "shape": row.shape,
        "bytes": row.bytes_up,
        "edge": edge.name,
        "cloud": cloud.name,
        "inputs": [v.name for v in graph.inputs],
        "outputs": list(graph.output_names),
    }
    written.append(place / ABOUT)
    write_atomically(written[-1], msgspec.json.format(msgspec.json.encode(about), indent=1))
    return written
