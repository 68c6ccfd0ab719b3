"""An encrypted model, made and run; the key is in the environment."""

import numpy as np
from rknn.api import RKNN

rknn = RKNN()
crypt_level = 1
ret = rknn.export_encrypted_rknn_model("input.rknn", "encrypt.rknn", crypt_level)
if ret != 0:
    print("Encrypt RKNN model failed!")
    exit(ret)
rknn.load_rknn("encrypt.rknn")
rknn.init_runtime()
print(rknn.inference(inputs=[np.zeros((1, 16, 16, 3), np.uint8)])[0].shape)
rknn.release()
