/* Copies between a chunk and the work array: dimensions with strides or lists of positions on both sides. */
#include "kernel.h"

#include <string.h>

#define STRIP (256 << 10) /* bytes of an uncompressed chunk that are read at a time, so that they stay in the cache */
#define COLUMNS 64       /* that are transposed at a time: each is read from a cache line of its own */
#define SEEK (8 << 10)    /* a read of its own costs about as much as reading so many bytes more */

static int64_t at_in(const z_dim *dim, int64_t k) {
    if (!dim->lists) return k * dim->in;
    int64_t at = 0;
    for (int axis = 0; axis < dim->lists; axis++) at += dim->positions[axis][k] * dim->strides[axis];
    return at;
}

static int64_t at_out(const z_dim *dim, int64_t k) { return (dim->places ? dim->places[k] : k) * dim->out; }

static bool is_plain(const z_dim *dim) { return !dim->lists && !dim->places; }

/* Put a dimension at the end, and keep the order of the others. */
static void move_last(z_copy *copy, int d) {
    z_dim moved = copy->dims[d];
    memmove(&copy->dims[d], &copy->dims[d + 1], (size_t)(copy->ndims - 1 - d) * sizeof moved);
    copy->dims[copy->ndims - 1] = moved;
}

/* Where elements side by side in the chunk are not so in the work array, both such dimensions come last: see `rows`. */
static void order(z_copy *copy) {
    int in = -1, out = -1;
    for (int d = 0; d < copy->ndims; d++) {
        if (!is_plain(&copy->dims[d])) continue;
        if (copy->dims[d].in == copy->itemsize) in = d;
        if (copy->dims[d].out == copy->itemsize) out = d;
    }
    if (in < 0 || out < 0 || in == out) return;
    move_last(copy, in);
    move_last(copy, out > in ? out - 1 : out);
}

void z_simplify(z_copy *copy) {
    int kept = 0;
    for (int d = 0; d < copy->ndims; d++) {
        z_dim *dim = &copy->dims[d];
        if (dim->count == 1) {
            copy->in += at_in(dim, 0);
            copy->out += at_out(dim, 0);
            continue;
        }
        z_dim *last = kept ? &copy->dims[kept - 1] : NULL;
        if (last && is_plain(last) && is_plain(dim) && last->in == dim->in * dim->count &&
            last->out == dim->out * dim->count) {
            last->count *= dim->count;
            last->in = dim->in;
            last->out = dim->out;
            continue;
        }
        if (kept != d) copy->dims[kept] = *dim;
        kept++;
    }
    copy->ndims = kept;
    order(copy);
}

void z_bounds(const z_copy *copy, int64_t *low, int64_t *high) {
    int64_t from = copy->in, to = copy->in;
    for (int d = 0; d < copy->ndims; d++) {
        const z_dim *dim = &copy->dims[d];
        int64_t least = 0, most = (dim->count - 1) * dim->in;
        if (dim->lists) {
            least = most = at_in(dim, 0);
            for (int64_t k = 1; k < dim->count; k++) {
                int64_t at = at_in(dim, k);
                if (at < least) least = at;
                if (at > most) most = at;
            }
        }
        from += least;
        to += most;
    }
    *low = from;
    *high = to + copy->itemsize;
}

int64_t z_count(const z_copy *copy) {
    int64_t count = 1; /* positions may be listed again and again, so this has no bound of its own */
    for (int d = 0; d < copy->ndims; d++)
        if (__builtin_mul_overflow(count, copy->dims[d].count, &count) || count > Z_MOST) return Z_MOST;
    return count;
}

bool z_is_run(const z_copy *copy) {
    if (!copy->ndims) return false;
    const z_dim *last = &copy->dims[copy->ndims - 1];
    return is_plain(last) && last->in == copy->itemsize && last->out == copy->itemsize;
}

int64_t z_run_bytes(const z_copy *copy) {
    return z_is_run(copy) ? copy->dims[copy->ndims - 1].count * copy->itemsize : copy->itemsize;
}

/* -- the innermost loops ------------------------------------------------------------------------------------------ */

#define LOOP(type)                                                                                                     \
    for (int64_t k = 0; k < count; k++, to += step_to, from += step_from) {                                            \
        type value;                                                                                                    \
        memcpy(&value, from, sizeof value);                                                                            \
        memcpy(to, &value, sizeof value);                                                                              \
    }

static void strided(uint8_t *to, int64_t step_to, const uint8_t *from, int64_t step_from, int64_t count, int64_t item) {
    if (step_to == item && step_from == item) {
        memcpy(to, from, (size_t)(count * item));
        return;
    }
    switch (item) {
    case 1: LOOP(uint8_t) break;
    case 2: LOOP(uint16_t) break;
    case 4: LOOP(uint32_t) break;
    case 8: LOOP(uint64_t) break;
    default:
        for (int64_t k = 0; k < count; k++, to += step_to, from += step_from) memcpy(to, from, (size_t)item);
    }
}

static void one_dim(const z_dim *dim, int64_t item, uint8_t *chunk, uint8_t *work, bool gather) {
    if (is_plain(dim)) {
        if (gather) strided(chunk, dim->in, work, dim->out, dim->count, item);
        else strided(work, dim->out, chunk, dim->in, dim->count, item);
        return;
    }
    for (int64_t k = 0; k < dim->count; k++) {
        uint8_t *in = chunk + at_in(dim, k), *out = work + at_out(dim, k);
        memcpy(gather ? in : out, gather ? out : in, (size_t)item);
    }
}

/* Two plain dimensions. If it is a transposition, a few columns at a time: what is read of them stays in the cache for
 * the rows that follow. */
static void rows(const z_dim *dim, const z_dim *next, int64_t item, uint8_t *chunk, uint8_t *work, bool gather) {
    int64_t wide = dim->in == item || dim->out == item ? COLUMNS : next->count;
    for (int64_t j = 0; j < next->count; j += wide) {
        int64_t count = next->count - j < wide ? next->count - j : wide;
        uint8_t *in = chunk + j * next->in, *out = work + j * next->out;
        for (int64_t k = 0; k < dim->count; k++, in += dim->in, out += dim->out) {
            if (gather) strided(in, next->in, out, next->out, count, item);
            else strided(out, next->out, in, next->in, count, item);
        }
    }
}

static void walk(const z_copy *copy, int d, uint8_t *chunk, uint8_t *work, bool gather) {
    if (d == copy->ndims) {
        memcpy(gather ? chunk : work, gather ? work : chunk, (size_t)copy->itemsize);
        return;
    }
    const z_dim *dim = &copy->dims[d];
    if (d == copy->ndims - 1) {
        one_dim(dim, copy->itemsize, chunk, work, gather);
        return;
    }
    const z_dim *next = &copy->dims[d + 1];
    if (d == copy->ndims - 2 && is_plain(dim) && is_plain(next)) {
        rows(dim, next, copy->itemsize, chunk, work, gather);
        return;
    }
    for (int64_t k = 0; k < dim->count; k++)
        walk(copy, d + 1, chunk + at_in(dim, k), work + at_out(dim, k), gather);
}

void z_scatter(const z_copy *copy, const uint8_t *chunk, uint8_t *work) {
    walk(copy, 0, (uint8_t *)chunk + copy->in, work + copy->out, false);
}

void z_gather(const z_copy *copy, uint8_t *chunk, const uint8_t *work) {
    walk(copy, 0, chunk + copy->in, (uint8_t *)work + copy->out, true);
}

void z_fill(const z_copy *copy, uint8_t *work, const uint8_t *fill) {
    z_copy from_one = *copy; /* the chunk is a single element, seen again and again */
    from_one.in = 0;
    for (int d = 0; d < from_one.ndims; d++) {
        from_one.dims[d].in = 0;
        from_one.dims[d].lists = 0;
    }
    bool zero = true;
    for (int64_t k = 0; k < copy->itemsize; k++) zero = zero && !fill[k];
    if (zero && z_is_run(copy)) { /* rows of zeros by memset */
        int64_t row = z_run_bytes(copy);
        z_copy rows = *copy;
        rows.ndims--;
        rows.itemsize = 0;
        for (int d = 0; d < rows.ndims; d++) rows.dims[d].lists = 0, rows.dims[d].in = 0;
        int64_t counts[Z_DIMS] = {0};
        for (;;) {
            int64_t at = copy->out;
            for (int d = 0; d < rows.ndims; d++) at += at_out(&rows.dims[d], counts[d]);
            memset(work + at, 0, (size_t)row);
            int d = rows.ndims - 1;
            while (d >= 0 && ++counts[d] == rows.dims[d].count) counts[d--] = 0;
            if (d < 0) return;
        }
    }
    z_scatter(&from_one, fill, work);
}

/* -- uncompressed chunks ------------------------------------------------------------------------------------------ */

static void finish(const z_chain *chain, uint8_t *at, int64_t size) {
    if (chain->swap > 1) z_swap(at, size, chain->swap);
}

static int by_bounds(z_context *context, const z_copy *copy, const z_chain *chain, int fd, uint8_t *work) {
    int64_t low, high;
    z_bounds(copy, &low, &high);
    bool direct = !copy->ndims || (copy->ndims == 1 && z_is_run(copy));
    uint8_t *into = direct ? work + copy->out : z_room(context, B_FILE, (size_t)(high - low));
    if (!into) return Z_DECLINED;
    int status = z_pread(fd, into, high - low, low);
    if (status) return status;
    if (chain->is_bool && !z_are_bools(into, high - low)) return Z_DAMAGED;
    finish(chain, into, high - low);
    if (!direct) {
        z_copy moved = *copy;
        moved.in -= low;
        z_scatter(&moved, into, work);
    }
    return Z_OK;
}

static int in_strips(z_context *context, const z_copy *copy, const z_chain *chain, int fd, uint8_t *work) {
    int64_t low, high;
    z_bounds(copy, &low, &high);
    int outer = -1; /* the dimension along which elements lie farthest from each other */
    for (int d = 0; d < copy->ndims; d++)
        if (is_plain(&copy->dims[d]) && (outer < 0 || copy->dims[d].in > copy->dims[outer].in)) outer = d;
    if (high - low <= STRIP || outer < 0 || copy->ndims == 1) return by_bounds(context, copy, chain, fd, work);
    const z_dim *dim = &copy->dims[outer];
    int64_t step = STRIP / dim->in > 1 ? STRIP / dim->in : 1;
    for (int64_t k = 0; k < dim->count; k += step) {
        z_copy strip = *copy;
        strip.in += k * dim->in;
        strip.out += k * dim->out;
        strip.dims[outer].count = dim->count - k < step ? dim->count - k : step;
        z_simplify(&strip);
        int status = step == 1 ? in_strips(context, &strip, chain, fd, work) : by_bounds(context, &strip, chain, fd, work);
        if (status) return status;
    }
    return Z_OK;
}

static int by_runs(z_context *context, const z_copy *copy, const z_chain *chain, int fd, uint8_t *work) {
    z_copy one = *copy; /* what is read at a time */
    int outer = z_is_run(copy) ? copy->ndims - 1 : copy->ndims;
    one.ndims = copy->ndims - outer;
    if (one.ndims) one.dims[0] = copy->dims[outer];
    int64_t counts[Z_DIMS] = {0};
    for (;;) {
        one.in = copy->in, one.out = copy->out;
        for (int d = 0; d < outer; d++)
            one.in += at_in(&copy->dims[d], counts[d]), one.out += at_out(&copy->dims[d], counts[d]);
        int status = by_bounds(context, &one, chain, fd, work);
        if (status) return status;
        int d = outer - 1;
        while (d >= 0 && ++counts[d] == copy->dims[d].count) counts[d--] = 0;
        if (d < 0) return Z_OK;
    }
}

int z_read_raw(z_context *context, z_copy *copy, const z_chain *chain, int fd, uint8_t *work) {
    int64_t low, high, run = z_run_bytes(copy);
    z_bounds(copy, &low, &high);
    int64_t runs = z_count(copy) / (run / copy->itemsize);
    if (runs < (high - low) / (run + SEEK)) return by_runs(context, copy, chain, fd, work);
    return in_strips(context, copy, chain, fd, work);
}
