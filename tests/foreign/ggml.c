// The two rotations of ggml_compute_forward_rope: NORMAL pairs neighbors, NEOX pairs halves. Each
// theta is the one before times a factor, in float. Reads probes in .safetensors from stdin, and
// writes the answers to stdout.
//
//     cc -O2 ggml.c -o ggml -lm;  ./ggml neox 10000 < probes.safetensors > answers.safetensors
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *header, *data;

// Return the data of a call's tensor and set its shape, or return NULL if there is none.
static void *tensor(int call, const char *part, long shape[4]) {
    char key[32];
    snprintf(key, sizeof key, "\"%02d.%s\":", call, part);
    char *at = strstr(header, key);
    if (at == NULL) return NULL;
    char *number = strchr(at, '[') + 1;
    for (int axis = 0; axis < 4; axis++) {
        shape[axis] = strtol(number, &number, 10);
        if (*number++ == ']') break;
    }
    return data + strtol(strchr(strstr(at, "\"data_offsets\""), '[') + 1, NULL, 10);
}

static void rope(float *x, const long shape[4], const int32_t *pos, int neox, float base) {
    long heads = shape[1], tokens = shape[2], dims = shape[3];
    float theta_scale = powf(base, -2.0f / dims);
    for (long head = 0; head < shape[0] * heads; head++)
        for (long token = 0; token < tokens; token++) {
            float *row = x + (head * tokens + token) * dims;
            float theta = pos[head / heads * tokens + token];
            for (long i = 0; i < dims; i += 2, theta *= theta_scale) {
                float *a = row + (neox ? i / 2 : i), *b = a + (neox ? dims / 2 : 1);
                float x0 = *a, x1 = *b;
                *a = x0 * cosf(theta) - x1 * sinf(theta);
                *b = x0 * sinf(theta) + x1 * cosf(theta);
            }
        }
}

int main(int argc, char **argv) {
    size_t size = 0, capacity = 1 << 20, got;
    char *file = malloc(capacity);
    while ((got = fread(file + size, 1, capacity - size, stdin)) > 0)
        if ((size += got) == capacity) file = realloc(file, capacity *= 2);
    if (argc != 3 || size < 8) return 1;
    header = file + 8, data = header + *(uint64_t *)file;
    int neox = strcmp(argv[1], "neox") == 0;
    long shape[4];
    int32_t *pos;
    for (int call = 0; (pos = tensor(call, "position_ids", shape)) != NULL; call++)
        for (const char **part = (const char *[]){"q", "k", NULL}; *part; part++) {
            float *x = tensor(call, *part, shape);
            if (x == NULL) continue;
            rope(x, shape, pos, neox, atof(argv[2]));
        }
    return fwrite(file, 1, size, stdout) != size;
}
