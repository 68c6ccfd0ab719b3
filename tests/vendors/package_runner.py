"""Runs packages with the plug-in `sophgo`, in our own Python: it loads the vendor's libraries.

    python package_runner.py PLUGIN FOLDER    every N.itg on N.in.npz, into N.out.npz

N.in.npz has one array per input, by its name: pictures x shape. A session runs all pictures, and
all packages are open at the same time, as in a program on a board.
"""

import sys
from pathlib import Path

import numpy as np

import intaglio
from intaglio import custom


def main():
    custom.load(sys.argv[1])
    paths = sorted(Path(sys.argv[2]).glob("*.itg"))
    sessions = [intaglio.open(path) for path in paths]
    given = [dict(np.load(path.with_suffix(".in.npz"))) for path in paths]
    runs = [[] for _ in paths]
    for i in range(max(len(next(iter(feeds.values()))) for feeds in given)):
        for session, feeds, done in zip(sessions, given, runs, strict=True):
            done.append(session.run({k: x[i] for k, x in feeds.items()}))
    for path, done in zip(paths, runs, strict=True):
        np.savez(
            path.with_suffix(".out.npz"), **{k: np.stack([r[k] for r in done]) for k in done[0]}
        )


main()
