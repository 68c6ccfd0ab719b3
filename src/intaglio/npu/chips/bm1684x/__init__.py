"""Sophgo's BM1684X and its relatives: commands, bmodel files, a simulator and a compiler."""
