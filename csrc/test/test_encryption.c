// Encrypted packages in C: keys from every source, every changed byte and every truncation refused,
// no key left in memory, several openings at once.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "encryption.h"
#include "reference_gcm.h"
#include "testing.h"

enum { N = 10, LEVEL_WEIGHTS = 1, LEVEL_ALL = 3 };
static const char LABEL[] = "intaglio package encryption 1";

static uint64_t aligned(uint64_t n) { return (n + 63) / 64 * 64; }

static void make_part(itg_file_part *part, const uint8_t key[32], uint32_t number,
                      const uint8_t *from, uint8_t *to, uint64_t size, bool encrypted) {
  uint8_t nonce[12] = {(uint8_t)number};
  *part = (itg_file_part){.size = size, .encrypted = encrypted};
  memcpy(to, from, size);
  if (encrypted) ref_encrypt(key, nonce, NULL, 0, from, to, size, part->tag);
  else ref_encrypt(key, nonce, from, size, NULL, NULL, 0, part->tag);
}

// The encrypted file of a package, aligned to 64, as src/intaglio/package/encryption.py makes it.
static uint8_t *encrypt(const uint8_t *plain, size_t size, uint32_t level, const uint8_t user[32],
                        uint8_t salt, size_t *made_size) {
  struct {
    itg_file_crypt crypt;
    itg_file_part parts[3];
  } record = {{.level = level, .parts = level == LEVEL_ALL ? 1 : 3}, {{0}}};
  const size_t record_size = sizeof record.crypt + record.crypt.parts * sizeof *record.parts;
  uint8_t key[32], nonce[12] = {255, 255, 255, 255}, *body = malloc(size);
  memset(record.crypt.salt, salt, sizeof record.crypt.salt);
  itg_hkdf_sha256(user, record.crypt.salt, LABEL, key);
  const uint64_t places[2] = {128, aligned(128 + record_size)};
  *made_size = aligned(places[1] + size);
  uint8_t *file = aligned_alloc(64, *made_size), *to = file + places[1];
  memset(file, 0, *made_size);
  memcpy(body, plain, size);
  itg_file_header *inner = (void *)body;
  itg_file_section *s = (void *)(body + sizeof *inner), *consts = s;
  while (memcmp(consts->kind, "CNST", 4)) consts++;
  for (uint32_t i = 0; i < inner->sections; i++)
    if (level == LEVEL_ALL || &s[i] == consts) s[i].crc = 0;
  inner->crc = 0;
  inner->crc = crc_of(body, sizeof *inner + inner->sections * sizeof *s);
  const uint64_t start = consts->offset, end = start + consts->size;
  if (level == LEVEL_ALL) {
    make_part(&record.parts[0], key, 0, body, to, size, true);
  } else {
    make_part(&record.parts[0], key, 0, body, to, start, false);
    make_part(&record.parts[1], key, 1, body + start, to + start, end - start, true);
    make_part(&record.parts[2], key, 2, body + end, to + end, size - end, false);
  }
  ref_encrypt(key, nonce, (const uint8_t *)&record, record_size, NULL, NULL, 0, record.crypt.tag);
  memcpy(file + places[0], &record, record_size);
  itg_file_header h = {.magic = {'I', 'T', 'G', '1'},
                       .version = ITG_FILE_VERSION,
                       .sections = 2,
                       .flags = ITG_FILE_ENCRYPTED,
                       .size = *made_size};
  const itg_file_section rows[2] = {{.kind = "CRPT",
                                     .offset = places[0],
                                     .size = record_size,
                                     .crc = crc_of(&record, record_size)},
                                    {.kind = "BODY", .offset = places[1], .size = size}};
  memcpy(file, &h, sizeof h);
  memcpy(file + sizeof h, rows, sizeof rows);
  h.crc = crc_of(file, sizeof h + sizeof rows);
  memcpy(file, &h, sizeof h);
  free(body);
  return file;
}

static void fix_header(uint8_t *file) {  // its checksum, as far as the number of sections is right
  itg_file_header *h = (void *)file;
  h->crc = 0;
  h->crc = crc_of(file, sizeof *h + 2 * sizeof(itg_file_section));
}

static itg_status opens(const uint8_t *file, size_t size, const itg_open_options *o) {
  itg_model *model = (void *)file;
  itg_error error = {{0}};
  const itg_status status = itg_model_open_with(file, size, o, &model, &error);
  if (status) CHECK(!model && *error.words);
  itg_model_close(model);
  return status;
}

static void run_it(const itg_model *model) {
  itg_session *session = create_or_die(model, NULL);
  float x[N];
  for (int i = 0; i < N; i++) x[i] = (float)(i - 5);
  CHECK(!itg_set_input(session, 0, x, sizeof x) && !itg_run(session));
  itg_view view;
  CHECK(!itg_get_output(session, 0, &view));
  for (int i = 0; i < N; i++) CHECK(((const float *)view.data)[i] == chain_at(x[i], i, N));
  itg_session_destroy(session);
}

static itg_status refuse(void *context, uint8_t key[32], itg_error *error) {
  if (context) strcpy(error->words, context);
  return ITG_RUN_ERROR;
}

static itg_status give(void *context, uint8_t key[32], itg_error *error) {
  memcpy(key, context, 32);
  return ITG_OK;
}

static void test_sources(const uint8_t *file, size_t size, uint8_t key[32]) {
  itg_error error;
  itg_model *model;
  char path[] = "/tmp/intaglio-test-XXXXXX", package[] = "/tmp/intaglio-test-XXXXXX", hex[65];
  int fd = mkstemp(path), other = mkstemp(package);
  CHECK(write(other, file, size) == (ssize_t)size && !close(other));
  for (int i = 0; i < 32; i++) sprintf(hex + 2 * i, "%02X", key[i]);
  setenv("ITG_TEST_KEY", hex, 1);
  CHECK(write(fd, hex, 64) == 64 && write(fd, "\n", 1) == 1);
  const itg_open_options ways[] = {{.key = key},
                                   {.key_from = give, .key_context = key},
                                   {.key_from = itg_key_from_env, .key_context = "ITG_TEST_KEY"},
                                   {.key_from = itg_key_from_file, .key_context = path},
                                   {.key = key, .flags = ITG_OPEN_COPY}};
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    CHECK(!itg_model_open_file_with(package, &ways[i], &model, &error));
    run_it(model);
    itg_model_close(model);
    CHECK(opens(file, size, &ways[i]) == ITG_OK);
  }
  CHECK(!ftruncate(fd, 0) && lseek(fd, 0, SEEK_SET) == 0 && write(fd, key, 32) == 32);
  CHECK(opens(file, size, &ways[3]) == ITG_OK);  // raw bytes
  CHECK(write(fd, "x", 1) == 1 && opens(file, size, &ways[3]) == ITG_BAD_KEY);
  unlink(path), unlink(package), close(fd);
  CHECK(opens(file, size, &ways[3]) == ITG_BAD_KEY);

  CHECK(itg_model_open_with(file, size, NULL, &model, &error) == ITG_BAD_KEY);
  CHECK(strstr(error.words, "is encrypted (level all)"));
  CHECK(itg_model_open(file, size, 0, &model, &error) == ITG_BAD_KEY);
  itg_open_options o = {.key_from = refuse, .key_context = "no vault"};
  CHECK(itg_model_open_with(file, size, &o, &model, &error) == ITG_RUN_ERROR && !model);
  CHECK(!strcmp(error.words, "no vault"));
  o.key_context = NULL;
  CHECK(itg_model_open_with(file, size, &o, &model, &error) == ITG_RUN_ERROR);
  CHECK(strstr(error.words, "function that gives the key failed"));
  CHECK(itg_key_from_file(hex, key, &error) == ITG_BAD_KEY && !strstr(error.words, hex));
  CHECK(itg_key_from_env(hex, key, &error) == ITG_BAD_KEY && !strstr(error.words, hex));
  CHECK(itg_key_from_file(NULL, key, &error) == ITG_BAD_INPUT &&
        itg_key_from_env(NULL, key, &error) == ITG_BAD_INPUT &&
        itg_public_key_from_file(NULL, key, &error) == ITG_BAD_INPUT &&
        itg_key_from_file(path, NULL, &error) == ITG_BAD_INPUT);
}

// Every byte matters, with checksums as they were and with that of the header corrected.
static void test_damage(uint8_t *file, size_t size, const uint8_t key[32]) {
  const itg_open_options o = {.key = key};
  CHECK(opens(file, size, &o) == ITG_OK);
  for (size_t i = 0; i < size; i++)
    for (int fixed = 0; fixed < 2; fixed++) {
      itg_file_header before = *(itg_file_header *)(void *)file;
      const uint8_t byte = file[i];
      file[i] ^= (uint8_t)(1 << i % 8);
      if (fixed) fix_header(file);
      const bool as_before = fixed && i >= 20 && i < 24;  // the checksum itself
      CHECK((opens(file, size, &o) == ITG_OK) == as_before);
      file[i] = byte;
      memcpy(file, &before, sizeof before);
    }
  for (size_t less = 0; less < size; less += less < 400 ? 1 : 37) {
    void *block = NULL;
    CHECK(!posix_memalign(&block, 64, less));  // the sanitizer sees its end
    uint8_t *cut = block;
    memcpy(cut, file, less);
    CHECK(opens(cut, less, &o) != ITG_OK);
    itg_file_header *h = (void *)cut;
    if (less >= 96) {
      h->size = less, fix_header(cut);
      CHECK(opens(cut, less, &o) != ITG_OK);
    }
    free(cut);
  }
}

static void test_replay(const uint8_t *plain, size_t plain_size, const uint8_t key[32]) {
  const itg_open_options o = {.key = key};
  size_t size;
  uint8_t *a = encrypt(plain, plain_size, LEVEL_ALL, key, 1, &size);
  uint8_t *b = encrypt(plain, plain_size, LEVEL_ALL, key, 2, &size);
  const itg_file_section *rows = (const void *)(a + sizeof(itg_file_header));
  for (int i = 0; i < 2; i++) {  // the record or the body of another file under the same key
    uint8_t *mixed = aligned_alloc(64, size);
    memcpy(mixed, a, size);
    memcpy(mixed + rows[i].offset, b + rows[i].offset, rows[i].size);
    ((itg_file_section *)(void *)(mixed + sizeof(itg_file_header)))[0].crc =
        crc_of(mixed + rows[0].offset, rows[0].size);
    fix_header(mixed);
    CHECK(opens(mixed, size, &o) == ITG_BAD_FILE);
    free(mixed);
  }
  CHECK(opens(plain, plain_size, &o) == ITG_BAD_KEY);  // replaced by one that is not encrypted
  free(a), free(b);
}

// How often `bytes`, which lie in secret memory, occur in memory that a core dump would have.
static int found_in_memory(const uint8_t *bytes, size_t size) {
  enum { BLOCK = 1 << 20, SHADOW = 64 << 20 };  // regions above SHADOW belong to sanitizers
  FILE *maps = fopen("/proc/self/smaps", "r");
  const int memory = open("/proc/self/mem", O_RDONLY);
  CHECK(maps && memory >= 0);
  uint8_t *block = itg_secret_alloc(BLOCK);
  char line[512], mode[8];
  unsigned long long start = 0, end = 0, from,
                     to;  // on 32-bit machines too: the last page ends at 2^32
  int found = 0;
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%llx-%llx %7s", &from, &to, mode) == 3) start = from, end = to;
    if (strncmp(line, "VmFlags: rd", 11) || strstr(line, " dd") || end - start > SHADOW) continue;
    for (unsigned long long at = start; at < end; at += BLOCK - size) {
      const ssize_t n =
          pread(memory, block, end - at < BLOCK ? (size_t)(end - at) : BLOCK, (off_t)at);
      for (ssize_t i = 0; i + (ssize_t)size <= n; i++) found += !memcmp(block + i, bytes, size);
    }
  }
  itg_secret_free(block, BLOCK);
  fclose(maps), close(memory);
  return found;
}

static void test_no_key_in_memory(const uint8_t *plain, size_t plain_size) {
  uint8_t *key = itg_secret_alloc(96), *file_key = key + 32, *weights = key + 64;
  uint8_t salt[32];
  size_t size;
  char path[] = "/tmp/intaglio-test-XXXXXX";
  const int fd = mkstemp(path);
  for (int i = 0; i < 32; i++) key[i] = (uint8_t)(i * i * 29 + 113);
  CHECK(write(fd, key, 32) == 32 && !close(fd));
  uint8_t *file = encrypt(plain, plain_size, LEVEL_ALL, key, 7, &size);
  memset(salt, 7, sizeof salt);
  itg_hkdf_sha256(key, salt, LABEL, file_key);
  itg_wipe_stack();
  itg_model *model;
  itg_error error;
  const itg_open_options o = {.key_from = itg_key_from_file, .key_context = path};
  CHECK(!itg_model_open_with(file, size, &o, &model, &error));
  unlink(path);
  for (int half = 0; half < 4; half++) CHECK(!found_in_memory(key + 16 * half, 16));
  memcpy(weights, (const uint8_t *)itg_model_weights(model) + 4, 32);
  const int without = found_in_memory(weights, 32);  // the test's own package has them, too
  uint8_t *copy = malloc(64);
  memcpy(copy, weights, 32);
  CHECK(found_in_memory(weights, 32) == without + 1);  // the search finds what is there
  run_it(model);
  itg_model_close(model);
  free(copy), free(file);
  itg_secret_free(key, 96);
}

typedef struct {
  const uint8_t *file;
  size_t size;
  const uint8_t *key;
} job;

static void *open_often(void *context) {
  const job *j = context;
  for (int i = 0; i < 20; i++) {
    itg_model *model;
    itg_error error;
    uint8_t wrong[32] = {0};
    CHECK(
        !itg_model_open_with(j->file, j->size, &(itg_open_options){.key = j->key}, &model, &error));
    run_it(model);
    itg_model_close(model);
    CHECK(opens(j->file, j->size, &(itg_open_options){.key = wrong}) == ITG_BAD_KEY);
  }
  return NULL;
}

static void test_threads(const uint8_t *file, size_t size, const uint8_t key[32]) {
  job j = {file, size, key};
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK(!pthread_create(&threads[i], NULL, open_often, &j));
  for (int i = 0; i < 4; i++) CHECK(!pthread_join(threads[i], NULL));
}

int main(int argc, char **argv) {
  const bool only_threads = argc > 1 && !strcmp(argv[1], "threads");  // for a sanitizer of threads
  size_t plain_size, size;
  uint8_t key[32], *plain = build_chain(N, 3, &plain_size);
  for (int i = 0; i < 32; i++) key[i] = (uint8_t)(i * 7 + 3);
  uint8_t *file = encrypt(plain, plain_size, LEVEL_ALL, key, 9, &size);
  test_threads(file, size, key);
  if (!only_threads) {
    test_no_key_in_memory(plain, plain_size);
    test_damage(file, size, key);
    test_replay(plain, plain_size, key);
    test_sources(file, size, key);
    free(file);
    file = encrypt(plain, plain_size, LEVEL_WEIGHTS, key, 9, &size);
    test_damage(file, size, key);
  }
  free(file);
  free(plain);
  return 0;
}
