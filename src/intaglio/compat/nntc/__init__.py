"""The command lines of tpu-nntc: bmneto and its relatives, and automatic quantisation."""
