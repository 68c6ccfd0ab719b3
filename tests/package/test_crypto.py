"""The C library's ciphers, hashes and signatures against the package `cryptography`."""

from __future__ import annotations

import ctypes
import hashlib
import random

import numpy as np
import pytest

from intaglio import native

aead = pytest.importorskip("cryptography.hazmat.primitives.ciphers.aead")
ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")

GCM_BYTES = 4096  # of struct itg_gcm, and more
ORDER = 2**252 + 27742317777372353535851937790883648493  # of Ed25519's base point


def size(n: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(n)


class Cipher:
    """AES-256-GCM of the C library: by the CPU's instructions, or in plain C."""

    def __init__(self, key: bytes, plain: bool):
        self.lib = native.library()
        self.lib.itg_gcm_decrypt.restype = ctypes.c_bool
        self.memory = np.empty(GCM_BYTES + 64, np.uint8)
        self.gcm = ctypes.c_void_p(self.memory.ctypes.data + -self.memory.ctypes.data % 64)
        self.lib.itg_gcm_key(self.gcm, key, ctypes.c_bool(plain))

    def decrypt(self, nonce: bytes, made: bytes, aad: bytes) -> bytes | None:
        """The text; None if it was refused, and then the buffer holds zeros."""
        text, tag = made[:-16], made[-16:]
        out = ctypes.create_string_buffer(b"\xee" * (len(text) + 1), len(text) + 1)
        good = self.lib.itg_gcm_decrypt(
            self.gcm, nonce, aad, size(len(aad)), text, out, size(len(text)), tag
        )
        assert out.raw[-1:] == b"\xee", "it wrote past the end"
        if not good:
            assert not any(out.raw[:-1])
        return out.raw[:-1] if good else None


@pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain C"])
def test_every_length_of_text_and_additional_data(plain):
    rng = random.Random(1)
    for n in range(201):
        key, nonce, text = rng.randbytes(32), rng.randbytes(12), rng.randbytes(n)
        cipher = Cipher(key, plain)
        for aad in (b"", rng.randbytes(n), rng.randbytes(rng.randrange(100))):
            made = aead.AESGCM(key).encrypt(nonce, text, aad)
            assert cipher.decrypt(nonce, made, aad) == text


@pytest.mark.parametrize("plain", [False, True], ids=["fast", "plain C"])
def test_random_messages_and_changed_ones(plain):
    rng = random.Random(2)
    for _ in range(1500):
        key, nonce = rng.randbytes(32), rng.randbytes(12)
        text, aad = rng.randbytes(rng.randrange(2000)), rng.randbytes(rng.randrange(300))
        cipher = Cipher(key, plain)
        made = aead.AESGCM(key).encrypt(nonce, text, aad)
        assert cipher.decrypt(nonce, made, aad) == text
        changed = bytearray(made)
        changed[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
        assert cipher.decrypt(nonce, bytes(changed), aad) is None
        tag = bytearray(made)
        tag[-1 - rng.randrange(16)] ^= 1 << rng.randrange(8)
        assert cipher.decrypt(nonce, bytes(tag), aad) is None
        assert cipher.decrypt(nonce, made, aad + b"\0") is None
        assert cipher.decrypt(rng.randbytes(12), made, aad) is None
        assert Cipher(rng.randbytes(32), plain).decrypt(nonce, made, aad) is None


def test_both_ways_agree_on_a_long_message():
    rng = random.Random(3)
    key, nonce, text = rng.randbytes(32), rng.randbytes(12), rng.randbytes(1_000_003)
    made = aead.AESGCM(key).encrypt(nonce, text, b"head")
    assert Cipher(key, False).decrypt(nonce, made, b"head") == text
    assert Cipher(key, True).decrypt(nonce, made, b"head") == text


def sha256(pieces: list[bytes]) -> bytes:
    state, digest = (ctypes.c_uint64 * 32)(), ctypes.create_string_buffer(32)
    lib = native.library()
    lib.itg_sha256_begin(state)
    for piece in pieces:
        lib.itg_sha256_add(state, piece, size(len(piece)))
    lib.itg_sha256_end(state, digest)
    return digest.raw


def test_sha_256_and_sha_512():
    rng = random.Random(4)
    for n in [*range(300), *(rng.randrange(20_000) for _ in range(100))]:
        data = rng.randbytes(n)
        cuts = sorted(rng.randrange(n + 1) for _ in range(2))
        pieces = [data[: cuts[0]], data[cuts[0] : cuts[1]], data[cuts[1] :]]
        assert sha256(pieces) == hashlib.sha256(data).digest()
        digest = ctypes.create_string_buffer(64)
        sizes = (ctypes.c_size_t * 3)(*map(len, pieces))
        native.library().itg_sha512((ctypes.c_char_p * 3)(*pieces), sizes, digest)
        assert digest.raw == hashlib.sha512(data).digest()


def test_hkdf():
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    rng = random.Random(5)
    for _ in range(50):
        key, salt = rng.randbytes(32), rng.randbytes(32)
        info = bytes(rng.randrange(1, 256) for _ in range(rng.randrange(60)))
        result = ctypes.create_string_buffer(32)
        native.library().itg_hkdf_sha256(key, salt, info, result)
        assert result.raw == HKDF(SHA256(), 32, salt, info).derive(key)


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    function = native.library().itg_ed25519_verify
    function.restype = ctypes.c_bool
    return bool(function(key, signature, message, size(len(message))))


def accepted(key: bytes, signature: bytes, message: bytes) -> bool:
    """What the package `cryptography` says."""
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def test_ed25519_agrees_on_good_and_changed_signatures():
    rng = random.Random(6)
    for n in range(150):
        signer = ed25519.Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
        key, message = signer.public_key().public_bytes_raw(), rng.randbytes(n)
        signature = signer.sign(message)
        assert verify(key, signature, message)
        assert not verify(key, signature, message + b"\0")
        for given in ("key", "signature"):
            changed = bytearray(key if given == "key" else signature)
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            pair = (bytes(changed), signature) if given == "key" else (key, bytes(changed))
            assert not verify(*pair, message)
            assert not accepted(*pair, message)
        s = int.from_bytes(signature[32:], "little") + ORDER  # the same equation in another form
        assert not verify(key, signature[:32] + s.to_bytes(32, "little"), message)


def test_ed25519_refuses_random_keys_and_signatures():
    rng = random.Random(7)
    for _ in range(300):
        key, signature = rng.randbytes(32), rng.randbytes(63) + bytes([rng.randrange(17)])
        assert not verify(key, signature, b"message")
