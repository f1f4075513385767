/* Rotate vectors on a CPU in one loop, which reads and writes each number once.

   See the chapter "Bytes and kernels". The coordinates x and y of a plane become

       x' = x cos - y sin,        y' = y cos + x sin.

   Each product and each sum is rounded separately. Because setup.py builds the loop without fused
   multiply-adds, its results match `rope.kernels.formula` bit for bit (except for NaN).
   `rope.kernels.cpu` calls the loop. */

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

/* A bfloat16 is the upper half of a float32, rounded to the nearest, with ties to even. */

static inline float from_bfloat16(uint16_t x) { return float_of((uint32_t)x << 16); }

static inline uint16_t to_bfloat16(float x) {
    uint32_t bits = bits_of(x);
    return x != x ? 0x7FC0 : (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

/* float16 has 5 exponent bits with bias 15 and 10 fraction bits; float32 has 8 exponent bits with
   bias 127 and 23 fraction bits. Subnormal float16 numbers have no leading 1, and their last bit is
   worth 2^-24, like the last bit of 0.5 in float32. Adding 0.5 therefore shifts and rounds such a
   number. Subtracting the bits of 0.5 then yields the bits of the float16. The conversion to
   float32 subtracts 2^-14 instead. */

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

/* Compile one version for each of three CPU generations; glibc's loader chooses the best one. */
#if defined(__x86_64__) && defined(__GLIBC__) && __GNUC__ >= 12 && !defined(__clang__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

/* Rotate one row of x into a row of out, which may be the same row. No plane reads what another
   plane writes, so `omp simd` is safe. FIRST and SECOND index the coordinates of plane j. */

#define ROW(NAME, DTYPE, STORED, WIDE, FIRST, SECOND)                                             \
    FOR_EACH_CPU                                                                                  \
    static void NAME(const void *x_row, void *out_row, const void *cos_row, const void *sin_row,  \
                     int64_t planes, int64_t inverse) {                                           \
        const STORED *x = x_row;                                                                  \
        const WIDE *cos = cos_row, *sin = sin_row, sign = inverse ? -1 : 1;                       \
        STORED *out = out_row;                                                                    \
        _Pragma("omp simd") for (int64_t j = 0; j < planes; j++) {                                \
            WIDE a = from_##DTYPE(x[FIRST]), b = from_##DTYPE(x[SECOND]);                         \
            WIDE s = sign * sin[j];                                                               \
            out[FIRST] = to_##DTYPE(a * cos[j] - b * s);                                          \
            out[SECOND] = to_##DTYPE(b * cos[j] + a * s);                                         \
        }                                                                                         \
    }

#define BOTH_LAYOUTS(DTYPE, STORED, WIDE)                                                         \
    ROW(DTYPE##_halves, DTYPE, STORED, WIDE, j, j + planes)                                       \
    ROW(DTYPE##_pairs, DTYPE, STORED, WIDE, 2 * j, 2 * j + 1)

BOTH_LAYOUTS(float32, float, float)
BOTH_LAYOUTS(bfloat16, uint16_t, float)
BOTH_LAYOUTS(float16, uint16_t, float)
BOTH_LAYOUTS(float64, double, double)

typedef void row_function(const void *, void *, const void *, const void *, int64_t, int64_t);

static row_function *const row_functions[][2] = {
    {float32_halves, float32_pairs},
    {bfloat16_halves, bfloat16_pairs},
    {float16_halves, float16_pairs},
    {float64_halves, float64_pairs},
};

/* The axes of a tensor [B, H, S, last]; strides count elements, and the last stride is 1. If a
   table or the positions are the same all along an axis, that axis has size 1. `_Axes` and
   `_CallSpec` in rope/kernels/cpu.py have the same fields. */

struct axes {
    int64_t size[4], stride[4];
};

struct call_spec {
    int64_t dtype, interleaved, inverse, threads;
    struct axes x, out, cos, sin, ids;
};

const int call_spec_bytes = sizeof(struct call_spec); /* cpu.py compares its own struct's size */

#ifdef _OPENMP
const int threaded = 1;
#else
const int threaded = 0;
#endif

/* Describe where a tensor's rows begin, by its address and the steps in bytes along three axes. */

struct places {
    char *data;
    int64_t step[3];
};

static struct places places_of(const void *data, const struct axes *t, int64_t bytes,
                               const int *axis) {
    struct places p = {(char *)data, {0, 0, 0}};
    for (int n = 0; n < 3; n++)
        if (t->size[axis[n]] > 1) p.step[n] = t->stride[axis[n]] * bytes;
    return p;
}

static inline char *at(const struct places *p, int64_t i, int64_t j, int64_t k) {
    return p->data + i * p->step[0] + j * p->step[1] + k * p->step[2];
}

/* Return 1 if each position id is a row number of the tables, otherwise 0. */

static int ids_in_table(const int64_t *ids, const struct axes *t, int64_t rows) {
    for (int64_t b = 0; b < t->size[0]; b++)
        for (int64_t s = 0; s < t->size[2]; s++) {
            int64_t id = ids[b * t->stride[0] + s * t->stride[2]];
            if (id < 0 || id >= rows) return 0;
        }
    return 1;
}

/* Rotate x into out, which may be x. ids: the row of the tables for each token, or NULL if token s
   uses row s. Returns 1, or 0 without writing anything if an id is outside the tables. */

int rotate(const void *x_data, void *out_data, const void *cos_data, const void *sin_data,
           const int64_t *ids, const struct call_spec *spec) {
    static const int64_t stored_bytes[] = {4, 2, 2, 8}, wide_bytes[] = {4, 4, 4, 8};
    int64_t stored = stored_bytes[spec->dtype], wide = wide_bytes[spec->dtype];
    int64_t planes = spec->cos.size[3], width = 2 * planes * stored;
    int64_t rest = spec->x.size[3] * stored - width;
    int threads = (int)spec->threads;
    row_function *row = row_functions[spec->dtype][spec->interleaved];
    if (ids && !ids_in_table(ids, &spec->ids, spec->cos.size[2])) return 0;

    int axis[3] = {0, 1, 2}; /* in the order in which x is stored, the largest stride first */
    for (int n = 1; n < 3; n++)
        for (int m = n; m > 0 && spec->x.stride[axis[m]] > spec->x.stride[axis[m - 1]]; m--) {
            int swapped = axis[m];
            axis[m] = axis[m - 1], axis[m - 1] = swapped;
        }
    int64_t n0 = spec->x.size[axis[0]], n1 = spec->x.size[axis[1]], n2 = spec->x.size[axis[2]];
    struct places x = places_of(x_data, &spec->x, stored, axis);
    struct places out = places_of(out_data, &spec->out, stored, axis);
    struct places cos = places_of(cos_data, &spec->cos, wide, axis);
    struct places sin = places_of(sin_data, &spec->sin, wide, axis);
    struct places id = places_of(ids, &spec->ids, sizeof *ids, axis);
    int64_t cos_step = spec->cos.stride[2] * wide, sin_step = spec->sin.stride[2] * wide;
    if (ids) /* only the id determines the row */
        for (int n = 0; n < 3; n++) cos.step[n] = sin.step[n] = 0;

#pragma omp parallel for collapse(3) schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < n0; i++)
        for (int64_t j = 0; j < n1; j++)
            for (int64_t k = 0; k < n2; k++) {
                int64_t position = ids ? *(const int64_t *)at(&id, i, j, k) : 0;
                const char *from = at(&x, i, j, k);
                const char *c = at(&cos, i, j, k) + position * cos_step;
                const char *s = at(&sin, i, j, k) + position * sin_step;
                char *to = at(&out, i, j, k);
                row(from, to, c, s, planes, spec->inverse);
                if (rest && from != to) memcpy(to + width, from + width, rest);
            }
    return 1;
}
