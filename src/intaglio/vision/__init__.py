"""Pictures in, boxes and classes out.

from intaglio import vision

with intaglio.open("model.itg") as session:
    found = vision.predict(session, "picture.jpg")
print(found)
found.draw("out.png")
"""

from __future__ import annotations

from intaglio.vision.labels import read_labels as read_labels
from intaglio.vision.predict import Predictor as Predictor
from intaglio.vision.predict import predict as predict
from intaglio.vision.prediction import ClassScore as ClassScore
from intaglio.vision.prediction import Detection as Detection
from intaglio.vision.prediction import Prediction as Prediction

__all__ = ["ClassScore", "Detection", "Prediction", "Predictor", "predict", "read_labels"]
