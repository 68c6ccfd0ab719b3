"""New keys: 32 random bytes to encrypt packages, and Ed25519 pairs to sign them."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from intaglio.errors import BadInput
from intaglio.package.keys import BYTES, missing_extra

SECRET = 0o600  # only the owner reads and writes
PUBLIC = 0o644


def write_key(path: str | Path) -> None:
    """Write a new random key, as hexadecimal digits, to a new file."""
    _create(Path(path), f"{secrets.token_hex(BYTES)}\n".encode(), SECRET)


def write_signing_pair(path: str | Path) -> Path:
    """Write a new private key to `path` and its public key to the path that is returned."""
    try:
        from cryptography.hazmat.primitives import serialization as s
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        raise missing_extra("signing") from None
    private, public = Path(path), Path(path).with_suffix(".pub")
    if private == public:
        raise BadInput(f"{path} ends in .pub, as the public key does; give a name such as key.pem")
    if public.exists():
        raise _there(public)
    key = Ed25519PrivateKey.generate()
    pem = s.Encoding.PEM
    plain = s.NoEncryption()
    _create(private, key.private_bytes(pem, s.PrivateFormat.PKCS8, plain), SECRET)
    spki = s.PublicFormat.SubjectPublicKeyInfo
    _create(public, key.public_key().public_bytes(pem, spki), PUBLIC)
    return public


def _create(path: Path, data: bytes, mode: int) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise _there(path) from None
    except OSError as e:
        raise BadInput(f"cannot write {path}: {e.strerror}") from None
    with open(fd, "wb") as file:
        file.write(data)
        os.fsync(fd)


def _there(path: Path) -> BadInput:
    return BadInput(f"{path} exists; a key is never overwritten; give another name, or delete it")
