// A reader of the JSON text in a package's metadata.
#pragma once
#include <stdbool.h>
#include <stddef.h>

typedef struct rk_json {
  enum { RK_NULL, RK_BOOL, RK_NUMBER, RK_TEXT, RK_LIST, RK_OBJECT } kind;
  double number;          // of a number, or 0 and 1
  bool whole;             // a number without point and exponent
  char *text;             // of a text
  char *key;              // of a member of an object
  struct rk_json *first;  // of a list or an object
  struct rk_json *next;   // in the same list or object
} rk_json;

// NULL if the text is no JSON, or is nested deeper than 32 levels.
rk_json *rk_json_parse(const char *text, size_t size);
void rk_json_free(rk_json *json);
// The member of an object; NULL if it is no object or has none of this name.
const rk_json *rk_json_get(const rk_json *json, const char *key);
// The text of a member; NULL if it is none.
const char *rk_json_text(const rk_json *json, const char *key);
unsigned rk_json_count(const rk_json *json);
