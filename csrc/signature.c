// The Ed25519 signature of a package file, in section SIGN.
#include <stdio.h>
#include <string.h>

#include "encryption.h"
#include "runtime.h"

static const char LABEL[] = "intaglio package signature 1";  // signed before the digest

enum { SHOWN = 4 };  // bytes of a public key in a message

// The bytes of the file, with zeros in place of the signature and of the checksums that depend on
// it.
static void digest_of(const uint8_t *file, uint64_t size, const itg_file_section *rows,
                      uint32_t count, uint64_t place, uint8_t digest[32]) {
  itg_file_header h;
  itg_sha256 hash;
  const uint64_t start = sizeof h + count * sizeof *rows;
  const uint64_t at = place + offsetof(itg_file_signature, signature);
  static const uint8_t zeros[sizeof((itg_file_signature *)0)->signature];
  memcpy(&h, file, sizeof h);
  h.crc = 0;
  itg_sha256_begin(&hash);
  itg_sha256_add(&hash, &h, sizeof h);
  itg_sha256_add(&hash, rows, count * sizeof *rows);
  itg_sha256_add(&hash, file + start, (size_t)(at - start));
  itg_sha256_add(&hash, zeros, sizeof zeros);
  itg_sha256_add(&hash, file + at + sizeof zeros, (size_t)(size - at - sizeof zeros));
  itg_sha256_end(&hash, digest);
}

itg_status itg_check_signature(const void *data, uint64_t size, const uint8_t public_key[32],
                               itg_error *e) {
  const uint8_t *file = data;
  itg_file_header h;
  itg_file_section rows[ITG_MAX_SECTIONS], *row = NULL;
  if (size < sizeof h)
    BAD("file has %llu bytes, its header alone has 32; it is empty or truncated",
        (unsigned long long)size);
  memcpy(&h, file, sizeof h);
  if (memcmp(h.magic, "ITG1", 4)) BAD("file does not start with ITG1; it is no package file");
  if (h.size != size)
    BAD("file has %llu bytes, its header says %llu; it is truncated or damaged",
        (unsigned long long)size, (unsigned long long)h.size);
  const uint64_t start = sizeof h + h.sections * (uint64_t)sizeof *rows;
  if (h.sections > ITG_MAX_SECTIONS || size < start)
    BAD("file says it has %u sections; that does not fit", h.sections);
  memcpy(rows, file + sizeof h, (size_t)(start - sizeof h));
  for (uint32_t i = 0; i < h.sections; i++) {
    if (memcmp(rows[i].kind, "SIGN", 4)) continue;
    if (row) BAD("file has two sections SIGN");
    row = &rows[i];
  }
  if (!row)
    return itg_fail(
        e, ITG_BAD_KEY,
        "package has no signature; public_key= asks for one; sign it with `intaglio sign`, "
        "or leave public_key= out");
  itg_file_signature s;
  if (row->size != sizeof s || row->offset < start || row->offset > size - sizeof s)
    BAD("section SIGN lies outside of the file, or has a wrong size");
  memcpy(&s, file + row->offset, sizeof s);
  if (itg_crc32(0, &s, sizeof s) != row->crc)
    BAD("checksum of section SIGN differs; the file is damaged");
  if (memcmp(s.public_key, public_key, sizeof s.public_key)) {
    char signer[2 * SHOWN + 1];  // the other one may be a secret key, given by mistake
    for (int i = 0; i < SHOWN; i++) snprintf(signer + 2 * i, 3, "%02x", s.public_key[i]);
    return itg_fail(
        e, ITG_BAD_KEY,
        "package is signed with another key, %s...; public_key= names the signer; give the "
        "public key of %s..., or sign it again",
        signer, signer);
  }
  uint8_t message[sizeof LABEL + 32];
  row->crc = 0;
  memcpy(message, LABEL, sizeof LABEL);
  digest_of(file, size, rows, h.sections, row->offset, message + sizeof LABEL);
  if (!itg_ed25519_verify(public_key, s.signature, message, sizeof message))
    BAD("signature does not fit the package; the file was altered or damaged; get a good copy");
  return ITG_OK;
}
