"""Images as samples: resizing, colour order, normalisation, file formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.quant.samples.test_dataset import IMAGE, RNG, picture, quiet

from intaglio.errors import BadInput
from intaglio.ir import Type
from intaglio.quant.samples.dataset import samples


def test_a_folder_of_pictures(tmp_path: Path):
    want = [picture(tmp_path / n) for n in ("b/0.png", "b/1.PNG", "c.bmp")]
    (tmp_path / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden.png").write_bytes(b"no picture either")
    mean, std = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    got = quiet(tmp_path, IMAGE, mean=[1, 2, 3], std=[4, 5, 6])
    assert len(got) == 3
    assert Path(got.where(1)) == tmp_path / "b/1.PNG"
    for _ in range(2):  # walked again, it gives the same
        for sample, pixels in zip(got, want, strict=True):
            assert sample["x"].dtype == np.float32
            assert sample["x"].flags.c_contiguous
            np.testing.assert_array_equal(
                sample["x"], ((pixels.astype(np.float32) - mean) / std).transpose(2, 0, 1)[None]
            )


def test_bgr_and_channels_last(tmp_path: Path):
    pixels = picture(tmp_path / "a.png").astype(np.float32)
    (sample,) = quiet(
        str(tmp_path), [("x", Type("f32", (1, 4, 6, 3)))], color="bgr", mean=[1, 2, 3]
    )
    np.testing.assert_array_equal(sample["x"][0], pixels[..., ::-1] - np.float32([1, 2, 3]))
    square = [("x", Type("f32", (1, 3, 4, 3)))]  # both ends could be channels
    with pytest.raises(BadInput, match="takes no pictures"):
        quiet(tmp_path, [("x", Type("f32", (1, 8, 4, 6)))])[0]
    with pytest.raises(BadInput, match="its elements are i8, pictures are bytes or floats"):
        quiet(tmp_path, [("x", Type("i8", (1, 3, 4, 6)))])[0]
    assert quiet(tmp_path, square)[0]["x"].shape == (1, 3, 4, 3)
    (sample,) = quiet(tmp_path, [("x", Type("f32", (1, 4, 6, 3)))], layout="nhwc")
    np.testing.assert_array_equal(sample["x"][0], pixels)


def test_bytes_go_in_as_they_are(tmp_path: Path):
    pixels = picture(tmp_path / "a.png")
    (sample,) = samples(tmp_path, [("x", Type("u8", (1, 4, 6, 3)))])  # and no warning
    assert sample["x"].dtype == np.uint8
    np.testing.assert_array_equal(sample["x"][0], pixels)
    with pytest.raises(BadInput, match="is u8: it takes pixels from 0 to 255"):
        quiet(tmp_path, [("x", Type("u8", (1, 4, 6, 3)))], mean=1)
    (sample,) = quiet(tmp_path, [("x", Type("f16", (1, 4, 6, 3)))], std=2)
    np.testing.assert_array_equal(sample["x"][0], (pixels / 2).astype(np.float16))


def test_stretch_letterbox_and_crop(tmp_path: Path):
    Image.fromarray(np.full((10, 40, 3), 200, np.uint8)).save(tmp_path / "wide.png")
    square = [("x", Type("f32", (1, 3, 8, 8)))]
    assert (quiet(tmp_path, square)[0]["x"] == 200).all()
    boxed = quiet(tmp_path, square, resize="letterbox", pad_value=7)[0]["x"][0, 0]
    assert (boxed[3:5] == 200).all()
    assert (boxed[:3] == 7).all()
    assert (boxed[5:] == 7).all()
    ramp = np.tile(np.arange(40, dtype=np.uint8), (10, 1))
    Image.fromarray(ramp).save(tmp_path / "wide.png")
    want = Image.fromarray(ramp).convert("RGB").resize((36, 9), Image.Resampling.BILINEAR)
    want = np.asarray(want)[0:8, 14:22].transpose(2, 0, 1)
    np.testing.assert_array_equal(quiet(tmp_path, square, resize="crop")[0]["x"][0], want)


def test_crop_is_what_classifiers_are_evaluated_with(tmp_path: Path):
    """Short side 256, centre 224, as torchvision computes the sizes."""
    picture(tmp_path / "a.png", 375, 500)
    got = quiet(tmp_path, [("x", Type("f32", (1, 3, 224, 224)))], resize="crop")[0]["x"][0]
    with Image.open(tmp_path / "a.png") as image:
        want = image.resize((341, 256), Image.Resampling.BILINEAR).crop((58, 16, 282, 240))
    np.testing.assert_array_equal(got, np.asarray(want).transpose(2, 0, 1))


def test_every_kind_of_picture(tmp_path: Path):
    def one(name: str, channels: int = 3) -> np.ndarray:
        (sample,) = quiet(tmp_path / name, [("x", Type("f32", (1, 4, 6, channels)))], layout="nhwc")
        return sample["x"][0]

    grey = picture(tmp_path / "grey.png", mode="L")
    np.testing.assert_array_equal(one("grey.png"), np.repeat(grey[..., None], 3, 2))
    np.testing.assert_array_equal(one("grey.png", 1)[..., 0], grey)
    alpha = picture(tmp_path / "alpha.png", mode="RGBA")
    np.testing.assert_array_equal(one("alpha.png"), alpha[..., :3])
    np.testing.assert_array_equal(one("alpha.png", 4), alpha)
    wide = RNG.integers(0, 65536, (4, 6), np.uint16)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    np.testing.assert_allclose(one("wide.png", 1)[..., 0], wide / 257, atol=0.51)
    Image.fromarray(grey).convert("1").save(tmp_path / "bits.png")
    assert set(np.unique(one("bits.png", 1)).tolist()) <= {0.0, 255.0}
    Image.fromarray(alpha[..., :3]).convert("P").save(tmp_path / "palette.png")
    with Image.open(tmp_path / "palette.png") as image:
        np.testing.assert_array_equal(one("palette.png"), np.asarray(image.convert("RGB")))
    picture(tmp_path / "a.jpg")
    picture(tmp_path / "a.webp")
    assert one("a.jpg").shape == one("a.webp").shape == (4, 6, 3)


def test_pictures_stand_upright(tmp_path: Path):
    pixels = RNG.integers(0, 256, (6, 4, 3), np.uint8)
    image = Image.fromarray(pixels)
    exif = image.getexif()
    exif[0x0112] = 6  # the camera was turned: 90 degrees clockwise makes it upright
    image.save(tmp_path / "turned.png", exif=exif)
    (sample,) = quiet(tmp_path, [("x", Type("f32", (1, 4, 6, 3)))])
    np.testing.assert_array_equal(sample["x"][0], np.rot90(pixels, -1))


def test_pictures_as_arrays_of_bytes(tmp_path: Path):
    pixels = RNG.integers(0, 256, (5, 4, 6, 3), np.uint8)
    want = (pixels.astype(np.float32) - 1).transpose(0, 3, 1, 2)
    for given in (pixels, pixels.transpose(0, 3, 1, 2), list(pixels)):
        got = quiet(given, IMAGE, mean=1, color="bgr")  # arrays are in the model's order already
        np.testing.assert_array_equal(np.concatenate([s["x"] for s in got]), want)
    assert quiet(RNG.integers(0, 256, (2, 9, 9, 3), np.uint8), IMAGE)[1]["x"].shape == (1, 3, 4, 6)
    digits = RNG.integers(0, 256, (7, 28, 28), np.uint8)
    got = quiet(digits, [("x", Type("f32", (1, 1, 28, 28)))], std=255)
    assert len(got) == 7
    np.testing.assert_array_equal(got[3]["x"][0, 0], digits[3].astype(np.float32) / 255)
