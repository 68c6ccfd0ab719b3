// Loads plug-ins from shared libraries.
#include <dlfcn.h>
#include <string.h>

#include "runtime.h"

itg_status itg_load_plugin(const char *path, const itg_plugin **out, itg_error *e) {
  if (out) *out = NULL;
  if (!path) return itg_fail(e, ITG_BAD_INPUT, "path is NULL");
  if (!strchr(path, '/'))
    return itg_fail(e, ITG_BAD_INPUT,
                    "the path '%.160s' of a plug-in has no '/', so that folders would be searched; "
                    "write ./%.60s",
                    path, path);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) return itg_fail(e, ITG_NO_PLUGIN, "cannot load a plug-in: %.200s", dlerror());
  const itg_plugin *(*get)(void);
  *(void **)&get = dlsym(library, "itg_plugin_main");  // POSIX: functions fit into void *
  const itg_plugin *plugin = get ? get() : NULL;
  itg_error words = {{0}};
  itg_status status =
      plugin ? itg_register_plugin(plugin, &words)
             : itg_fail(&words, ITG_NO_PLUGIN,
                        "it exports no plug-in; end its source with ITG_EXPORT_PLUGIN(plugin)");
  if (!status) {  // it stays loaded: models use its code
    if (out) *out = plugin;
    return ITG_OK;
  }
  const char *slash = strrchr(path, '/');
  itg_fail(e, status, "%.80s: %.170s", slash + 1, words.words);
  dlclose(library);
  return status;
}
