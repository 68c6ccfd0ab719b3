"""The package `rknnlite` of RKNN-Toolkit-Lite2, on Intaglio."""
