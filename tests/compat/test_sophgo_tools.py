"""Tables, pictures, npz_tool, model_tool, launchers, and the command lines of tpu-nntc."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from PIL import Image
from tests.compat.command_line import refused, run

import intaglio
from intaglio.compat.nntc.cali_model import CALI_MODEL
from intaglio.compat.tpu_mlir.calibration_options import CALIBRATION
from intaglio.compat.tpu_mlir.compare import Tolerance, compare_one
from intaglio.compat.tpu_mlir.deploy_options import DEPLOY
from intaglio.compat.tpu_mlir.model_tool import TOOL
from intaglio.compat.tpu_mlir.module_file import Pictures
from intaglio.compat.tpu_mlir.option_table import Command
from intaglio.compat.tpu_mlir.pictures import read_picture
from intaglio.compat.tpu_mlir.runner_options import RUNNER
from intaglio.compat.tpu_mlir.tables import CalibrationTable, Row, read_qtable
from intaglio.compat.tpu_mlir.transform_options import TRANSFORM
from intaglio.errors import BadFile
from intaglio.npu.chips.bm1684x import bmodel

VENDOR_TABLE = """\
# mlir version: v1.30 cali version 1.0
# genetated time: 2026-01-01 00:00:00
# histogram number: 2048
# sample number: 6
###
# tune number: 5
###
# op_name    threshold    min    max
x 1.5000000 -1.5000000 1.2000000
r0_Relu 2.0000000 0.0000000 2.5000000
r1_Relu 3.0000000 0.0000000 3.0000000

#int4_th
x 1.0 -1.1 1.0
"""


def test_tables_of_the_vendor_are_read(folder: Path):
    Path("vendor").write_text(VENDOR_TABLE)
    table = CalibrationTable.read("vendor")
    assert table.rows["x"] == Row(1.5, -1.5, 1.2)
    assert table.rows["r0_Relu"].range == (0.0, 2.0)
    table.save("again", "net.mlir", "kl")
    assert CalibrationTable.read("again").rows == table.rows


def test_a_table_of_the_vendor_fixes_the_ranges(folder: Path):
    Path("vendor").write_text(VENDOR_TABLE)
    assert run("model_transform --model_name net --model_def mobilenet.onnx --mlir net.mlir") == 0
    deploy = "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x --model net.bmodel"
    assert run(f"{deploy} --calibration_table vendor") == 0
    (stage,) = bmodel.read(Path("net.bmodel").read_bytes()).nets[0].stages
    assert stage.inputs[0].scale == pytest.approx(127 / 1.5)


def test_an_edited_row_fixes_the_range(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("model_transform --model_name net --model_def mobilenet.onnx --mlir net.mlir") == 0
    assert run("run_calibration net.mlir --dataset images -o table") == 0
    deploy = "model_deploy --mlir net.mlir --quantize INT8 --chip bm1684x --model net.bmodel"
    capsys.readouterr()
    assert run(f"{deploy} --calibration_table table") == 0
    assert "are fixed" not in capsys.readouterr().out
    lines = Path("table").read_text().splitlines()
    lines = ["r0_Relu 9.0 0.0 9.0" if s.startswith("r0_Relu ") else s for s in lines]
    Path("table").write_text("\n".join(lines))
    assert run(f"{deploy} --calibration_table table") == 0
    assert "1 ranges of the calibration table are fixed" in capsys.readouterr().out


def test_qtables(folder: Path):
    Path("q").write_text("# op_name   quantize_mode\na b_Conv F16\nc INT8\n")
    assert read_qtable("q") == {"a b_Conv": "f16", "c": "int8"}
    Path("q").write_text("c\n")
    with pytest.raises(BadFile, match="line 1"):
        read_qtable("q")


def test_similarities_are_those_of_the_vendor():
    x, y = np.float32([1, 2, 3]), np.float32([1, 2, 2])
    found = compare_one("t", x, y, Tolerance(0.9, 0.6))
    assert found.cosine == pytest.approx(11 / (14 * 9) ** 0.5)
    mean = np.linalg.norm([1, 2, 2.5])
    assert found.euclidean == pytest.approx(1 - 1 / mean, abs=1e-6)
    assert (found.kind, found.passed) == ("SIMILAR", True)
    assert compare_one("t", x, y, Tolerance(0.9, 0.8)).kind == "NOT_SIMILAR"
    assert compare_one("t", x, x, Tolerance(0.9, 0.8)).kind == "EQUAL"
    assert compare_one("t", x, x * 1.0001, Tolerance(1, 1)).kind == "CLOSE"
    assert compare_one("t", x, y[:2], Tolerance(0, 0)).kind == "NOT_MATCH"


def test_pictures_are_resized_padded_and_normalised(tmp_path: Path):
    cv2 = pytest.importorskip("cv2")
    pixels = np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)
    path = tmp_path / "a.png"
    Image.fromarray(pixels).save(path)
    plain = Pictures(mean=[1, 2, 3], scale=[0.5, 1, 2], pixel_format="rgb")
    wanted = cv2.resize(pixels, (20, 10)).transpose(2, 0, 1)
    wanted = (wanted - np.float32([1, 2, 3])[:, None, None]) * np.float32([0.5, 1, 2])[
        :, None, None
    ]
    found = read_picture(path, plain, (2, 3, 10, 20))
    assert found.shape == (2, 3, 10, 20)
    assert np.abs(found[1] - wanted).max() <= 2  # a pixel may round otherwise, times 2
    boxed = Pictures(keep_aspect_ratio=True, pad_value=9, pixel_format="bgr")
    found = read_picture(path, boxed, (1, 3, 40, 40))
    np.testing.assert_array_equal(found[0, :, 5:35], pixels[:, :, ::-1].transpose(2, 0, 1))
    assert (found[0, :, :5] == 9).all()
    cropped = Pictures(resize_dims=[30, 40], pixel_format="rgb", channel_format="nhwc")
    found = read_picture(path, cropped, (1, 20, 20, 3))
    np.testing.assert_array_equal(found[0], pixels[5:25, 10:30])


def test_npz_tool(folder: Path, capsys: pytest.CaptureFixture[str]):
    np.savez("a.npz", x=np.arange(6, dtype=np.float32).reshape(2, 3), y=np.float32([np.nan]))
    assert run("npz_tool get_shape a.npz x") == 0
    assert capsys.readouterr().out == "[2,3]\n"
    assert run("npz_tool extract a.npz b.npz x") == 0
    assert run("npz_tool rename b.npz x z") == 0
    assert run("npz_tool merge a.npz b.npz c.npz") == 0
    assert set(np.load("c.npz").files) == {"x", "y", "z"}
    assert run("npz_tool remove c.npz d.npz x,y") == 0
    assert run("npz_tool to_npy d.npz z") == 0
    assert np.load("z.npy").shape == (2, 3)
    assert run("npz_tool to_bin d.npz z z.bin") == 0
    assert run("npz_tool dump d.npz z 1,1:3") == 0
    assert "[4. 5.]" in capsys.readouterr().out
    assert "has no elements [2]" in refused("npz_tool dump d.npz z 2", capsys)
    assert run("npz_tool statistic d.npz") == 0
    assert "max 5" in capsys.readouterr().out
    assert run("npz_tool check_nan_inf d.npz") == 0
    assert run("npz_tool check_nan_inf a.npz") == 0
    assert "NaN in y:(1,)" in capsys.readouterr().out
    assert "it has x, y" in refused("npz_tool dump a.npz q", capsys)


def test_npz_tool_changes_files(folder: Path, capsys: pytest.CaptureFixture[str]):
    x = np.float32([[1, 2.5, 3], [4, 5, 1e30]])
    np.savez("a.npz", x=x, i=np.int64([1, 2]))
    for half in ("bf16", "fp16"):
        assert run(f"npz_tool.py fp32_to_{half} a.npz h.npz") == 0
        assert np.load("h.npz")["x"].dtype == np.uint16
        assert run(f"npz_tool.py {half}_to_fp32 h.npz w.npz") == 0
        with np.errstate(over="ignore"):
            wanted = x.astype(ml_dtypes.bfloat16 if half == "bf16" else np.float16)
        np.testing.assert_array_equal(np.load("w.npz")["x"], wanted.astype(np.float32))
        assert np.load("w.npz")["i"].dtype == np.int64
    np.savez("b.npz", y=x[:1])
    assert run("npz_tool.py insert b.npz a.npz") == 0
    assert set(np.load("a.npz").files) == {"x", "i", "y"}
    assert run("npz_tool.py remove a.npz i") == 0
    assert set(np.load("a.npz").files) == {"x", "y"}
    assert run("npz_tool.py reshape a.npz y 3,1,1") == 0
    assert run("npz_tool.py permute a.npz x 1,0") == 0
    np.testing.assert_array_equal(np.load("a.npz")["x"], x.T)
    assert np.load("a.npz")["y"].shape == (3, 1, 1)
    assert run("npz_tool.py to_dat a.npz all.dat") == 0
    assert Path("all.dat").stat().st_size == 9 * 4
    assert run("npz_tool.py to_bin a.npz y y.bin int8") == 0
    assert np.fromfile("y.bin", np.int8).tolist() == [1, 2, 3]
    np.savez("c.npz", x=x.T + np.float32([[0, 1], [0, 0], [0, 0]]))
    capsys.readouterr()
    assert run("npz_tool.py print_diff a.npz c.npz x") == 0
    assert capsys.readouterr().out == "1: 4.0, 5.0\n1 of 6 elements differ\n"
    assert run("npz_tool.py compare a.npz c.npz -k x --tolerance 0.9,0.5 --save s.csv -vv") == 0
    assert Path("s.csv").read_text().startswith("name,cosine,euclidean,passed\nx,1.0")
    capsys.readouterr()
    assert run("npz_tool.py compare a.npz c.npz --only_key") == 0
    assert "only in a.npz: y" in capsys.readouterr().out
    Path("table").write_text("# made by hand\n###\nx 5.0 -5.0 5.0\n")
    np.savez("f.npz", x=np.float32([0.3, -5, 5, 1]), other=np.float32([1]))
    assert run("npz_tool.py cali_test f.npz --calibration_table table") == 0
    step = np.float32(5 / 127)
    np.testing.assert_allclose(
        np.load("requant.npz")["x"], np.rint(np.float32([0.3, -5, 5, 1]) / step) * step, rtol=1e-6
    )
    assert "3 axes" in refused("npz_tool.py permute a.npz y 1,0", capsys)
    assert "not as many" in refused("npz_tool.py reshape a.npz x 7", capsys)
    assert "intaglio compare" in refused("npz_tool.py visualize_diff a.npz c.npz", capsys)


NNTC = (
    "ufw.cali.cali_model --net_name net --model mobilenet.onnx --cali_image_path images "
    "--cali_image_preprocess 'resize_h=16,resize_w=16;mean_value=127:127:127;scale=0.01;"
    "bgr2rgb=True' --input_names x --input_shapes '[1,3,16,16]' --target BM1684X --outdir auto"
)


def test_tpu_nntc(folder: Path, capsys: pytest.CaptureFixture[str]):
    line = "--input_names x --shapes [[1,3,16,16]] --target BM1684X --outdir fp32 -opt=2"
    assert run(f"bmneto --model mobilenet.onnx {line}") == 0
    assert run("tpu_model --info fp32/compilation.bmodel") == 0
    assert "input: x, [1, 3, 16, 16], float32" in capsys.readouterr().out
    assert run(NNTC) == 0
    assert "r1_Relu" in Path("auto/net_batch1/precision.txt").read_text()
    assert run("bmnetu --weight auto/net_batch1/net.int8umodel --outdir u -prec=INT8") == 0
    made, again = (Path(f, "compilation.bmodel") for f in ("auto/net_batch1", "u"))
    assert made.read_bytes() == again.read_bytes()
    capsys.readouterr()
    assert run(f"tpu_model --info {made}") == 0
    assert "net 0: [net]  static" in capsys.readouterr().out
    assert run("tpu_model --combine_dir auto/net_batch1 -o joined") == 0
    assert Path("joined/compilation.bmodel").exists()
    assert "use bmneto" in refused("bmnetc --model mobilenet.onnx", capsys)
    assert "mean_value" in refused(NNTC.replace("mean_value", "mean_valeu"), capsys)
    assert "paddle2onnx" in refused("bmpaddle --model a", capsys)
    assert "precision.txt" in refused("ufw.tools.app --port 8001", capsys)


def test_cali_model_keeps_layers_in_floats(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(NNTC) == 0
    whole = Path("auto/net_batch1/compilation.bmodel").read_bytes()
    assert run(f"{NNTC} --try_cali_accuracy_opt '-fpfwd_outputs=c1_Conv;-th_method=MAX'") == 0
    part = Path("auto/net_batch1/compilation.bmodel").read_bytes()
    assert run(f"{NNTC} --fp32_layer_list conv0") == 0
    assert len({whole, part, Path("auto/net_batch1/compilation.bmodel").read_bytes()}) == 3
    assert "did you mean" in refused(f"{NNTC} --fp32_layer_list c0_Con", capsys)


def test_tpu_nntc_for_bm1684(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(NNTC.replace("BM1684X", "BM1684")) == 0
    capsys.readouterr()
    assert run("tpu_model --chip auto/net_batch1/compilation.bmodel") == 0
    assert "BM1684" in capsys.readouterr().out.split()
    assert run("bmneto --model mobilenet.onnx --target BM1684 --outdir fp32") == 0
    said = capsys.readouterr().err
    assert "W bmneto: fp32/compilation.itg is a package of Intaglio in float32 instead" in said
    with intaglio.open("fp32/compilation.itg") as session:
        assert session.meta["target"] == "bm1684"


def test_model_tool(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run(NNTC) == 0
    path = "auto/net_batch1/compilation.bmodel"
    capsys.readouterr()
    for action, words in (
        ("--chip", "BM1684X"),
        ("--dynamic", "false"),
        ("--print", '"coefficients"'),
        ("--weight", 'net 0 : "net", stage:0'),
        ("--info --all", "tensor: x"),
    ):
        assert run(f"model_tool {action} {path}") == 0
        assert words in capsys.readouterr().out
    Path("firmware.so").write_bytes(b"firmware")
    before = Path(path).read_bytes()
    assert run(f"model_tool --kernel_update {path} firmware.so") == 0
    assert run(f"model_tool --kernel_dump {path} -o out.so") == 0
    assert Path("out.so").read_bytes() == b"firmware"
    assert run(f"model_tool --kernel_remove {path}") == 0
    assert run(f"model_tool --refresh {path}") == 0
    assert Path(path).read_bytes() == before
    assert run(f"model_tool --dump {path} 0 4 head.bin") == 0
    assert Path("head.bin").read_bytes() == before[:4]
    assert "0 to 99999999" in refused(f"model_tool --dump {path} 0 99999999 head.bin", capsys)
    Path("cut.bmodel").write_bytes(before[:200])
    assert "bmodel" in refused("model_tool --info cut.bmodel", capsys)
    assert "no bmodel" in refused("model_tool --info mobilenet.onnx", capsys)
    assert "intaglio encrypt" in refused(f"model_tool --encrypt -model {path}", capsys)
    assert "did you mean '--combine'" in refused("model_tool --combin a", capsys)


def test_launchers(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert run("install-scripts bin") == 0
    names = {p.name for p in Path("bin").iterdir()}
    assert {"model_transform", "model_deploy.py", "tpu_model", "bmneto"} <= names
    assert os.access("bin/model_tool.py", os.X_OK)
    done = subprocess.run(
        ["bin/npz_tool.py", "nothing"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "no action is called 'nothing'" in done.stderr
    Path("bin/model_tool").write_text("mine")
    assert "is not ours" in refused("install-scripts bin", capsys)


OPTIONS = (  # of tpu_mlir 1.30.2 and sophon-nntc
    (
        TRANSFORM,
        """model_name model_def model_extern model_data input_shapes input_types output_names
        test_input test_result cache_skip tolerance excepts add_postprocess pruning onnx_sim
        do_onnx_sim debug mlir patterns_count dynamic_shape_input_names path_yaml not_inference
        shape_influencing_input_names dynamic op_custom_shape enable_maskrcnn replace_topk_indices
        yuv_type use_rewriter_config struct_optimize log_level resize_dims keep_aspect_ratio
        keep_ratio_mode mean scale pixel_format channel_format pad_value pad_type preprocess_list
        debug_cmd""",
    ),
    (
        CALIBRATION,
        """we bc sq smc dataset data_list input_num cali_method search inference_num
        bc_inference_num tune_list tune_num histogram_bin_num expected_cos min_layer_cos
        max_float_layers chip processor fp_type post_process global_compare_layers
        quantize_method_list benchmark_method kurtosis_analysis part_quantize custom_operator
        part_asymmetric mix_mode pre_qtable cluster calibration_table quantize_table debug_cmd
        debug_log""",
    ),
    (
        DEPLOY,
        """mlir chip processor quantize model calibration_table quantize_table asymmetric
        q_group_size q_symmetric quant_input quant_output quant_output_bf16 quant_input_int8
        quant_output_int8 quant_input_list quant_output_list high_precision ignore_f16_overflow
        test_input test_reference compare_all tolerance correctness excepts skip_validation
        cache_skip fazzy_match cuda fuse_preprocess customization_format aligned_input num_device
        num_core group_by_cores dynamic opt layer_group_config shape_secs_search_strategy
        disable_structure_detect_opt addr_mode same_addr not_gen_bmodel use_rewriter_config
        disable_topo_sort enable_lghash lghash_dir rvti disable_affine debug log_level
        disable_layer_group disable_gdma_check trunc_final lg_debugger op_divide merge_weight
        model_version iomem_set do_winograd includeWeight compress_mode matmul_perchannel
        opt_post_processor weight_deduplicate patterns_count gelu_mode time_fixed_subnet
        subnet_params io_alone enable_maskrcnn global_op_types debug_cmd""",
    ),
    (RUNNER, "input model weight output dump_all_tensors debug out_fixed cuda decrypt_lib"),
    (
        TOOL,
        """info chip dynamic print weight update_weight encrypt decrypt extract refresh combine
        combine_dir combine_coeff dump kernel_dump kernel_update kernel_remove""",
    ),
    (
        CALI_MODEL,
        """net_name model weight weights input_names output_names input_descs input_shapes
        cali_image_path cali_lmdb cali_image_preprocess cali_iterations test_iterations target
        convert_bmodel_cmd_opt try_cali_accuracy_opt postprocess_and_calc_score_class debug_cmd""",
    ),
)


@pytest.mark.parametrize(("command", "names"), OPTIONS, ids=[c.name for c, _ in OPTIONS])
def test_all_options_of_the_vendor_are_known(command: Command, names: str):
    known = {n.removeprefix("--") for o in command.options for n in o.names}
    assert set(names.split()) <= known
