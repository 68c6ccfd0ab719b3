// Ed25519 signatures (RFC 8032, section 5.1), to verify alone. Every input is public, so branches
// and table look-ups may depend on it.
#include <string.h>

#include "crypto.h"

enum { WORDS = 8 };
typedef struct {
  uint32_t v[WORDS];
} number;  // 256 bits, lowest word first

static const number D = {{0x135978a3, 0x75eb4dca, 0x4141d8ab, 0x00700a4d, 0x7779e898, 0x8cc74079,
                          0x2b6ffe73, 0x52036cee}};  // -121665 / 121666
static const number ROOT = {{0x4a0ea0b0, 0xc4ee1b27, 0xad2fe478, 0x2f431806, 0x3dfbd7a7, 0x2b4d0099,
                             0x4fc1df0b, 0x2b832480}};  // of -1
static const number BASE_X = {{0x8f25d51a, 0xc9562d60, 0x9525a7b2, 0x692cc760, 0xfdd6dc5c,
                               0xc0a4e231, 0xcd6e53fe, 0x216936d3}};
static const number BASE_Y = {{0x66666658, 0x66666666, 0x66666666, 0x66666666, 0x66666666,
                               0x66666666, 0x66666666, 0x66666666}};
static const number ORDER = {{0x5cf5d3ed, 0x5812631a, 0xa2f79cd6, 0x14def9de, 0, 0, 0, 0x10000000}};
static const number PRIME = {{0xffffffed, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff,
                              0xffffffff, 0xffffffff, 0x7fffffff}};  // 2^255 - 19
static const number ONE = {{1}};

// ---- numbers ------------------------------------------------------------------------------------
static number from_bytes(const uint8_t bytes[32]) {
  number n;
  for (int i = 0; i < WORDS; i++) n.v[i] = itg_le32(bytes + 4 * i);
  return n;
}

static bool less(const number *a, const number *b) {
  for (int i = WORDS; i-- > 0;)
    if (a->v[i] != b->v[i]) return a->v[i] < b->v[i];
  return false;
}

static uint32_t add_words(uint32_t *to, const uint32_t *a, const uint32_t *b) {  // the carry
  uint64_t sum = 0;
  for (int i = 0; i < WORDS; i++, sum >>= 32) to[i] = (uint32_t)(sum += (uint64_t)a[i] + b[i]);
  return (uint32_t)sum;
}

static uint32_t subtract_words(uint32_t *to, const uint32_t *a, const uint32_t *b) {  // the borrow
  int64_t sum = 0;
  for (int i = 0; i < WORDS; i++, sum >>= 32) to[i] = (uint32_t)(sum += (int64_t)a[i] - b[i]);
  return (uint32_t)-sum;
}

// ---- the field modulo p = 2^255 - 19, in any number below 2^256 = 38 mod p
// ------------------------
static number plus_carry(number a, uint64_t carry) {
  while (carry) {
    uint64_t sum = carry * 38;
    for (int i = 0; i < WORDS; i++, sum >>= 32) a.v[i] = (uint32_t)(sum += a.v[i]);
    carry = sum;
  }
  return a;
}

static number add(const number *a, const number *b) {
  number sum;
  const uint32_t carry = add_words(sum.v, a->v, b->v);
  return plus_carry(sum, carry);
}

static number subtract(const number *a, const number *b) {
  static const number wrapped = {{38}};
  number difference;
  uint32_t borrow = subtract_words(difference.v, a->v, b->v);
  while (borrow) borrow = subtract_words(difference.v, difference.v, wrapped.v);
  return difference;
}

static number multiply(const number *a, const number *b) {
  uint32_t product[2 * WORDS] = {0};
  for (int i = 0; i < WORDS; i++) {
    uint64_t sum = 0;
    for (int k = 0; k < WORDS; k++, sum >>= 32)
      product[i + k] = (uint32_t)(sum += (uint64_t)a->v[i] * b->v[k] + product[i + k]);
    product[i + WORDS] = (uint32_t)sum;
  }
  number result;
  uint64_t sum = 0;
  for (int i = 0; i < WORDS; i++, sum >>= 32)
    result.v[i] = (uint32_t)(sum += product[i] + (uint64_t)product[i + WORDS] * 38);
  return plus_carry(result, sum);
}

static number square_times(number a, int n) {
  while (n--) a = multiply(&a, &a);
  return a;
}

// a^(2^250 - 1), from which powers with exponents near 2^255 are made
static number long_power(const number *a) {
  number result = *a;  // a^(2^n - 1)
  for (int n = 1; n < 250;) {
    const bool twice = 2 * n <= 250;
    number more = square_times(result, twice ? n : 1);
    result = multiply(&more, twice ? &result : a);
    n = twice ? 2 * n : n + 1;
  }
  return result;
}

static number invert(const number *a) {  // a^(p - 2) = a^(2^255 - 21)
  number high = square_times(long_power(a), 5), a2 = multiply(a, a), a3 = multiply(&a2, a);
  const number a8 = square_times(a2, 2), a11 = multiply(&a8, &a3);
  return multiply(&high, &a11);
}

static number reduced(number a) {
  while (!less(&a, &PRIME)) subtract_words(a.v, a.v, PRIME.v);
  return a;
}

static bool equal(const number *a, const number *b) {
  const number difference = subtract(a, b), r = reduced(difference);
  uint32_t any = 0;
  for (int i = 0; i < WORDS; i++) any |= r.v[i];
  return !any;
}

// ---- points: x = X / Z, y = Y / Z, x y = T / Z
// ---------------------------------------------------
typedef struct {
  number x, y, z, t;
} point;

static point add_points(const point *p, const point *q) {  // RFC 8032, 5.1.4; also p + p
  number m = subtract(&p->y, &p->x), n = subtract(&q->y, &q->x);
  const number a = multiply(&m, &n);
  m = add(&p->y, &p->x), n = add(&q->y, &q->x);
  const number b = multiply(&m, &n);
  m = multiply(&p->t, &D), n = add(&q->t, &q->t);
  const number c = multiply(&m, &n);
  m = add(&p->z, &p->z);
  const number d = multiply(&m, &q->z);
  const number e = subtract(&b, &a), f = subtract(&d, &c), g = add(&d, &c), h = add(&b, &a);
  return (point){multiply(&e, &f), multiply(&g, &h), multiply(&f, &g), multiply(&e, &h)};
}

// The point with the coordinate y and the sign of x in bytes; false if there is none. RFC
// 8032, 5.1.3.
static bool decode(const uint8_t bytes[32], point *p) {
  number y = from_bytes(bytes);
  const uint32_t sign = y.v[WORDS - 1] >> 31;
  y.v[WORDS - 1] &= 0x7fffffff;
  if (!less(&y, &PRIME)) return false;
  const number yy = multiply(&y, &y), dyy = multiply(&yy, &D);
  const number u = subtract(&yy, &ONE), v = add(&dyy, &ONE);  // x^2 = u / v
  const number vv = multiply(&v, &v), v3 = multiply(&vv, &v), v6 = multiply(&v3, &v3),
               v7 = multiply(&v6, &v), uv3 = multiply(&u, &v3), uv7 = multiply(&u, &v7);
  const number high = square_times(long_power(&uv7), 2), power = multiply(&high, &uv7);
  number x = multiply(&uv3, &power);  // u v^3 (u v^7)^((p - 5) / 8)
  const number xx = multiply(&x, &x), vxx = multiply(&v, &xx), zero = {{0}},
               minus_u = subtract(&zero, &u);
  if (equal(&vxx, &minus_u)) x = multiply(&x, &ROOT);
  else if (!equal(&vxx, &u)) return false;
  x = reduced(x);
  if (equal(&x, &zero) && sign) return false;
  if ((x.v[0] & 1) != sign) x = subtract(&PRIME, &x);
  *p = (point){x, y, ONE, multiply(&x, &y)};
  return true;
}

static void encode(const point *p, uint8_t bytes[32]) {
  const number inverse = invert(&p->z);
  const number x = reduced(multiply(&p->x, &inverse)), y = reduced(multiply(&p->y, &inverse));
  for (int i = 0; i < WORDS; i++) itg_put_le32(bytes + 4 * i, y.v[i]);
  bytes[31] |= (uint8_t)((x.v[0] & 1) << 7);
}

// ---- scalars ------------------------------------------------------------------------------------
// 512 bits modulo the order of the base point, bit by bit
static number modulo_order(const uint8_t bytes[64]) {
  number r = {{0}};
  for (int i = 512; i-- > 0;) {
    add_words(r.v, r.v, r.v);
    r.v[0] |= bytes[i / 8] >> i % 8 & 1;
    if (!less(&r, &ORDER)) subtract_words(r.v, r.v, ORDER.v);
  }
  return r;
}

bool itg_ed25519_verify(const uint8_t public_key[32], const uint8_t signature[64],
                        const void *message, size_t size) {
  const number s = from_bytes(signature + 32), zero = {{0}};
  point minus_a;
  if (!less(&s, &ORDER) || !decode(public_key, &minus_a)) return false;
  minus_a.x = subtract(&zero, &minus_a.x), minus_a.t = subtract(&zero, &minus_a.t);
  uint8_t digest[64], encoded[32];
  itg_sha512((const void *const[3]){signature, public_key, message}, (size_t[3]){32, 32, size},
             digest);
  const number k = modulo_order(digest);
  const point base = {BASE_X, BASE_Y, ONE, multiply(&BASE_X, &BASE_Y)};
  const point both = add_points(&base, &minus_a);
  point r = {zero, ONE, ONE, zero};  // s B - k A, which is R
  for (int i = 256; i-- > 0;) {
    r = add_points(&r, &r);
    const int of_s = s.v[i / 32] >> i % 32 & 1, of_k = k.v[i / 32] >> i % 32 & 1;
    if (of_s || of_k) r = add_points(&r, of_s && of_k ? &both : of_s ? &base : &minus_a);
  }
  encode(&r, encoded);
  return !memcmp(encoded, signature, 32);
}
