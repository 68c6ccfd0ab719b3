// Weight files: constants of a package that lie in a file of their own (section WGTS).
// docs/format.md has the layout. A file is mapped once in a process, whichever models use it, and
// checked once. The package names files of its own folder only; a name with a path in it, a link or
// a pipe is refused.
#define _GNU_SOURCE           // O_NOFOLLOW, O_DIRECTORY
#define _FILE_OFFSET_BITS 64  // on 32-bit systems too
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "encryption.h"
#include "runtime.h"

struct itg_weights {
  itg_constants constants;
  uint8_t layout[32], content[32];
  void *owned;  // what close frees, or NULL
  bool mapped;
  atomic_bool verified;  // its checksums were compared
  uint32_t users;        // models that use it
  // of a mapped file, which other models may use too
  dev_t device;
  ino_t inode;
  struct timespec changed;
  struct itg_weights *next;
};

// Where to look for the files of a package, and how to open them.
typedef struct place {
  int beside, folder;  // descriptors of the package's folder and of the one that was given, or -1
  itg_weights *given;  // the file that was given, or NULL
  bool copy, verify, hashed;
} place;

// ---- what a file claims -------------------------------------------------------------------------
static itg_status check_blob(const uint8_t *data, const itg_file_blob *b, uint32_t i, bool verify,
                             bool hashed, const char *name, itg_error *e) {
  if (verify && itg_crc32(0, data + b->offset, (size_t)b->size) != b->crc)
    BAD("checksum of blob %u of weight file '%.80s' differs; the file is damaged", i, name);
  if (!hashed) return ITG_OK;
  itg_sha256 hash;
  uint8_t digest[32];
  itg_sha256_begin(&hash);
  itg_sha256_add(&hash, data + b->offset, (size_t)b->size);
  itg_sha256_end(&hash, digest);
  if (memcmp(digest, b->hash, sizeof digest))
    BAD("blob %u of weight file '%.80s' is not the one that was signed; get a good copy", i, name);
  return ITG_OK;
}

static itg_status check_blobs(const itg_weights *w, bool verify, bool hashed, const char *name,
                              itg_error *e) {
  const itg_file_weights_header *h = (const void *)w->constants.data;
  const itg_file_blob *rows = (const void *)(h + 1);
  itg_status status = ITG_OK;
  for (uint32_t i = 0; !status && i < h->blobs; i++)
    status = check_blob(w->constants.data, &rows[i], i, verify, hashed, name, e);
  return status;
}

// Header and table: magic, version, sizes, and blobs that follow each other up to the end.
static itg_status check_table(itg_weights *w, const char *name, itg_error *e) {
  itg_file_weights_header h;
  const uint8_t *data = w->constants.data;
  const uint64_t size = w->constants.size;
  if (size < sizeof h)
    BAD("weight file '%.80s' has %llu bytes, its header alone has 64; it is truncated", name,
        (unsigned long long)size);
  memcpy(&h, data, sizeof h);
  if (memcmp(h.magic, "ITGW", 4))
    BAD("'%.80s' does not start with ITGW; it is no weight file", name);
  if (h.version != ITG_WEIGHTS_VERSION || h.flags)
    BAD("weight file '%.80s' has format version %u and flags 0x%llx, this runtime reads version "
        "%u; write it again",
        name, h.version, (unsigned long long)h.flags, ITG_WEIGHTS_VERSION);
  if (h.size != size)
    BAD("weight file '%.80s' has %llu bytes, its header says %llu; it is truncated or damaged",
        name, (unsigned long long)size, (unsigned long long)h.size);
  if (h.blobs > (size - sizeof h) / sizeof(itg_file_blob))
    BAD("weight file '%.80s' says it has %u blobs; that does not fit", name, h.blobs);
  const uint64_t table = h.blobs * (uint64_t)sizeof(itg_file_blob);
  const uint32_t crc = h.crc;
  h.crc = 0;
  if (itg_crc32(itg_crc32(0, &h, sizeof h), data + sizeof h, (size_t)table) != crc)
    BAD("checksum of the header of weight file '%.80s' differs; it is damaged", name);
  const itg_file_blob *rows = (const void *)(data + sizeof h);
  uint64_t end = sizeof h + table;
  w->constants.first = itg_align(end);
  for (uint32_t i = 0; i < h.blobs; i++) {
    const uint64_t start = itg_align(end);
    if (rows[i].offset != start || start > size || rows[i].size > size - start || rows[i].reserved)
      BAD("blob %u of weight file '%.80s' lies outside of the file, or not after the one before", i,
          name);
    end = start + rows[i].size;
  }
  if (itg_align(end) != size)
    BAD("weight file '%.80s' goes on behind its last blob; it is damaged", name);
  itg_sha256 hash;
  itg_sha256_begin(&hash);
  itg_sha256_add(&hash, &h, sizeof h);
  itg_sha256_add(&hash, data + sizeof h, (size_t)table);
  itg_sha256_end(&hash, w->content);
  memcpy(w->layout, h.layout, sizeof w->layout);
  return ITG_OK;
}

// ---- files that are open in this process --------------------------------------------------------
static pthread_mutex_t files_lock = PTHREAD_MUTEX_INITIALIZER;
static itg_weights *files;  // mapped ones

static void lock_files(void) { pthread_mutex_lock(&files_lock); }
static void unlock_files(void) { pthread_mutex_unlock(&files_lock); }
static void survive_forks(void) { pthread_atfork(lock_files, unlock_files, unlock_files); }

static void begin(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, survive_forks);
  lock_files();
}

static itg_weights *find(const struct stat *st) {
  for (itg_weights *w = files; w; w = w->next)
    if (w->device == st->st_dev && w->inode == st->st_ino &&
        w->constants.size == (uint64_t)st->st_size && w->changed.tv_sec == st->st_mtim.tv_sec &&
        w->changed.tv_nsec == st->st_mtim.tv_nsec)
      return w;
  return NULL;
}

static itg_weights *found(const struct stat *st) {
  begin();
  itg_weights *w = find(st);
  if (w) w->users++;
  unlock_files();
  return w;
}

static void destroy(itg_weights *w) {
  if (w->mapped) munmap((void *)w->constants.data, (size_t)w->constants.size);
  free(w->owned);
  free(w);
}

static void close_weights(itg_weights *w) {
  if (!w) return;
  begin();
  const bool last = !--w->users;
  for (itg_weights **at = &files; last && *at; at = &(*at)->next)
    if (*at == w) {
      *at = w->next;
      break;
    }
  unlock_files();
  if (last) destroy(w);
}

// Lets other models use the file. If another thread was quicker, its mapping is taken.
static itg_weights *shared(itg_weights *w, const struct stat *st) {
  begin();
  itg_weights *other = find(st);
  if (other) {
    other->users++;
  } else {
    w->next = files;
    files = w;
  }
  unlock_files();
  if (other) destroy(w);
  return other ? other : w;
}

// ---- opening ------------------------------------------------------------------------------------
static itg_status verified(itg_weights *w, const place *p, const char *name, itg_error *e) {
  if (!p->verify || atomic_load(&w->verified)) return ITG_OK;
  const itg_status status = check_blobs(w, true, p->hashed, name, e);
  if (!status) atomic_store(&w->verified, true);
  return status;
}

static itg_status read_all(itg_weights *w, int fd, const char *name, itg_error *e) {
  uint8_t *to = w->owned = aligned_alloc(ITG_ALIGN, (size_t)itg_align(w->constants.size));
  if (!to)
    return itg_fail(e, ITG_NO_MEMORY, "no memory for %llu bytes of weights",
                    (unsigned long long)w->constants.size);
  for (uint64_t at = 0; at < w->constants.size;) {
    const ssize_t n = read(fd, to + at, (size_t)(w->constants.size - at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      BAD("cannot read weight file '%.80s': %s", name,
          n ? strerror(errno) : "it became shorter while it was read");
    at += (uint64_t)n;
  }
  w->constants.data = to;
  return ITG_OK;
}

static itg_status map_all(itg_weights *w, int fd, const char *name, itg_error *e) {
  void *map = mmap(NULL, (size_t)w->constants.size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (map == MAP_FAILED) BAD("cannot map weight file '%.80s': %s", name, strerror(errno));
  w->constants.data = map;
  w->mapped = true;
  return ITG_OK;
}

// Opens a regular file and closes the descriptor.
static itg_status open_weights(int fd, const char *name, const place *p, itg_weights **out,
                               itg_error *e) {
  struct stat st;
  if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
    close(fd);
    BAD("weight file '%.80s' is no regular file", name);
  }
  itg_weights *w = p->copy ? NULL : found(&st);
  itg_status status = ITG_OK;
  if (!w) {
    w = calloc(1, sizeof *w);
    if (!w || (uint64_t)st.st_size > ITG_MAX_BYTES) {
      free(w);
      close(fd);
      return itg_fail(e, ITG_NO_MEMORY, "no memory for weights of %llu bytes",
                      (unsigned long long)st.st_size);
    }
    *w = (itg_weights){.constants = {.size = (uint64_t)st.st_size},
                       .users = 1,
                       .device = st.st_dev,
                       .inode = st.st_ino,
                       .changed = st.st_mtim};
    if (!st.st_size) status = itg_fail(e, ITG_BAD_FILE, "weight file '%.80s' is empty", name);
    else status = p->copy ? read_all(w, fd, name, e) : map_all(w, fd, name, e);
    if (!status) status = check_table(w, name, e);
    if (!status) status = verified(w, p, name, e);
    if (!status && !p->copy) w = shared(w, &st);
  } else {
    status = verified(w, p, name, e);
  }
  close(fd);
  if (status) {
    close_weights(w);
    return status;
  }
  *out = w;
  return ITG_OK;
}

// The name of a file in the folder of the package, and nothing else.
static bool is_plain_name(const char *name) {
  const size_t n = strlen(name);
  if (!n || n > 255 || *name == '.' || strpbrk(name, "/\\:")) return false;
  for (const char *c = name; *c; c++)
    if ((unsigned char)*c < 32 || *c == 127) return false;
  return true;
}

static itg_status open_named(const char *name, const place *p, itg_weights **out, itg_error *e) {
  const int at = p->folder >= 0 ? p->folder : p->beside;
  if (at < 0)
    BAD("package has its weights in '%.80s', and was not opened as a file; give weights=", name);
  const int fd = openat(at, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT)
    BAD("weight file '%.80s' is missing; it belongs beside the package; put it there, or give "
        "weights=",
        name);
  if (fd < 0 && errno == ELOOP)
    BAD("weight file '%.80s' is a symbolic link, which is not followed; give weights=", name);
  if (fd < 0) BAD("cannot open weight file '%.80s': %s", name, strerror(errno));
  return open_weights(fd, name, p, out, e);
}

// NULL: the file is one that the package was made for.
static const char *misfit(const itg_file_weights *row, const itg_weights *w) {
  if (memcmp(row->layout, w->layout, sizeof w->layout)) return "was made for another model";
  if (!(row->flags & ITG_WEIGHTS_ANY_CONTENT) &&
      memcmp(row->content, w->content, sizeof w->content))
    return "has other contents than the package was made with";
  return NULL;
}

static itg_status open_row(itg_model *m, uint32_t i, const place *p, bool *used, itg_error *e) {
  const itg_file_weights *row = &m->weight_rows[i];
  if (!itg_has_string(m->names, m->names_size, row->name) || row->flags & ~ITG_WEIGHTS_ANY_CONTENT)
    BAD("weight file %u: its name is outside of section NAME, or its flags do not exist", i);
  const char *name = itg_name(m, row->name);
  if (!is_plain_name(name))
    BAD("package names the weight file '%.80s'; only plain names of files beside it are allowed",
        name);
  if (p->hashed && row->flags & ITG_WEIGHTS_ANY_CONTENT)
    return itg_fail(e, ITG_BAD_KEY,
                    "package takes any contents of weight file '%.60s', so its signature does not "
                    "cover them; save it without swappable=, or leave public_key= out",
                    name);
  const char *words = NULL;
  if (p->given && (!(words = misfit(row, p->given)) || m->n_weights == 1)) {
    if (words) BAD("weight file that was given %s; get the one of this package", words);
    begin();
    (m->weights[i] = p->given)->users++;
    unlock_files();
    *used = true;
    return ITG_OK;
  }
  itg_status status = open_named(name, p, &m->weights[i], e);
  if (!status && (words = misfit(row, m->weights[i])))
    BAD("weight file '%.80s' %s; get the one of this package", name, words);
  return status;
}

// The file, the folder or the bytes that the caller gave.
static itg_status open_given(const itg_open_options *o, place *p, itg_error *e) {
  if (o->weights_data) {
    if (o->weights || (uintptr_t)o->weights_data % ITG_ALIGN)
      return itg_fail(e, ITG_BAD_INPUT,
                      "weights in memory must be aligned to 64, and no weight file given as well");
    itg_weights *w = p->given = calloc(1, sizeof *w);
    if (!w) return itg_fail(e, ITG_NO_MEMORY, "no memory for a weight file");
    w->constants = (itg_constants){o->weights_data, 0, o->weights_size};
    w->users = 1;
    const itg_status status = check_table(w, "weights_data", e);
    return status ? status : verified(w, p, "weights_data", e);
  }
  if (!o->weights) return ITG_OK;
  struct stat st;
  const int fd = open(o->weights, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) BAD("cannot open weight file '%.80s': %s", o->weights, strerror(errno));
  if (fstat(fd, &st) || !S_ISDIR(st.st_mode)) return open_weights(fd, o->weights, p, &p->given, e);
  p->folder = fd;
  return ITG_OK;
}

static int folder_of(const char *path) {
  if (!path) return -1;
  const char *slash = strrchr(path, '/');
  if (!slash) return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  char *folder = strndup(path, (size_t)(slash - path) + 1);
  const int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  free(folder);
  return fd;
}

itg_status itg_open_weights(itg_model *m, const char *path, const itg_open_options *o,
                            itg_error *e) {
  const bool given = o->weights || o->weights_data;
  if (!m->n_weights && !given) return ITG_OK;
  if (!m->n_weights)
    return itg_fail(e, ITG_BAD_INPUT,
                    "package holds its weights itself, but weights= was given; leave it out");
  if (m->n_weights > ITG_MAX_WEIGHT_FILES)
    BAD("package names %u weight files; at most %u are allowed", m->n_weights,
        ITG_MAX_WEIGHT_FILES);
  if (m->secret)
    BAD("encrypted package names a weight file; its weights must lie inside; encrypt it again");
  place p = {.beside = folder_of(path),
             .folder = -1,
             .copy = o->flags & ITG_OPEN_COPY || o->public_key,
             .verify = !(o->flags & ITG_OPEN_TRUST_WEIGHTS) || o->public_key,
             .hashed = o->public_key != NULL};
  itg_status status = open_given(o, &p, e);
  bool used = !p.given;
  for (uint32_t i = 0; !status && i < m->n_weights; i++) status = open_row(m, i, &p, &used, e);
  if (!status && !used)
    status = itg_fail(e, ITG_BAD_FILE,
                      "weight file that was given is none of the %u that the package names",
                      m->n_weights);
  close_weights(p.given);
  if (p.beside >= 0) close(p.beside);
  if (p.folder >= 0) close(p.folder);
  return status;
}

void itg_close_weights(itg_model *m) {
  for (uint32_t i = 0; i < ITG_MAX_WEIGHT_FILES; i++) close_weights(m->weights[i]);
}

itg_constants itg_constants_of(const itg_model *m, uint32_t file) {
  return file ? m->weights[file - 1]->constants : (itg_constants){m->consts, 0, m->consts_size};
}
