// Opening an encrypted package: header, section CRPT with the tags, section BODY with the package,
// and maybe section SIGN. docs/format.md has the layout. Everything is authenticated before it is
// used.
#include <stdlib.h>
#include <string.h>

#include "encryption.h"
#include "runtime.h"

#define KEY_LABEL "intaglio package encryption 1"

typedef struct {  // lies in secret memory
  uint8_t user[ITG_KEY_BYTES], file[ITG_KEY_BYTES];
  itg_gcm gcm;
} keys;

// An encrypted file has exactly one form, so that every change of a byte is noticed.
typedef struct {
  const uint8_t *file;
  uint64_t size, crypt_size, body, body_size;
  itg_file_crypt *crypt;  // a copy: the file may change while it is read
  const itg_file_part *parts;
} envelope;

static const char *level_name(uint32_t level) {
  static const char *const names[] = {"weights", "graph", "all"};
  return level >= 1 && level <= 3 ? names[level - 1] : "unknown";
}

static bool is_zero(const uint8_t *data, uint64_t from, uint64_t to) {
  while (from < to)
    if (data[from++]) return false;
  return true;
}

// The sections follow each other, aligned, with zeros between them.
static bool has_layout(envelope *x, const itg_file_header *h, const itg_file_section *rows) {
  static const char kinds[3][4] = {"CRPT", "BODY", "SIGN"};
  uint64_t end = sizeof *h + h->sections * sizeof *rows;
  for (uint32_t i = 0; i < h->sections; i++) {
    const itg_file_section *s = &rows[i];
    const uint64_t start = itg_align(end);
    if (memcmp(s->kind, kinds[i], 4) || s->flags || s->reserved || s->offset != start ||
        start > x->size || s->size > x->size - start || !is_zero(x->file, end, start))
      return false;
    if (i == 1 ? s->crc != 0 : itg_crc32(0, x->file + start, s->size) != s->crc) return false;
    end = start + s->size;
  }
  x->crypt_size = rows[0].size;
  x->body = rows[1].offset, x->body_size = rows[1].size;
  return (h->sections == 2 || rows[2].size == sizeof(itg_file_signature)) &&
         x->size == itg_align(end) && is_zero(x->file, end, x->size);
}

static itg_status read_envelope(envelope *x, itg_error *e) {
  itg_file_header h;
  itg_file_section rows[3];
  memcpy(&h, x->file, sizeof h);
  if (h.size != x->size)
    BAD("file has %llu bytes, its header says %llu; it is truncated or damaged",
        (unsigned long long)x->size, (unsigned long long)h.size);
  const uint64_t table = h.sections * (uint64_t)sizeof *rows;
  if (h.sections < 2 || h.sections > 3 || x->size - sizeof h < table)
    BAD("encrypted file has %u sections, 2 or 3 are right; it is damaged", h.sections);
  memcpy(rows, x->file + sizeof h, table);
  const uint32_t crc = h.crc;
  h.crc = 0;
  if (itg_crc32(itg_crc32(0, &h, sizeof h), rows, table) != crc)
    BAD("checksum of the header differs; the file is damaged");
  if (h.isa || !has_layout(x, &h, rows))
    BAD("layout of the encrypted file is wrong; it is damaged");
  if (x->crypt_size < sizeof *x->crypt || x->body_size < sizeof h)
    BAD("section CRPT or BODY is too short; the file is damaged");
  if (!(x->crypt = malloc(x->crypt_size)))
    return itg_fail(e, ITG_NO_MEMORY, "no memory to open an encrypted package");
  memcpy(x->crypt, x->file + rows[0].offset, x->crypt_size);
  x->parts = (const void *)(x->crypt + 1);
  if ((x->crypt_size - sizeof *x->crypt) / sizeof *x->parts != x->crypt->parts ||
      (x->crypt_size - sizeof *x->crypt) % sizeof *x->parts)
    BAD("section CRPT has %llu bytes, too few or too many for %u parts; the file is damaged",
        (unsigned long long)x->crypt_size, x->crypt->parts);
  return ITG_OK;
}

static itg_status get_key(const envelope *x, const itg_open_options *o, keys *k, itg_error *e) {
  if (o->key) {
    memcpy(k->user, o->key, sizeof k->user);
    return ITG_OK;
  }
  if (!o->key_from)
    return itg_fail(e, ITG_BAD_KEY,
                    "package is encrypted (level %s); only its key opens it; give key=",
                    level_name(x->crypt->level));
  itg_error words = {{0}};
  const itg_status status = o->key_from(o->key_context, k->user, &words);
  if (!status) return ITG_OK;
  words.words[sizeof words.words - 1] = 0;
  return itg_fail(e, status > ITG_BAD_KEY ? ITG_BAD_KEY : status, "%s",
                  *words.words ? words.words : "the function that gives the key failed");
}

// Each tag has a number of its own as nonce, under a key that no other file has.
static bool decrypt_part(const keys *k, uint32_t number, const void *aad, uint64_t aad_size,
                         const void *from, void *to, uint64_t size, const uint8_t *tag) {
  uint8_t nonce[ITG_NONCE_BYTES] = {0};
  itg_put_le32(nonce, number);
  return itg_gcm_decrypt(&k->gcm, nonce, aad, (size_t)aad_size, from, to, (size_t)size, tag);
}

static itg_status check_key(envelope *x, keys *k, itg_error *e) {
  uint8_t tag[ITG_TAG_BYTES];
  itg_hkdf_sha256(k->user, x->crypt->salt, KEY_LABEL, k->file);
  itg_gcm_key(&k->gcm, k->file, false);
  memcpy(tag, x->crypt->tag, sizeof tag);
  memset(x->crypt->tag, 0, sizeof tag);
  if (!decrypt_part(k, ITG_NONE, x->crypt, x->crypt_size, NULL, NULL, 0, tag))
    return itg_fail(
        e, ITG_BAD_KEY,
        "key does not fit the encrypted package, or somebody altered the file; give the "
        "key that it was encrypted with");
  return ITG_OK;
}

static itg_status decrypt_body(const envelope *x, const keys *k, uint8_t *to, itg_error *e) {
  const uint8_t *from = x->file + x->body;
  uint64_t left = x->body_size;
  for (uint32_t i = 0; i < x->crypt->parts; i++) {
    const itg_file_part *p = &x->parts[i];
    if (p->size > left || p->encrypted > 1 || p->reserved)
      BAD("part %u of the encrypted package has a wrong size; the file is damaged", i);
    if (!p->encrypted) memcpy(to, from, p->size);  // first, so that what is checked is what is used
    if (!(p->encrypted ? decrypt_part(k, i, NULL, 0, from, to, p->size, p->tag)
                       : decrypt_part(k, i, to, p->size, NULL, NULL, 0, p->tag)))
      BAD("part %u of the encrypted package fails authentication; the file was altered or damaged; "
          "get a good copy",
          i);
    from += p->size, to += p->size, left -= p->size;
  }
  if (left) BAD("parts of the encrypted package are shorter than section BODY; it is damaged");
  return ITG_OK;
}

itg_status itg_decrypt(const void *file, uint64_t size, const itg_open_options *o, void **image,
                       uint64_t *image_size, itg_error *e) {
  *image = NULL;
  *image_size = 0;
  itg_file_header h;
  if (size < sizeof h) return ITG_OK;
  memcpy(&h, file, sizeof h);
  if (memcmp(h.magic, "ITG1", 4) || h.version != ITG_FILE_VERSION) return ITG_OK;
  if (!h.flags && (o->key || o->key_from))
    return itg_fail(e, ITG_BAD_KEY,
                    "package is not encrypted, but a key was given; somebody may have replaced the "
                    "file; leave key= out, or encrypt the package");
  if (h.flags != ITG_FILE_ENCRYPTED) return ITG_OK;
  envelope x = {.file = file, .size = size};
  itg_status status = read_envelope(&x, e);
  if (status) {
    free(x.crypt);
    return status;
  }
  keys *k = itg_secret_alloc(sizeof *k);
  void *to = NULL;
  if (k) status = get_key(&x, o, k, e);
  if (k && !status) status = check_key(&x, k, e);
  if (k && !status) to = itg_secret_alloc((size_t)x.body_size);
  if (!status && !to)
    status = itg_fail(e, ITG_NO_MEMORY, "no memory to decrypt a package of %llu bytes",
                      (unsigned long long)x.body_size);
  if (!status) status = decrypt_body(&x, k, to, e);
  itg_secret_free(k, sizeof *k);
  itg_wipe_stack();
  free(x.crypt);
  if (status) {
    itg_secret_free(to, (size_t)x.body_size);
    return status;
  }
  *image = to;
  *image_size = x.body_size;
  return ITG_OK;
}
