"""Classification: convert to int8, export, run in the simulator, show the top 5."""

import cv2
import numpy as np
from rknn.api import RKNN


def show_outputs(outputs):
    output = outputs[0][0]
    probs = np.exp(output) / sum(np.exp(output))
    order = np.argsort(probs)[::-1]
    print("-----TOP 5-----")
    for i in order[:5]:
        print(f"[{i}] score:{probs[i]:.6f}")


if __name__ == "__main__":
    rknn = RKNN(verbose=True)

    print("--> Config model")
    rknn.config(
        mean_values=[[103.94, 116.78, 123.68]],
        std_values=[[58.82, 58.82, 58.82]],
        quant_img_RGB2BGR=False,
        target_platform="rk3566",
    )
    print("done")

    print("--> Loading model")
    ret = rknn.load_onnx(model="./mobilenet.onnx")
    if ret != 0:
        print("Load model failed!")
        exit(ret)
    print("done")

    print("--> Building model")
    ret = rknn.build(do_quantization=True, dataset="./dataset.txt")
    if ret != 0:
        print("Build model failed!")
        exit(ret)
    print("done")

    print("--> Export rknn model")
    ret = rknn.export_rknn("./mobilenet_v2.rknn")
    if ret != 0:
        print("Export rknn model failed!")
        exit(ret)
    print("done")

    img = cv2.imread("./images/0.png")
    img = cv2.cvtColor(img, cv2.COLOR_BGR2RGB)
    img = np.expand_dims(img, 0)

    print("--> Init runtime environment")
    ret = rknn.init_runtime()
    if ret != 0:
        print("Init runtime environment failed!")
        exit(ret)
    print("done")

    print("--> Running model")
    outputs = rknn.inference(inputs=[img], data_format=["nhwc"])
    np.save("./outputs.npy", outputs[0])
    show_outputs(outputs)
    rknn.release()
