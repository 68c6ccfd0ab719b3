"""A user's own helpers, which `user_guide.py` imports."""

import nncase
import numpy as np


def get_cosine(a, b):
    a, b = a.reshape(-1), b.reshape(-1)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def run_kmodel(path, inputs):
    sim = nncase.Simulator()
    with open(path, "rb") as f:
        sim.load_model(f.read())
    for i, x in enumerate(inputs):
        sim.set_input_tensor(i, nncase.RuntimeTensor.from_numpy(x))
    sim.run()
    return [sim.get_output_tensor(i).to_numpy() for i in range(sim.outputs_size)]
