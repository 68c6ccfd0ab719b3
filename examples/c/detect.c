// Finds objects in a picture with a YOLO detector (v5, v8 or 11), without a heap while it runs.
//
//   intaglio compile yolov8n.onnx -o yolov8n.itg
//   cc -O2 examples/c/detect.c -I csrc/include -L build -lintaglio -lm -Wl,-rpath,build -o detect
//   ./detect yolov8n.itg picture.ppm 0.25
//
// The input is f32[1x3xHxW] of 0 to 1, or u8[1xHxWx3] (`--input-type uint8 --input-layout NHWC`).
// A PPM picture is fitted into it; a file of exactly the input's size is taken as the input itself.
// Prints one line for each box: class, score, then left, top, right and bottom in the picture.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "intaglio.h"

enum {
  MAX_FILE = 3 * 4096 * 4096,   // bytes of the picture
  MAX_INPUT = 3 * 1280 * 1280,  // elements of the model's input
  MAX_BOXES = 300,              // candidates; the highest scores stay
};
static const float OVERLAP = 0.45f;  // of two boxes of one class: the lower score goes

typedef struct box {
  float score, left, top, right, bottom;
  int class;
} box;

typedef struct picture {
  const unsigned char *pixels;  // rows of RGB
  int width, height;
} picture;

// How a picture lies in the model's input: scaled, then moved.
typedef struct fit {
  float scale, left, top;
} fit;

static unsigned char file[MAX_FILE];
static union {
  float f32[MAX_INPUT];
  unsigned char u8[MAX_INPUT];
} input;
static box boxes[MAX_BOXES];

static int fail(const char *words) {
  fprintf(stderr, "detect: %s\n", words);
  return 1;
}

// ---- the picture --------------------------------------------------------------------------------
static size_t read_whole(const char *path) {
  FILE *from = fopen(path, "rb");
  const size_t size = from ? fread(file, 1, sizeof file, from) : 0;
  if (from) fclose(from);
  return size;
}

// The next number of a PPM header; -1 where there is none.
static int header_number(size_t size, size_t *at) {
  while (*at < size && (file[*at] <= ' ' || file[*at] == '#'))
    if (file[(*at)++] == '#')
      while (*at < size && file[*at] != '\n') ++*at;
  int n = *at < size && file[*at] >= '0' && file[*at] <= '9' ? 0 : -1;
  while (n >= 0 && n < 100000 && *at < size && file[*at] >= '0' && file[*at] <= '9')
    n = n * 10 + file[(*at)++] - '0';
  return n;
}

static int parse_ppm(size_t size, picture *p) {  // binary, 8 bits: "P6 width height 255" and pixels
  size_t at = 2;
  if (size < 2 || memcmp(file, "P6", 2)) return 0;
  p->width = header_number(size, &at);
  p->height = header_number(size, &at);
  if (header_number(size, &at) != 255 || p->width < 1 || p->height < 1) return 0;
  p->pixels = file + ++at;
  return at <= size && (size - at) / 3 / (size_t)p->width >= (size_t)p->height;
}

// One colour of the picture between its pixels, whose centres are at 0.5, 1.5, ...
static float sample(const picture *p, float x, float y, int colour) {
  const float u = fminf(fmaxf(x - 0.5f, 0), (float)(p->width - 1));
  const float v = fminf(fmaxf(y - 0.5f, 0), (float)(p->height - 1));
  const int x0 = (int)u, y0 = (int)v, x1 = x0 + (x0 + 1 < p->width), y1 = y0 + (y0 + 1 < p->height);
  const float a = u - (float)x0, b = v - (float)y0;
  const unsigned char *rgb = p->pixels + colour;
#define AT(x, y) (float)rgb[((size_t)(y) * (size_t)p->width + (size_t)(x)) * 3]
  return (AT(x0, y0) * (1 - a) + AT(x1, y0) * a) * (1 - b) +
         (AT(x0, y1) * (1 - a) + AT(x1, y1) * a) * b;
#undef AT
}

// Scales the picture into the middle of the input; the border is grey.
static fit fill_input(const picture *p, int width, int height, int bytes) {
  fit f = {.scale = fminf((float)width / (float)p->width, (float)height / (float)p->height)};
  f.left = floorf(((float)width - f.scale * (float)p->width) / 2);
  f.top = floorf(((float)height - f.scale * (float)p->height) / 2);
  for (int y = 0; y < height; y++)
    for (int x = 0; x < width; x++)
      for (int c = 0; c < 3; c++) {
        const float u = ((float)x + 0.5f - f.left) / f.scale,
                    v = ((float)y + 0.5f - f.top) / f.scale;
        const int inside = u >= 0 && v >= 0 && u <= (float)p->width && v <= (float)p->height;
        const float value = inside ? sample(p, u, v, c) : 114;
        const size_t pixel = (size_t)y * (size_t)width + (size_t)x;
        if (bytes) input.u8[pixel * 3 + (size_t)c] = (unsigned char)lrintf(value);
        else input.f32[(size_t)c * (size_t)width * (size_t)height + pixel] = value / 255;
      }
  return f;
}

// ---- boxes --------------------------------------------------------------------------------------
static int keep(int count, box b) {  // in order of scores
  int at = count < MAX_BOXES ? count : MAX_BOXES - 1;
  if (count == MAX_BOXES && boxes[at].score >= b.score) return count;
  for (; at > 0 && boxes[at - 1].score < b.score; at--) boxes[at] = boxes[at - 1];
  boxes[at] = b;
  return count < MAX_BOXES ? count + 1 : count;
}

// v8 and 11: [1, 4 + classes, anchors]; v5: [1, anchors, 5 + classes], whose fifth is a factor.
static int candidates(const itg_view *out, float threshold) {
  const float *data = out->data;
  const int v5 = out->shape[1] > out->shape[2], first = v5 ? 5 : 4;
  const int64_t anchors = out->shape[v5 ? 1 : 2], fields = out->shape[v5 ? 2 : 1];
  const int64_t along = v5 ? fields : 1, across = v5 ? 1 : anchors;
  int count = 0;
  for (int64_t i = 0; i < anchors; i++) {
    const float *a = data + i * along, factor = v5 ? a[4] : 1;
    int64_t best = first;
    for (int64_t k = first + 1; k < fields; k++)
      if (a[k * across] > a[best * across]) best = k;
    const float score = a[best * across] * factor;
    if (!(score > threshold)) continue;
    const float x = a[0], y = a[across], w = a[2 * across] / 2, h = a[3 * across] / 2;
    count = keep(count, (box){score, x - w, y - h, x + w, y + h, (int)(best - first)});
  }
  return count;
}

static float area(const box *b) {
  return fmaxf(b->right - b->left, 0) * fmaxf(b->bottom - b->top, 0);
}

static float overlap(const box *a, const box *b) {  // intersection over union
  const box both = {.left = fmaxf(a->left, b->left),
                    .top = fmaxf(a->top, b->top),
                    .right = fminf(a->right, b->right),
                    .bottom = fminf(a->bottom, b->bottom)};
  const float common = area(&both), all = area(a) + area(b) - common;
  return all > 0 ? common / all : 0;
}

static int suppress(int count) {  // greedy, class by class
  int kept = 0;
  for (int i = 0; i < count; i++) {
    int free = 1;
    for (int k = 0; free && k < kept; k++)
      free = boxes[k].class != boxes[i].class || overlap(&boxes[k], &boxes[i]) <= OVERLAP;
    if (free) boxes[kept++] = boxes[i];
  }
  return kept;
}

// ---- the program --------------------------------------------------------------------------------
// 0: neither of the two kinds of inputs.
static int input_size(const itg_info *in, int *width, int *height) {
  const int bytes = in->dtype == ITG_U8;
  *height = (int)in->shape[bytes ? 1 : 2];
  *width = (int)in->shape[bytes ? 2 : 3];
  return in->rank == 4 && in->shape[0] == 1 && in->shape[bytes ? 3 : 1] == 3 &&
         (bytes || in->dtype == ITG_F32) && in->bytes <= (bytes ? MAX_INPUT : sizeof input);
}

int main(int argc, char **argv) {
  itg_model *model;
  itg_session *session;
  itg_error error;
  itg_info in;
  itg_view out;
  picture p;
  int width, height;
  fit f = {1, 0, 0};

  if (argc < 3 || argc > 4) return fail("usage: detect model.itg picture.ppm [threshold]");
  const float threshold = argc > 3 ? (float)atof(argv[3]) : 0.25f;
  if (itg_model_open_file(argv[1], 0, &model, &error)) return fail(error.words);
  if (itg_model_input(model, 0, 0, &in) || !input_size(&in, &width, &height))
    return fail("the model's input is neither f32[1x3xHxW] nor u8[1xHxWx3] of at most 1280x1280");
  if (itg_session_create(model, NULL, &session, &error)) return fail(error.words);

  const size_t size = read_whole(argv[2]);
  if (parse_ppm(size, &p)) f = fill_input(&p, width, height, in.dtype == ITG_U8);
  else if (size && size == in.bytes) memcpy(&input, file, size);
  else return fail("the picture is no binary PPM of 8 bits, nor a file of the input's size");

  if (itg_bind_input(session, 0, &input, in.bytes)) return fail(itg_session_error(session));
  if (itg_run(session)) return fail(itg_session_error(session));
  if (itg_get_output(session, 0, &out)) return fail(itg_session_error(session));
  if (out.dtype != ITG_F32 || out.rank != 3 || out.shape[0] != 1 || out.shape[1] < 5 ||
      out.shape[2] < 5)
    return fail("the model's output is neither f32[1 x 4+classes x anchors] nor transposed");

  const int found = suppress(candidates(&out, threshold));
  for (int i = 0; i < found; i++)
    printf("class %d score %.4f box %.2f %.2f %.2f %.2f\n", boxes[i].class, boxes[i].score,
           (boxes[i].left - f.left) / f.scale, (boxes[i].top - f.top) / f.scale,
           (boxes[i].right - f.left) / f.scale, (boxes[i].bottom - f.top) / f.scale);
  itg_session_destroy(session);
  itg_model_close(model);
  return 0;
}
