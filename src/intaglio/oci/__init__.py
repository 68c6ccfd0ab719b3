"""Packages as OCI artifacts: pushed to container registries and pulled from them."""
