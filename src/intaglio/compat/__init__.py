"""Programs written for the tools of chip vendors, run on Intaglio.

python -m intaglio.compat convert.py            # `from rknn.api import RKNN` means ours
python -m intaglio.compat -m rknn.api.rknn_convert -t rk3588 -i model.yml -o out/

intaglio.compat.install()                       # the same in a notebook, before the imports

Nothing is installed under the names of the vendors' packages.
"""

from __future__ import annotations

from intaglio.compat.aliases import install as install

__all__ = ["install"]
