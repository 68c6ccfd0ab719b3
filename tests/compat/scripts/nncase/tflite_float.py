"""A TFLite classifier in floats, as nncase 1.x documents it."""

import nncase

options = nncase.CompileOptions()
options.target = "k510"
options.dump_ir = True
options.dump_asm = True
options.dump_dir = "tmp"
compiler = nncase.Compiler(options)
with open("model.tflite", "rb") as f:
    compiler.import_tflite(f.read(), nncase.ImportOptions())
compiler.compile()
kmodel = compiler.gencode_tobytes()
with open("test.kmodel", "wb") as f:
    f.write(kmodel)
print("bytes", len(kmodel) > 0)
