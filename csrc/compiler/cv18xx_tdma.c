// The TDMA: copies, transposes and fills between DDR and local memory, with conversions.
#include "cv18xx_machine.h"

enum { TO_LOCAL, TO_DDR, DDR_TO_DDR, LOCAL_TO_LOCAL };
enum { COPY = 0, TRANSPOSE = 1, FILL = 4 };
enum { NC = 0, ROTATE3 = 1, ROTATE4 = 2, CW = 3 };  // transpose_md
enum { BF16 = 2 };

// One side of a transfer: a tensor in local memory, or bytes of DDR.
typedef struct {
  uint8_t *ddr;  // NULL: local memory
  view at;       // lane and offset are of local memory only
  int64_t bytes;
  int64_t room;  // bytes of DDR from `ddr` on
} side;

static uint8_t *row(const itg_cv18xx *m, const side *s, int64_t n, int64_t c, int64_t h) {
  if (s->ddr) return s->ddr + n * s->at.n_str + c * s->at.c_str + h * s->at.h_str;
  return channel(m, &s->at, n, c) + h * s->at.h_str;
}

static int in_ddr(itg_cv18xx *m, side *s, uint32_t base, uint64_t offset, int64_t size) {
  if (size < 0 || offset > (uint64_t)m->ddr_bytes[base] ||
      size > m->ddr_bytes[base] - (int64_t)offset)
    return refuse(m, "it reads or writes beyond the memory of its base register");
  s->ddr = m->ddr[base] + offset;
  s->room = m->ddr_bytes[base] - (int64_t)offset;
  return 1;
}

static int set_side(itg_cv18xx *m, side *s, int is_local, uint32_t base, uint64_t address,
                    int64_t n, int64_t c, int64_t h, int64_t w, int64_t n_str, int64_t c_str,
                    int64_t h_str, int64_t bytes) {
  s->ddr = NULL;
  s->bytes = bytes;
  s->at = place(m, (uint32_t)address, n, c, h, w);
  strides(&s->at, n_str, c_str, h_str, bytes);
  if (n < 1 || c < 1 || h < 1 || w < 1) return refuse(m, "a tensor is empty");
  if (is_local) {
    if (address >= (uint64_t)(m->lanes * m->lane_bytes))
      return refuse(m, "an address is beyond local memory");
    return inside(m, &s->at, bytes);
  }
  int64_t size = (n - 1) * n_str + (c - 1) * c_str + (h - 1) * h_str + w * bytes;
  return in_ddr(m, s, base, address, size);
}

// bf16 as an integer: halves to even, or towards zero.
static int64_t integer_of(uint16_t bits, uint32_t to_zero) {
  int negative = bits >> 15;
  double magnitude = (double)bf16_float(bits & 0x7FFF);
  if (!(magnitude < 1e6)) return negative ? -1000000 : 1000000;
  int64_t whole = (int64_t)magnitude;
  double rest = magnitude - (double)whole;
  if (!to_zero && (rest > 0.5 || (rest == 0.5 && (whole & 1)))) whole++;
  return negative ? -whole : whole;
}

// The index of a bf16 number in a table with one entry for each exponent, negative ones after.
static uint8_t exponent_index(uint16_t bits) {
  int exponent = bits >> 7 & 255;
  return exponent ? (uint8_t)(exponent - 64 + (bits >> 15) * 128) : 0;
}

static void move(const itg_cv18xx_tdma *t, const uint8_t *from, uint8_t *to) {
  if (t->mv_lut_idx) {
    memset(to, exponent_index(read16(from)), 2);
    return;
  }
  if (t->mv_lut_base) {
    write16(to, (uint16_t)(read16(from) & 0xFF80));
    return;
  }
  if (t->src_fmt == t->dst_fmt) {
    to[0] = from[0];
    if (t->src_fmt == BF16) to[1] = from[1];
  } else if (t->src_fmt == BF16) {
    *to = byte_of(integer_of(read16(from), t->int8_rnd_mode), t->int8_sign);
  } else {
    write16(to, float_bf16((float)read_byte(from, t->int8_sign)));
  }
}

// Elements of both sides in the order n, c, h, w; the shapes may differ.
static int copy(itg_cv18xx *m, const itg_cv18xx_tdma *t, const side *src, const side *dst) {
  const view *a = &src->at, *b = &dst->at;
  int same = a->c == b->c && a->h == b->h && a->w == b->w;
  int by_index = t->mv_lut_idx || t->mv_lut_base;
  int plain = t->src_fmt == t->dst_fmt && !by_index;
  if (same && plain) {
    int64_t line = a->w * src->bytes;
    int whole = a->h_str == line && b->h_str == line;  // all rows of a channel at once
    for (int64_t i = 0; whole && i < a->n * a->c; i++)
      memmove(row(m, dst, i / a->c, i % a->c, 0), row(m, src, i / a->c, i % a->c, 0),
              (size_t)(line * a->h));
    if (whole) return 1;
    for (int64_t n = 0; n < a->n; n++)
      for (int64_t c = 0; c < a->c; c++)
        for (int64_t h = 0; h < a->h; h++)
          memmove(row(m, dst, n, c, h), row(m, src, n, c, h), (size_t)line);
    return 1;
  }
  if (a->n * a->c * a->h * a->w != b->n * b->c * b->h * b->w)
    return refuse(m, "source and destination have different sizes");
  int64_t n = 0, c = 0, h = 0, w = 0;  // of the destination
  uint8_t *to = row(m, dst, 0, 0, 0);
  for (int64_t r = 0; r < a->n * a->c * a->h; r++) {
    const uint8_t *from = row(m, src, r / (a->h * a->c), r / a->h % a->c, r % a->h);
    for (int64_t j = 0; j < a->w;) {
      int64_t run = a->w - j < b->w - w ? a->w - j : b->w - w;
      if (plain) memmove(to + w * dst->bytes, from + j * src->bytes, (size_t)(run * src->bytes));
      else
        for (int64_t i = 0; i < run; i++)
          move(t, from + (j + i) * src->bytes, to + (w + i) * dst->bytes);
      j += run;
      w += run;
      if (w < b->w) continue;
      w = 0;
      if (++h == b->h) h = 0, c++;
      if (c == b->c) c = 0, n++;
      if (n < b->n) to = row(m, dst, n, c, h);
    }
  }
  return 1;
}

static int transpose(itg_cv18xx *m, const itg_cv18xx_tdma *t, const side *src, side *dst) {
  const view *a = &src->at;
  view *b = &dst->at;
  int64_t plane = a->h * a->w;
  if (t->transpose_md == NC) {
    if (b->c != a->n || b->h * b->w != plane)
      return refuse(m, "the destination does not have the transposed shape");
    for (int64_t n = 0; n < a->n; n++)
      for (int64_t c = 0; c < a->c; c++)
        for (int64_t i = 0; i < plane; i++)
          move(t, row(m, src, n, c, i / a->w) + i % a->w * src->bytes,
               row(m, dst, c, n, i / b->w) + i % b->w * dst->bytes);
    return 1;
  }
  if (t->transpose_md == CW) {
    if (b->c != a->w || b->w != a->c || b->h != a->h)
      return refuse(m, "the destination does not have the transposed shape");
    for (int64_t n = 0; n < a->n; n++)
      for (int64_t c = 0; c < a->c; c++)
        for (int64_t h = 0; h < a->h; h++)
          for (int64_t w = 0; w < a->w; w++)
            move(t, row(m, src, n, c, h) + w * src->bytes, row(m, dst, n, w, h) + c * dst->bytes);
    return 1;
  }
  int64_t channels = t->transpose_md + 2;  // pixels of three or four channels become planes
  if (a->c != channels || b->c != channels || b->h != a->h || b->w != a->w)
    return refuse(m, "the destination does not have the shape of the pixels");
  if (src->bytes != 1 || dst->bytes != 1) return refuse(m, "pixels have channels of 8 bits");
  int64_t last = (a->n - 1) * a->n_str + (a->h - 1) * a->h_str + a->w * channels;
  if (src->ddr && last > src->room) return refuse(m, "it reads beyond its memory");
  if (!src->ddr) return refuse(m, "pixels are read from DDR only");
  for (int64_t n = 0; n < a->n; n++)
    for (int64_t c = 0; c < channels; c++)
      for (int64_t h = 0; h < a->h; h++)
        for (int64_t w = 0; w < a->w; w++)
          row(m, dst, n, c, h)[w] = src->ddr[n * a->n_str + h * a->h_str + w * channels + c];
  return 1;
}

static void fill(itg_cv18xx *m, const itg_cv18xx_tdma *t, const side *dst) {
  const view *b = &dst->at;
  for (int64_t i = 0; i < b->n * b->c * b->h; i++) {
    uint8_t *to = row(m, dst, i / (b->h * b->c), i / b->h % b->c, i % b->h);
    for (int64_t w = 0; w < b->w; w++) {
      if (dst->bytes == 2) write16(to + 2 * w, (uint16_t)t->const_val);
      else to[w] = (uint8_t)t->const_val;
    }
  }
}

// A matrix in DDR and its rows in local memory, in pieces of w columns, one piece per channel.
static int matrix(itg_cv18xx *m, const itg_cv18xx_tdma *t, const side *ddr, const side *local,
                  int to_local) {
  int64_t rows = ddr->at.c, columns = ddr->at.w, pieces = local->at.c, w = local->at.w;
  int turned = t->spec_func == TRANSPOSE;
  int64_t wanted = turned ? columns : rows, across = turned ? rows : columns;
  if (local->at.n != wanted || pieces * w < across)
    return refuse(m, "the matrix does not fit its rows in local memory");
  int plain = t->src_fmt == t->dst_fmt && !t->mv_lut_idx && !t->mv_lut_base;
  for (int64_t r = 0; plain && !turned && r < wanted; r++)
    for (int64_t i = 0; i < across; i += w) {
      int64_t bytes = (across - i < w ? across - i : w) * ddr->bytes;
      uint8_t *there = row(m, ddr, 0, r, 0) + i * ddr->bytes, *here = row(m, local, r, i / w, 0);
      memmove(to_local ? here : there, to_local ? there : here, (size_t)bytes);
    }
  if (plain && !turned) return 1;
  for (int64_t r = 0; r < wanted; r++)
    for (int64_t i = 0; i < across; i++) {
      uint8_t *there =
          turned ? row(m, ddr, 0, i, 0) + r * ddr->bytes : row(m, ddr, 0, r, 0) + i * ddr->bytes;
      uint8_t *here = row(m, local, r, i / w, 0) + i % w * local->bytes;
      move(t, to_local ? there : here, to_local ? here : there);
    }
  return 1;
}

static int linear(itg_cv18xx *m, const itg_cv18xx_tdma *t, uint64_t from, uint64_t to) {
  int64_t in = t->src_n_stride;
  int64_t out = t->src_fmt == t->dst_fmt ? in : t->src_fmt == BF16 ? in / 2 : in * 2;
  side ends[2] = {{0}};
  for (int i = 0; i < 2; i++) {
    int is_local = i ? t->trans_dir == TO_LOCAL || t->trans_dir == LOCAL_TO_LOCAL
                     : t->trans_dir == TO_DDR || t->trans_dir == LOCAL_TO_LOCAL;
    uint64_t at = i ? to : from;
    int64_t size = i ? out : in;
    if (!is_local) {
      if (!in_ddr(m, &ends[i], i ? t->dst_base_reg_sel : t->src_base_reg_sel, at, size)) return 0;
      continue;
    }
    uint64_t all = (uint64_t)(m->lanes * m->lane_bytes);
    if (at > all || (uint64_t)size > all - at)
      return refuse(m, "it reads or writes beyond local memory");
    ends[i].ddr = m->local + at;
  }
  if (t->src_fmt == t->dst_fmt) {
    memmove(ends[1].ddr, ends[0].ddr, (size_t)in);
    return 1;
  }
  for (int64_t i = 0; i < in / (t->src_fmt == BF16 ? 2 : 1); i++)
    move(t, ends[0].ddr + i * (t->src_fmt == BF16 ? 2 : 1),
         ends[1].ddr + i * (t->dst_fmt == BF16 ? 2 : 1));
  return 1;
}

// Replaces a compressed source by its bytes.
static uint8_t *expanded(itg_cv18xx *m, const itg_cv18xx_tdma *t, side *src, uint64_t from) {
  view *a = &src->at;
  int64_t bytes = (t->sys_dtype ? 1 : a->n) * a->c * a->h * a->w * src->bytes;
  int64_t there = m->ddr_bytes[t->src_base_reg_sel] - (int64_t)from;
  uint8_t *out = itg_cv18xx_scratch(m, bytes);
  if (!out) return NULL;
  uint8_t *in = m->ddr[t->src_base_reg_sel] + from;
  if (!itg_cv18xx_expand(in, there, out, bytes, t->src_fmt == BF16)) {
    refuse(m, "its compressed weights are not valid");
    return NULL;
  }
  src->ddr = out;
  strides(a, a->c * a->h * a->w * src->bytes, a->h * a->w * src->bytes, a->w * src->bytes,
          src->bytes);
  return out;
}

int itg_cv18xx_copy(itg_cv18xx *m, const itg_cv18xx_tdma *t) {
  uint64_t from = (uint64_t)t->src_base_addr_high << 32 | t->src_base_addr_low;
  uint64_t to = (uint64_t)t->dst_base_addr_high << 32 | t->dst_base_addr_low;
  if (t->src_fmt < 1 || t->src_fmt > BF16 || t->dst_fmt < 1 || t->dst_fmt > BF16)
    return refuse(m, "the element type is not int8 or bf16");
  if ((t->mv_lut_idx || t->mv_lut_base) && (t->src_fmt != BF16 || t->dst_fmt != BF16))
    return refuse(m, "indices into tables are made from bf16 only");
  if (t->trans_fmt) return linear(m, t, from, to);
  int src_local = t->trans_dir == TO_DDR || t->trans_dir == LOCAL_TO_LOCAL;
  int dst_local = t->trans_dir == TO_LOCAL || t->trans_dir == LOCAL_TO_LOCAL;
  int64_t src_bytes = t->src_fmt == BF16 ? 2 : 1, dst_bytes = t->dst_fmt == BF16 ? 2 : 1;
  int64_t src_c_str = (int64_t)t->src_c_stride_high << 16 | t->src_c_stride_low;
  int64_t dst_c_str = (int64_t)t->dst_c_stride_high << 16 | t->dst_c_stride_low;
  if ((uint64_t)t->src_n * t->src_c > MOST_WORK ||
      (uint64_t)t->src_n * t->src_c * t->src_h > MOST_WORK ||
      (uint64_t)t->src_n * t->src_c * t->src_h * t->src_w > MOST_WORK ||
      (uint64_t)t->src_n * t->dst_c > MOST_WORK ||
      (uint64_t)t->src_n * t->dst_c * t->dst_h > MOST_WORK ||
      (uint64_t)t->src_n * t->dst_c * t->dst_h * t->dst_w > MOST_WORK)
    return refuse(m, "it moves more than 2^30 elements");
  side src, dst;
  if (t->sys_dtype) {
    if (src_local == dst_local) return refuse(m, "matrices move between DDR and local memory");
    int to_local = dst_local;
    side *ddr = to_local ? &src : &dst, *local = to_local ? &dst : &src;
    int64_t rows = to_local ? t->src_c : t->dst_c, columns = to_local ? t->src_w : t->dst_w;
    int64_t c_str = to_local ? src_c_str : dst_c_str, bytes = to_local ? src_bytes : dst_bytes;
    uint32_t base = to_local ? t->src_base_reg_sel : t->dst_base_reg_sel;
    if (t->compress_en && !to_local) return refuse(m, "compressed stores are not supported");
    if (t->compress_en) c_str = 0;  // the bytes in DDR are others
    if (!set_side(m, ddr, 0, base, to_local ? from : to, 1, rows, 1, t->compress_en ? 1 : columns,
                  0, c_str, 0, bytes))
      return 0;
    ddr->at.w = columns;
    int64_t n = t->spec_func == TRANSPOSE ? columns : t->src_n;
    if (!set_side(m, local, 1, 0, to_local ? to : from, n, to_local ? t->dst_c : t->src_c, 1,
                  to_local ? t->dst_w : t->src_w, to_local ? t->dst_n_stride : t->src_n_stride,
                  to_local ? dst_c_str : src_c_str, 0, to_local ? dst_bytes : src_bytes))
      return 0;
    uint8_t *made = t->compress_en ? expanded(m, t, ddr, from) : NULL;
    if (t->compress_en && !made) return 0;
    int done = matrix(m, t, ddr, local, to_local);
    return done;
  }
  int64_t dst_n = t->spec_func == TRANSPOSE && t->transpose_md == NC ? t->src_c : t->src_n;
  if (!set_side(m, &dst, dst_local, t->dst_base_reg_sel, to, dst_n, t->dst_c, t->dst_h, t->dst_w,
                t->dst_n_stride, dst_c_str, t->dst_h_stride, dst_bytes))
    return 0;
  if (t->spec_func == FILL) {
    fill(m, t, &dst);
    return 1;
  }
  int packed = t->compress_en != 0;
  if (packed && t->trans_dir != TO_LOCAL) return refuse(m, "compressed stores are not supported");
  if (!set_side(m, &src, src_local, t->src_base_reg_sel, from, t->src_n, t->src_c, t->src_h,
                packed ? 1 : t->src_w, packed ? 0 : t->src_n_stride, packed ? 0 : src_c_str,
                packed ? 0 : t->src_h_stride, src_bytes))
    return 0;
  src.at.w = t->src_w;
  uint8_t *made = packed ? expanded(m, t, &src, from) : NULL;
  if (packed && !made) return 0;
  int done = t->spec_func == COPY        ? copy(m, t, &src, &dst)
             : t->spec_func == TRANSPOSE ? transpose(m, t, &src, &dst)
                                         : refuse(m, "the special function is not known");
  return done;
}
