"""The package `rknn` of RKNN-Toolkit2, on Intaglio: `rknn.api` and `rknn.utils`."""
