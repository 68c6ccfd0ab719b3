// Encrypted and signed packages: decrypt.c, signature.c.
#pragma once
#include "crypto/crypto.h"
#include "format.h"

enum { ITG_MAX_SECTIONS = 64 };

// The package inside of an encrypted one, decrypted and authenticated, in memory for
// itg_secret_free. `*image` is NULL if the file is not encrypted, or is no package that
// this runtime knows.
ITG_API itg_status itg_decrypt(const void *file, uint64_t size, const itg_open_options *options,
                               void **image, uint64_t *image_size, itg_error *error);
// Whether this key signed the file. The fields that hold the signature and checksums of it count as
// zero.
ITG_API itg_status itg_check_signature(const void *file, uint64_t size,
                                       const uint8_t public_key[32], itg_error *error);
