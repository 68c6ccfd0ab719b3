// The taps of 8-bit convolutions: which inputs a window multiplies with which weights. Included by
// qconv.c.
static void add_tap(itg_qtap *taps, int64_t *n, int64_t x, int64_t w, int64_t bytes) {
  if (bytes > 0) taps[(*n)++] = (itg_qtap){x, w, (bytes + ITG_FOUR - 1) / ITG_FOUR};
}

static void list_taps(const task *t, class *c) {
  const itg_qconv *q = t->c;
  const itg_window *w = &q->w;
  const int64_t pixel = q->deep * q->groups;
  int64_t at = 0;  // offset in a panel
  c->n_taps = c->n_left_out = 0;
  for (int64_t i = 0; i < w->kernel[0]; i++)
    for (int64_t j = 0; j < w->kernel[1]; j++) {
      const int64_t x = i * t->l->plane + j * w->dilation[1] * t->l->line;
      const bool inside = j >= c->from[0] && j < c->to[0];
      if (q->joined == ITG_QRUN_LINE) {  // a partial line begins at a multiple of four bytes
        const int64_t first = inside ? c->from[1] * q->deep : q->run,
                      last = inside ? c->to[1] * q->deep : q->run;
        add_tap(c->left_out, &c->n_left_out, 0, at, first);
        add_tap(c->taps, &c->n_taps, x + first, at + first * ITG_PANEL, last - first);
        add_tap(c->left_out, &c->n_left_out, 0, at + last * ITG_PANEL, q->run - last);
        at += q->fours * ITG_QROW;
      } else {
        for (int64_t k = 0; k < w->kernel[2]; k++, at += q->fours * ITG_QROW)
          if (inside && k >= c->from[1] && k < c->to[1])
            add_tap(c->taps, &c->n_taps, x + k * w->dilation[2] * pixel, at, q->run);
          else add_tap(c->left_out, &c->n_left_out, 0, at, q->run);
      }
    }
}

static class *class_of(task *t, const int64_t *from, const int64_t *to) {
  for (int i = 0; i < t->n_classes; i++) {
    class *c = &t->classes[i];
    if (c->from[0] == from[0] && c->to[0] == to[0] && c->from[1] == from[1] && c->to[1] == to[1])
      return c;
  }
  if (t->n_classes == ITG_QCLASSES) return t->classes;  // the first class has all taps, so it fits
  class *c = &t->classes[t->n_classes];
  if (t->n_classes) c->taps = t->classes->taps + 2 * t->n_classes * t->l->taps;
  c->left_out = c->taps + t->l->taps;
  c->rows = 0;
  t->n_classes++;
  memcpy(c->from, from, sizeof c->from);
  memcpy(c->to, to, sizeof c->to);
  list_taps(t, c);
  return c;
}

// Adds the second parts of the weights to a class with all taps: the same inputs once more.
static void add_second_parts(const task *t, class *c) {
  const int64_t fours = t->c->fours, first = t->c->runs * fours;
  for (int64_t i = 0; i < t->c->second; i++) {
    const int64_t row = t->second[i];
    if (i && row == t->second[i - 1] + 1 && row % fours) {  // continues the last one
      c->taps[c->n_taps - 1].fours++;
      continue;
    }
    c->taps[c->n_taps++] =
        (itg_qtap){c->taps[row / fours].x + row % fours * ITG_FOUR, (first + i) * ITG_QROW, 1};
  }
}

static void first_class(task *t, itg_qtap *lists) {
  const itg_qconv *c = t->c;
  t->classes[0].taps = lists;
  t->n_classes = 0;
  if (c->joined == ITG_QRUN_WINDOW) {
    t->n_classes = 1;
    lists[0] = (itg_qtap){0, 0, c->fours};
    t->classes[0].n_taps = 1;
    t->classes[0].n_left_out = 0;
  } else {
    class_of(t, (int64_t[2]){0, 0}, (int64_t[2]){c->w.kernel[1], c->w.kernel[2]});
  }
  add_second_parts(t, t->classes);
}

// The range of taps along axis d that lie inside the image; from == to if there is none.
static void find_taps(const itg_window *w, int d, int64_t place, int64_t *from, int64_t *to) {
  itg_taps_inside(w, d, place * w->stride[d] - w->before[d], from, to);
  if (*from > w->kernel[d]) *from = w->kernel[d];
  if (*to < *from) *to = *from;
}
