"""Everything for NPUs: from a quantised graph to a program, its simulation and its predicted time.

- `ops`: the `npu.` ops, with their meaning in numpy and their equivalents for the CPU.
- `lowering`: the rules that turn neutral ops into `npu.` ops, within a chip's limits.
- `layers`, `tiling`: layer groups, tile sizes, and the place of every tensor in on-chip memory.
- `weight_packing`, `sparse_weights`: weights in the order in which a chip's units read them.
- `chip_layout`: what tiling has to know of a chip that has an encoder of its own.
- `own`: Intaglio's own instruction set: records, emission, hazards, disassembly.
- `compile`: all of these steps in order; `memory` and `metadata` report on the result.
- `simulate`: what a program computes, instruction by instruction, in numpy.
- `predict`: how long a program takes on its chip.
"""
