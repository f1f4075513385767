/* Equation 34 as one loop for a CPU: each number is read once and written once.

   Chapter "Bytes, kernels, launches". With x, y the coordinates of a plane,

       x' = x cos - y sin,        y' = y cos + x sin,

   each product and each sum rounded by itself: built without fused multiply-adds, this gives the
   bits of `rope.kernels.formula`, but for NaN's. Built by setup.py, called by `rope.kernels.cpu`. */

#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float from_float32(float x) { return x; }
static inline float to_float32(float x) { return x; }
static inline double from_float64(double x) { return x; }
static inline double to_float64(double x) { return x; }

/* bfloat16 is the upper half of a float32, rounded to the nearest, ties to even. */

static inline float from_bfloat16(uint16_t x) { return float_of((uint32_t)x << 16); }

static inline uint16_t to_bfloat16(float x) {
    uint32_t bits = bits_of(x);
    return x != x ? 0x7FC0 : (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

/* float16 has 5 bits of exponent, biased by 15 where float32 has 8, biased by 127; the fractions
   have 10 and 23 bits. Its least numbers have no leading 1. Added to 0.5, whose last bit is worth
   2^-24 like theirs, they come to the right place and are rounded, and 0.5's bits are then taken
   off; the way back subtracts 2^-14. */

static inline float from_float16(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, rest = (uint32_t)(x & 0x7FFF) << 13;
    uint32_t normal = rest + ((127 - 15) << 23);
    uint32_t least = bits_of(float_of(normal + (1 << 23)) - float_of((127 - 14) << 23));
    uint32_t beyond = normal + ((255 - 31 - (127 - 15)) << 23); /* infinity, NaN */
    return float_of(sign | (rest >= 31u << 23 ? beyond : rest < 1u << 23 ? least : normal));
}

static inline uint16_t to_float16(float x) {
    uint32_t bits = bits_of(x), rest = bits & 0x7FFFFFFF;
    uint32_t normal = (rest - ((127 - 15) << 23) + 0xFFF + ((rest >> 13) & 1)) >> 13;
    uint32_t least = bits_of(float_of(rest) + 0.5f) - bits_of(0.5f); /* last bit of 0.5: 2^-24 */
    uint32_t beyond = rest > 255u << 23 ? 0x7E00 : 0x7C00;
    uint32_t near = rest < (uint32_t)(127 - 14) << 23 ? least : normal;
    return (uint16_t)((bits >> 16 & 0x8000) | (rest >= (uint32_t)(127 + 16) << 23 ? beyond : near));
}

/* Compiled for several generations of vectors, among which the loader of glibc chooses. */
#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

/* Rotates one row of x into a row of out, which may be the same one: no plane reads what another
   writes, hence `simd`. FIRST and SECOND are the places of plane j's coordinates. */

#define ROW(NAME, DTYPE, STORED, WIDE, FIRST, SECOND)                                             \
    FOR_EACH_CPU                                                                                  \
    static void NAME(const void *x_row, void *out_row, const void *cos_row, const void *sin_row,  \
                     int64_t planes) {                                                            \
        const STORED *x = x_row;                                                                  \
        const WIDE *cos = cos_row, *sin = sin_row;                                                \
        STORED *out = out_row;                                                                    \
        _Pragma("omp simd") for (int64_t j = 0; j < planes; j++) {                                \
            WIDE a = from_##DTYPE(x[FIRST]), b = from_##DTYPE(x[SECOND]);                         \
            out[FIRST] = to_##DTYPE(a * cos[j] - b * sin[j]);                                     \
            out[SECOND] = to_##DTYPE(b * cos[j] + a * sin[j]);                                    \
        }                                                                                         \
    }

#define BOTH_LAYOUTS(DTYPE, STORED, WIDE)                                                         \
    ROW(DTYPE##_halves, DTYPE, STORED, WIDE, j, j + planes)                                       \
    ROW(DTYPE##_pairs, DTYPE, STORED, WIDE, 2 * j, 2 * j + 1)

BOTH_LAYOUTS(float32, float, float)
BOTH_LAYOUTS(bfloat16, uint16_t, float)
BOTH_LAYOUTS(float16, uint16_t, float)
BOTH_LAYOUTS(float64, double, double)

typedef void row_function(const void *, void *, const void *, const void *, int64_t);

static row_function *const row_functions[][2] = {
    {float32_halves, float32_pairs},
    {bfloat16_halves, bfloat16_pairs},
    {float16_halves, float16_pairs},
    {float64_halves, float64_pairs},
};

/* A tensor of four axes B, H, S and the last, whose elements lie side by side; strides count
   elements. A table that is the same all along an axis has a single row there. */

struct tensor {
    char *data;
    int64_t size[4], stride[4];
};

struct call {
    int64_t dtype, interleaved, threads;
    struct tensor x, out, cos, sin;
};

_Static_assert(sizeof(struct call) == 39 * sizeof(int64_t), "the caller packs 39 of 64 bits");

/* Where the rows of a tensor begin: bytes along the three axes, in a given order. */

struct places {
    char *data;
    int64_t step[3];
};

static struct places places_of(const struct tensor *t, int64_t bytes, const int *axis) {
    struct places p = {t->data, {0, 0, 0}};
    for (int n = 0; n < 3; n++)
        if (t->size[axis[n]] > 1) p.step[n] = t->stride[axis[n]] * bytes;
    return p;
}

static inline char *at(const struct places *p, int64_t i, int64_t j, int64_t k) {
    return p->data + i * p->step[0] + j * p->step[1] + k * p->step[2];
}

const int call_bytes = sizeof(struct call); /* by which a caller knows a library of its version */

#ifdef _OPENMP
const int threaded = 1;
#else
const int threaded = 0;
#endif

void rotate(const struct call *c) {
    static const int64_t stored_bytes[] = {4, 2, 2, 8}, wide_bytes[] = {4, 4, 4, 8};
    int64_t stored = stored_bytes[c->dtype], wide = wide_bytes[c->dtype];
    int64_t planes = c->cos.size[3], width = 2 * planes * stored;
    int64_t rest = c->x.size[3] * stored - width;
    row_function *row = row_functions[c->dtype][c->interleaved];

    int axis[3] = {0, 1, 2}; /* in the order in which x lies in memory, the longest stride first */
    for (int n = 1; n < 3; n++)
        for (int m = n; m > 0 && c->x.stride[axis[m]] > c->x.stride[axis[m - 1]]; m--) {
            int swapped = axis[m];
            axis[m] = axis[m - 1], axis[m - 1] = swapped;
        }
    int64_t n0 = c->x.size[axis[0]], n1 = c->x.size[axis[1]], n2 = c->x.size[axis[2]];
    struct places x = places_of(&c->x, stored, axis), out = places_of(&c->out, stored, axis);
    struct places cos = places_of(&c->cos, wide, axis), sin = places_of(&c->sin, wide, axis);

#pragma omp parallel for collapse(3) schedule(static) num_threads(c->threads) if (c->threads > 1)
    for (int64_t i = 0; i < n0; i++)
        for (int64_t j = 0; j < n1; j++)
            for (int64_t k = 0; k < n2; k++) {
                const char *from = at(&x, i, j, k);
                char *to = at(&out, i, j, k);
                row(from, to, at(&cos, i, j, k), at(&sin, i, j, k), planes);
                if (rest && from != to) memcpy(to + width, from + width, rest);
            }
}
