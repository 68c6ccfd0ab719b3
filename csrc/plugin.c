// Plug-ins: the list of those that are registered, and the rows of a package that name them.
//
// The list only grows, so that models keep what they were opened with and readers need no lock.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

enum { MAX_NAME = 60 };  // bytes of a name, so that messages have room for it

typedef struct entry {
  const itg_plugin *plugin;
  struct entry *next;  // registered before
  atomic_bool hidden;
} entry;

static _Atomic(entry *) newest;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;  // of writers

// Entries live as long as the library: models that use them may be opened without the lock.
__attribute__((destructor)) static void free_entries(void) {
  for (entry *x = atomic_exchange(&newest, NULL), *next; x; x = next) {
    next = x->next;
    free(x);
  }
}

uint32_t itg_plugin_abi(void) { return ITG_PLUGIN_ABI; }

// ---- finding ------------------------------------------------------------------------------------
static entry *visible(entry *from) {
  while (from && atomic_load(&from->hidden)) from = from->next;
  return from;
}

static const itg_op *find_op(const char *name, const itg_plugin **of) {
  for (entry *e = visible(atomic_load(&newest)); e; e = visible(e->next))
    for (uint32_t i = 0; i < e->plugin->n_kernels; i++)
      if (!strcmp(e->plugin->kernels[i].op->name, name)) {
        *of = e->plugin;
        return e->plugin->kernels[i].op;
      }
  return NULL;
}

const itg_kernel *itg_find_plugin_kernel(const itg_op *op, const char *dtype, uint32_t isa) {
  for (const entry *e = atomic_load(&newest); e; e = e->next)
    for (uint32_t i = e->plugin->n_kernels; i-- > 0;) {
      const itg_kernel *k = &e->plugin->kernels[i];
      if (k->op == op && k->run && !(k->needs & ~isa) &&
          (!strcmp(k->types, dtype) || !strcmp(k->types, "any")))
        return k;
    }
  return NULL;
}

// ---- registering --------------------------------------------------------------------------------
static bool is_name(const char *s) {
  if (!s || !*s || strlen(s) > MAX_NAME) return false;
  for (; *s; s++)
    if (*s <= ' ' || *s > '~') return false;
  return true;
}

// Bytes of the struct that `fields` describes; UINT64_MAX if it is not written as it should be:
// "name:kind" with a number of entries, kinds i and f, and e with its words in parentheses.
static uint64_t struct_size(const char *s) {
  uint64_t bytes = 0;
  while (s && *s) {
    const char *colon = strchr(s, ':');
    if (!colon || colon == s || !strchr("ife", colon[1]) || !colon[1]) return UINT64_MAX;
    for (; s < colon; s++)
      if (*s <= ' ' || *s > '~') return UINT64_MAX;
    char *end;
    const long count = strtol(s + 2, &end, 10);
    if (end == s + 2 || count < 1 || count > 4096) return UINT64_MAX;
    if ((*end == '(') != (colon[1] == 'e')) return UINT64_MAX;
    if (*end == '(' && !(end = strchr(end, ')'))) return UINT64_MAX;
    s = *end == ')' ? end + 1 : end;
    if (*s && *s != ' ') return UINT64_MAX;
    while (*s == ' ') s++;
    bytes += 8 * (uint64_t)count;
  }
  return bytes;
}

static bool is_type(const char *s) {
  if (s && !strcmp(s, "any")) return true;
  for (uint8_t d = 1; s && d <= ITG_DTYPE_LAST; d++)
    if (!strcmp(s, itg_dtype_name(d))) return true;
  return false;
}

static itg_words op_is_wrong(const itg_op *op, const char *plugin) {
  const uint32_t known = 2 * ITG_TEXT - 1;
  const itg_plugin *other = NULL;
  const char *dot = is_name(op->name) ? strchr(op->name, '.') : NULL;
  if (!dot || dot == op->name || !dot[1] || !strncmp(op->name, "cpu.", 4) ||
      !strncmp(op->name, "npu.", 4))
    return "it needs a prefix of its own, as in acme.soft_clip, and at most 60 characters";
  if (itg_find_op(op->name)) return "the runtime itself has an op of this name";
  if (find_op(op->name, &other) && strcmp(other->name, plugin))
    return "another plug-in has an op of this name";
  if (!op->infer) return "it has no infer function";
  if (op->flags & ITG_CONTROL || op->flags & ~known) return "its flags are not known";
  if (op->n_out > ITG_MAX_OUTPUTS) return "it has more than 16 outputs";
  const uint64_t size = struct_size(op->fields);
  if (size == UINT64_MAX || size != op->attrs_size || (op->flags & ITG_TEXT && size))
    return "its fields are not written as in \"stride:i2 alpha:f1 mode:e1(a|b)\", or attrs_size is "
           "not 8 bytes for each of their numbers";
  return NULL;
}

static itg_status check(const itg_plugin *p, itg_error *e) {
  if (!p) return itg_fail(e, ITG_BAD_INPUT, "plugin is NULL");
  if (p->abi != ITG_PLUGIN_ABI)
    return itg_fail(e, ITG_NO_PLUGIN,
                    "plug-in has ABI %u, this runtime has %u; build it again with the headers of "
                    "intaglio %s",
                    p->abi, ITG_PLUGIN_ABI, itg_version());
  if (!is_name(p->name) || (p->version && *p->version && !is_name(p->version)) || !p->kernels ||
      !p->n_kernels)
    return itg_fail(e, ITG_BAD_INPUT,
                    "plug-in has no kernels, or no name or version of at most %u printable "
                    "characters",
                    MAX_NAME);
  for (uint32_t i = 0; i < p->n_kernels; i++) {
    const itg_kernel *k = &p->kernels[i];
    if (!k->op || !is_type(k->types) || (k->isa && !is_name(k->isa)) || (k->tile && *k->tile))
      return itg_fail(e, ITG_BAD_INPUT,
                      "plug-in '%s': kernel %u has no op, no element type such as \"f32\" or "
                      "\"any\", or a tile",
                      p->name, i);
    itg_words words = op_is_wrong(k->op, p->name);
    if (words)
      return itg_fail(e, ITG_BAD_INPUT, "plug-in '%s': op '%.60s': %s", p->name,
                      k->op->name ? k->op->name : "", words);
  }
  return ITG_OK;
}

itg_status itg_register_plugin(const itg_plugin *plugin, itg_error *e) {
  pthread_mutex_lock(&lock);
  itg_status status = check(plugin, e);
  const entry *same = NULL;
  for (entry *x = visible(atomic_load(&newest)); !status && x && !same; x = visible(x->next))
    if (!strcmp(x->plugin->name, plugin->name)) same = x;
  if (same && same->plugin != plugin)
    status = itg_fail(e, ITG_BAD_INPUT,
                      "plug-in '%s' %s is registered already; unregister it before you load "
                      "another one of this name",
                      same->plugin->name, same->plugin->version ? same->plugin->version : "");
  entry *made = status || same ? NULL : malloc(sizeof *made);
  if (made) {
    *made = (entry){.plugin = plugin, .next = atomic_load(&newest)};
    atomic_store(&newest, made);
  } else if (!status && !same) {
    status = itg_fail(e, ITG_NO_MEMORY, "no memory for a plug-in");
  }
  pthread_mutex_unlock(&lock);
  return status;
}

itg_status itg_unregister_plugin(const char *name, itg_error *e) {
  bool found = false;
  if (!name) return itg_fail(e, ITG_BAD_INPUT, "name is NULL");
  pthread_mutex_lock(&lock);
  for (entry *x = visible(atomic_load(&newest)); x; x = visible(x->next))
    if (!strcmp(x->plugin->name, name)) atomic_store(&x->hidden, true), found = true;
  pthread_mutex_unlock(&lock);
  return found ? ITG_OK : itg_fail(e, ITG_BAD_INPUT, "no plug-in '%.60s' is registered", name);
}

// ---- packages -----------------------------------------------------------------------------------
#define PYTHON "python."  // prefix of ops whose kernel is a callback into Python

static itg_status missing(const itg_model *m, const itg_file_plugin *row, itg_error *e) {
  const char *op = itg_name(m, row->op);
  if (!strncmp(op, PYTHON, sizeof PYTHON - 1))
    return itg_fail(e, ITG_NO_PLUGIN,
                    "package needs the custom op '%.60s', a Python class that is not registered; "
                    "import the module that defines it, then open the package",
                    op + sizeof PYTHON - 1);
  return itg_fail(e, ITG_NO_PLUGIN,
                  "package needs op '%.40s' of plug-in '%.40s' %.20s, which is not loaded; load "
                  "its library: intaglio.custom.load(path), INTAGLIO_PLUGINS=path, or "
                  "itg_load_plugin",
                  op, itg_name(m, row->plugin), itg_name(m, row->version));
}

// Every operator that the package takes from a plug-in is there, with the attributes that it had.
itg_status itg_check_plugins(itg_model *m, itg_error *e) {
  if (!m->n_plugins) return ITG_OK;
  if (!(m->plugin_ops = calloc(m->n_plugins, sizeof *m->plugin_ops)))
    return itg_fail(e, ITG_NO_MEMORY, "no memory to open a package with %u custom ops",
                    m->n_plugins);
  for (uint32_t i = 0; i < m->n_plugins; i++) {
    const itg_file_plugin *row = &m->plugins[i];
    const uint32_t names[] = {row->op, row->plugin, row->version, row->fields};
    for (int k = 0; k < 4; k++)
      if (!itg_has_string(m->names, m->names_size, names[k]))
        BAD("row %u of PLUG: a name is outside of section NAME", i);
    if (i && row->op <= row[-1].op) BAD("row %u of PLUG is out of order", i);
    const char *op = itg_name(m, row->op), *plugin = itg_name(m, row->plugin);
    if (row->abi != ITG_PLUGIN_ABI)
      return itg_fail(e, ITG_NO_PLUGIN,
                      "package was compiled with plug-in '%.60s' of ABI %u, this runtime has %u; "
                      "compile the model again",
                      plugin, row->abi, ITG_PLUGIN_ABI);
    const itg_plugin *found = NULL;
    const itg_op *known = find_op(op, &found);
    if (!known || strcmp(found->name, plugin)) return missing(m, row, e);
    if (strcmp(known->fields ? known->fields : "", itg_name(m, row->fields)))
      return itg_fail(e, ITG_NO_PLUGIN,
                      "op '%.40s' of plug-in '%.40s' %.20s has other attributes than in %.20s, "
                      "with which the package was compiled; compile the model again",
                      op, plugin, found->version ? found->version : "", itg_name(m, row->version));
    m->plugin_ops[i] = known;
  }
  return ITG_OK;
}

const itg_op *itg_needed_op(const itg_model *m, uint32_t name) {
  uint32_t low = 0, high = m->n_plugins;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (m->plugins[middle].op < name) low = middle + 1;
    else high = middle;
  }
  return low < m->n_plugins && m->plugins[low].op == name ? m->plugin_ops[low] : NULL;
}
