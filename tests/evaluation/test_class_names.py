"""Names of classes: in data sets, in models, and how they are joined."""

import io
import zipfile

import pytest

from intaglio.evaluation.average_precision import names_to_indices
from intaglio.evaluation.class_names import dataset_names, parsed
from intaglio.frontends.tflite.labels import labels

FORMS = [
    "path: .\nnames:\n  0: person  # first\n  1: 'traffic light'\n  3: \"dog\"\nnc: 4\n",
    "names: [person, 'traffic light', '', dog]\n",
    "names:\n- person\n- traffic light\n- ''\n- dog\ntrain: images\n",
    "names: {0: person, 1: 'traffic light', 3: dog}",
    "names: [person,   # as in COCO\n  'traffic light', '', dog]\n",
]


@pytest.mark.parametrize("text", FORMS)
def test_names_of_a_data_set(text, tmp_path):
    wanted = ["person", "traffic light", "", "dog"]
    found = parsed(text)
    assert [n for n in found if n] == [n for n in wanted if n]
    (tmp_path / "images").mkdir()
    (tmp_path / "data.yaml").write_text(text)
    assert dataset_names([tmp_path / "images", None]) == found


@pytest.mark.parametrize("text", ["", "names:", "names: &x", "names: [a, b", "nc: 3", "names: {a}"])
def test_what_is_no_list_of_names(text):
    assert not parsed(text)


def test_classes_are_joined_by_name_else_by_place():
    assert names_to_indices(["Cat", "", "dog"], ["dog", "cat"]) == {0: 1, 2: 0}
    assert names_to_indices(["person", "motorbike"], ["person", "motorcycle"]) == {0: 0, 1: 1}
    assert names_to_indices(["a", "b", "c"], ["x", "y"]) == {}


def archive(**files):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as z:
        for name, text in files.items():
            z.writestr(f"{name}.txt", text)
    return held.getvalue()


def test_labels_behind_a_tflite_model():
    model = b"\x1c\0\0\0TFL3" + bytes(100)
    assert labels(model + archive(labelmap="person\n???\ncat\n\n")) == ["person", "", "cat"]
    assert labels(model) is None
    assert labels(model + archive(vocab="a\nb")) is None
    assert labels(model + archive(labels="a", labels_de="b")) is None
    damaged = bytearray(model + archive(labels="a\nb"))
    damaged[130:160] = bytes(30)
    assert labels(bytes(damaged)) in (None, ["a", "b"])
