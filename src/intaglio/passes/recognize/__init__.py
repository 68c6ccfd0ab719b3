"""Recognise composite ops in small ones: activations, norms, softmax, attention, shuffles."""

from __future__ import annotations

from intaglio.passes.recognize.activations import ACTIVATIONS
from intaglio.passes.recognize.attention import ATTENTION
from intaglio.passes.recognize.channel_norms import CHANNELS
from intaglio.passes.recognize.glu_rotary import GATED
from intaglio.passes.recognize.norms import NORMS
from intaglio.passes.recognize.rectifiers import RECTIFIERS
from intaglio.passes.recognize.reductions import POOLING
from intaglio.passes.recognize.shuffles import SHUFFLES
from intaglio.passes.recognize.softmax import SOFTMAXES

RECOGNIZE = [
    *ACTIVATIONS,
    *RECTIFIERS,
    *NORMS,
    *CHANNELS,
    *SOFTMAXES,
    *ATTENTION,
    *GATED,
    *POOLING,
    *SHUFFLES,
]
