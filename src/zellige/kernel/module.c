/* What Python sees: programs and plans are checked here, then carried out item by item without the interpreter. */
#include "plan.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNIT (256 << 10)    /* decoded bytes of inner chunks that are one unit of work */
#define UNIT_MOST 1024      /* inner chunks of one unit */
#define GAP (64 << 10)      /* inner chunks no further apart are read by one call */
#define TOGETHER (16 << 20) /* bytes that are read by one call at most */
#define ROUND 128           /* files that are flushed together; each keeps a descriptor, of which a process has 256 or more */

enum { FLAG_KEEP = 1, FLAG_PAD = 2, FLAG_SYNC = 4 };
enum { Z_EMPTY = 6 }; /* of a chunk that is written: only fill values, and something is stored in its place */

/* -- programs ----------------------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *at;
    int64_t left;
    bool bad;
} words;

static int64_t word(words *from) {
    int64_t value = 0;
    if (from->left < 8) from->bad = true;
    else memcpy(&value, from->at, 8), from->at += 8, from->left -= 8;
    return value;
}

static int64_t between(words *from, int64_t low, int64_t high) {
    int64_t value = word(from);
    if (value < low || value > high) from->bad = true;
    return from->bad ? low : value;
}

static void parse_codec(words *from, z_codec *codec) {
    static const int64_t limits[C_IDS][5][2] = {
        [C_ZSTD] = {{-131072, 22}, {0, 1}},
        [C_GZIP] = {{0, 3}, {0, 9}},
        [C_ZLIB] = {{-1, 9}},
        [C_BLOSC] = {{0, 5}, {0, 9}, {0, 2}, {1, INT32_MAX}, {0, INT32_MAX}},
        [C_LZ4] = {{INT32_MIN, INT32_MAX}},
        [C_SHUFFLE] = {{2, INT32_MAX}},
    };
    codec->id = between(from, 1, C_IDS - 1);
    for (int k = 0; k < 5; k++) codec->given[k] = between(from, limits[codec->id][k][0], limits[codec->id][k][1]);
    if (!z_can(codec)) from->bad = true;
}

bool z_parse_program(const uint8_t *at, int64_t size, program *into) {
    words from = {at, size, false};
    z_chain *chain = &into->chain;
    memset(into, 0, sizeof *into);
    chain->ndim = (int)between(&from, 0, Z_DIMS);
    chain->itemsize = between(&from, 1, 1 << 20);
    chain->swap = between(&from, 0, 16);
    if (chain->swap > 1 && chain->itemsize % chain->swap) from.bad = true;
    chain->is_bool = between(&from, 0, 1);
    uint64_t seen = 0;
    for (int k = 0; k < chain->ndim; k++) {
        chain->order[k] = (int)between(&from, 0, chain->ndim - 1);
        seen |= (uint64_t)1 << chain->order[k];
    }
    if (seen != ((uint64_t)1 << chain->ndim) - 1) from.bad = true;
    chain->ncodecs = (int)between(&from, 0, Z_CODECS);
    int variable = 0;
    for (int k = 0; k < chain->ncodecs && !from.bad; k++) {
        parse_codec(&from, &chain->codecs[k]);
        variable += chain->codecs[k].id <= C_LZ4;
    }
    if (variable > 1) from.bad = true; /* of the inner one the length would not be known */
    into->sharded = between(&from, 0, 1);
    if (into->sharded) {
        into->at_start = between(&from, 0, 1);
        into->index_crc = between(&from, 0, 1);
        for (int k = 0; k < chain->ndim; k++) into->inner[k] = between(&from, 1, Z_MOST);
    }
    into->fill = from.at;
    return !from.bad && from.left == chain->itemsize;
}

/* -- plans -------------------------------------------------------------------------------------------------------- */

static const char BAD_PLAN[] = "the plan does not fit the program or the work array";

static void free_plan(plan *plan) {
    for (int k = 0; k < plan->nviews; k++) PyBuffer_Release(&plan->views[k]);
    for (int k = 0; k < plan->naxes; k++) free(plan->axes[k].groups), free(plan->axes[k].whole);
    free(plan);
}

static Py_buffer *view(plan *plan, PyObject *from, int flags) {
    Py_buffer *into = &plan->views[plan->nviews];
    if (PyObject_GetBuffer(from, into, flags)) return NULL;
    plan->nviews++;
    return into;
}

/* A contiguous buffer of 64-bit integers. */
static const int64_t *integers(plan *plan, PyObject *from, int64_t *count) {
    Py_buffer *found = view(plan, from, PyBUF_SIMPLE);
    if (!found) return NULL;
    if (found->len % 8 || (uintptr_t)found->buf % 8) {
        PyErr_SetString(PyExc_ValueError, BAD_PLAN);
        return NULL;
    }
    *count = found->len / 8;
    return found->len ? found->buf : (const int64_t *)"";
}

static bool check_row(plan *plan, const axis *axis, const int64_t *row, int64_t extent) {
    int m = axis->naxes;
    bool sharded = plan->program.sharded;
    const int64_t *numbers = row, *sizes = row + m, *pick = row + (sharded ? 4 : 2) * m;
    for (int k = 0; k < m; k++) {
        if (numbers[k] < 0 || sizes[k] < 1) return false;
        if (sizes[k] > Z_MOST) plan->too_large = true;
        if (!sharded) continue;
        int64_t inner = plan->program.inner[axis->axes[k]], number = row[2 * m + k];
        if (sizes[k] % inner || row[3 * m + k] != inner || number < 0 || number >= sizes[k] / inner) return false;
    }
    if (sharded) sizes = row + 3 * m;
    int64_t start = pick[0], step = pick[1], count = pick[2], place = pick[3];
    if (start < 0 || step < 0 || count < 1 || count > Z_MOST || place < 0) return false;
    if (step) {
        if (m != 1 || start >= sizes[0] || count - 1 > (sizes[0] - 1 - start) / step) return false;
    } else {
        if (!axis->positions || start > axis->npositions || count > axis->npositions - start) return false;
        for (int k = 0; k < m; k++)
            for (int64_t j = 0; j < count; j++) {
                int64_t at = axis->positions[k * axis->npositions + start + j];
                if (at < 0 || at >= sizes[k]) return false;
            }
        if (axis->places) {
            for (int64_t j = 0; j < count; j++)
                if (axis->places[start + j] < 0 || axis->places[start + j] >= extent) return false;
            return true;
        }
    }
    return place <= extent && count <= extent - place;
}

static bool same_numbers(const int64_t *one, const int64_t *other, int m) {
    return !memcmp(one, other, 2 * (size_t)m * sizeof *one);
}

/* Whether rows are all of a chunk, or of a shard, along an axis; with padding, of what comes before its end. */
static bool is_whole(const plan *plan, const axis *axis, const int64_t *rows, int64_t count, bool pad) {
    int m = axis->naxes;
    if (m != 1) return false;
    bool sharded = plan->program.sharded;
    if (sharded && !pad && count != rows[1] / rows[3]) return false;
    for (int64_t k = 0; k < count; k++) {
        const int64_t *row = rows + k * axis->width, *pick = row + (sharded ? 4 : 2);
        int64_t size = sharded ? row[3] : row[1];
        if (pick[0] || pick[1] != 1 || (sharded && row[2] != k)) return false;
        if (pick[2] != size && !(pad && k == count - 1)) return false;
    }
    return true;
}

static bool group(plan *plan, axis *axis, bool pad) {
    axis->groups = malloc((size_t)(axis->count + 1) * sizeof *axis->groups);
    axis->whole = malloc((size_t)axis->count + 1);
    if (!axis->groups || !axis->whole) return false;
    int64_t n = 0;
    for (int64_t k = 0; k < axis->count; k++) {
        const int64_t *row = axis->rows + k * axis->width;
        if (!k || !plan->program.sharded || !same_numbers(row, row - axis->width, axis->naxes)) axis->groups[n++] = k;
    }
    axis->groups[n] = axis->count;
    axis->ngroups = n;
    for (int64_t k = 0; k < n; k++)
        axis->whole[k] = is_whole(plan, axis, axis->rows + axis->groups[k] * axis->width,
                                  axis->groups[k + 1] - axis->groups[k], pad);
    return true;
}

static bool parse_axis(plan *plan, axis *axis, PyObject *given, int64_t extent, uint64_t *seen, bool pad) {
    PyObject *rows, *axes, *positions, *places;
    if (!PyArg_ParseTuple(given, "OO!OO", &rows, &PyTuple_Type, &axes, &positions, &places)) return false;
    Py_ssize_t m = PyTuple_Size(axes);
    int64_t nrows, nplaces = 0;
    if (!(axis->rows = integers(plan, rows, &nrows))) return false;
    if (positions != Py_None && !(axis->positions = integers(plan, positions, &axis->npositions))) return false;
    if (places != Py_None && !(axis->places = integers(plan, places, &nplaces))) return false;
    bool good = m >= 1 && m <= plan->program.chain.ndim;
    for (Py_ssize_t k = 0; good && k < m; k++) {
        long at = PyLong_AsLong(PyTuple_GetItem(axes, k));
        if (at == -1 && PyErr_Occurred()) return false;
        good = at >= 0 && at < plan->program.chain.ndim && !(*seen >> at & 1);
        if (good) axis->axes[k] = (int)at, *seen |= (uint64_t)1 << at;
    }
    if (good) {
        axis->naxes = (int)m;
        axis->width = (plan->program.sharded ? 4 : 2) * m + 4;
        axis->count = nrows / axis->width;
        axis->npositions /= m;
        good = nrows % axis->width == 0 && (!axis->places || nplaces == axis->npositions);
        for (int64_t k = 0; good && k < axis->count; k++)
            good = check_row(plan, axis, axis->rows + k * axis->width, extent);
    }
    if (good && !group(plan, axis, pad)) {
        PyErr_NoMemory();
        return false;
    }
    if (!good) PyErr_SetString(PyExc_ValueError, BAD_PLAN);
    return good;
}

static plan *parse_plan(PyObject *axes, PyObject *code, PyObject *work, bool writable, bool pad) {
    plan *made = calloc(1, sizeof *made);
    if (!made) return (plan *)PyErr_NoMemory();
    Py_buffer *bytes = view(made, code, PyBUF_SIMPLE);
    if (!bytes) goto failed;
    if (!z_parse_program(bytes->buf, bytes->len, &made->program)) {
        PyErr_SetString(PyExc_ValueError, "the program is not one that this kernel knows");
        goto failed;
    }
    made->work = view(made, work, PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0));
    if (!made->work) goto failed;
    Py_ssize_t n = PyTuple_Size(axes);
    if (n < 0) goto failed;
    uint64_t seen = 0;
    if (n > Z_DIMS || n != made->work->ndim || made->work->itemsize != made->program.chain.itemsize) goto bad;
    if (n && (!made->work->shape || !made->work->strides)) goto bad; /* some leave out what they were asked for */
    made->items = 1;
    made->decoded = made->program.chain.itemsize;
    for (Py_ssize_t k = 0; k < n; k++) {
        axis *axis = &made->axes[k];
        made->naxes = (int)k + 1;
        if (!parse_axis(made, axis, PyTuple_GetItem(axes, k), made->work->shape[k], &seen, pad)) goto failed;
        if (!times(&made->items, axis->ngroups)) goto bad;
        const int64_t *sizes = axis->rows + (made->program.sharded ? 3 : 1) * axis->naxes;
        for (int j = 0; axis->count && j < axis->naxes; j++)
            if (!times(&made->decoded, sizes[j])) made->decoded = Z_MOST;
        if (!times(&made->decoded, axis->count)) made->decoded = Z_MOST;
    }
    if (seen != ((uint64_t)1 << made->program.chain.ndim) - 1) goto bad;
    return made;
bad:
    PyErr_SetString(PyExc_ValueError, BAD_PLAN);
failed:
    free_plan(made);
    return NULL;
}

/* -- one chunk of a plan ------------------------------------------------------------------------------------------ */

typedef struct {
    const int64_t *rows[Z_DIMS]; /* one for each axis of the plan */
    int64_t numbers[Z_DIMS];     /* of the stored chunk, for each axis of the array */
    int64_t nbytes;              /* of the chunk, decoded */
    int64_t number;              /* of an inner chunk in its shard */
    int64_t inners;              /* how many the shard has */
    z_copy copy;
} item;

/* What to copy for a row of each axis; false if the chunk is too large to be true. */
static bool make_item(const plan *plan, item *item) {
    const z_chain *chain = &plan->program.chain;
    bool sharded = plan->program.sharded;
    int64_t sizes[Z_DIMS], strides[Z_DIMS], inner[Z_DIMS], counts[Z_DIMS];
    for (int d = 0; d < plan->naxes; d++) {
        const axis *axis = &plan->axes[d];
        int m = axis->naxes;
        const int64_t *row = item->rows[d];
        for (int k = 0; k < m; k++) {
            int at = axis->axes[k];
            item->numbers[at] = row[k];
            sizes[at] = sharded ? row[3 * m + k] : row[m + k];
            if (sharded) inner[at] = row[2 * m + k], counts[at] = row[m + k] / row[3 * m + k];
        }
    }
    item->number = 0, item->inners = 1;
    for (int k = 0; sharded && k < chain->ndim; k++) {
        if (!times(&item->inners, counts[k])) return false;
        item->number = item->number * counts[k] + inner[k];
    }
    int64_t nbytes = chain->itemsize;
    for (int k = chain->ndim - 1; k >= 0; k--) {
        strides[chain->order[k]] = nbytes;
        if (!times(&nbytes, sizes[chain->order[k]])) return false;
    }
    item->nbytes = nbytes;
    z_copy *copy = &item->copy;
    copy->itemsize = chain->itemsize;
    copy->ndims = plan->naxes;
    copy->in = copy->out = 0;
    for (int d = 0; d < plan->naxes; d++) {
        const axis *axis = &plan->axes[d];
        int m = axis->naxes;
        const int64_t *pick = item->rows[d] + (sharded ? 4 : 2) * m;
        z_dim *dim = &copy->dims[d];
        dim->count = pick[2];
        dim->out = plan->work->strides[d];
        dim->places = NULL;
        dim->lists = 0;
        if (pick[1]) {
            dim->in = pick[2] > 1 ? pick[1] * strides[axis->axes[0]] : 0; /* of one element any step is good */
            copy->in += pick[0] * strides[axis->axes[0]];
        } else {
            dim->lists = m;
            dim->in = 0;
            for (int k = 0; k < m; k++) {
                dim->positions[k] = axis->positions + k * axis->npositions + pick[0];
                dim->strides[k] = strides[axis->axes[k]];
            }
            if (axis->places) dim->places = axis->places + pick[0];
        }
        if (!dim->places) copy->out += pick[3] * dim->out;
    }
    z_simplify(copy);
    return true;
}

/* The groups of an item, which are counted in C order; and its first row along each axis. */
static void locate(const plan *plan, int64_t number, int64_t *groups, item *item) {
    for (int d = plan->naxes - 1; d >= 0; d--) {
        const axis *axis = &plan->axes[d];
        groups[d] = number % axis->ngroups;
        number /= axis->ngroups;
        item->rows[d] = axis->rows + axis->groups[groups[d]] * axis->width;
    }
}

/* -- where encoded bytes are -------------------------------------------------------------------------------------- */

static bool path_of(const place *place, const item *item, int ndim, char *into) {
    size_t at = place->base_size;
    if (at >= Z_PATH) return false;
    memcpy(into, place->base, at);
    for (int k = 0; k <= ndim; k++) {
        if (at + place->sizes[k] + 24 >= Z_PATH) return false;
        memcpy(into + at, place->pieces[k], place->sizes[k]);
        at += place->sizes[k];
        if (k == ndim) break;
        char digits[24];
        int n = 0;
        uint64_t value = (uint64_t)item->numbers[k];
        do digits[n++] = (char)('0' + value % 10);
        while (value /= 10);
        while (n) into[at++] = digits[--n];
    }
    into[at] = 0;
    return true;
}

bool z_parse_place(place *place, PyObject *base, PyObject *pieces, int ndim) {
    memset(place, 0, sizeof *place);
    Py_ssize_t size;
    char *at;
    if (PyBytes_AsStringAndSize(base, &at, &size)) return false;
    place->base = at, place->base_size = (size_t)size;
    bool good = PyTuple_Size(pieces) == ndim + 1 && size && at[size - 1] == '/' && !memchr(at, 0, (size_t)size);
    for (int k = 0; good && k <= ndim; k++) {
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(pieces, k), &at, &size)) return false;
        place->pieces[k] = at, place->sizes[k] = (size_t)size;
        good = !memchr(at, 0, (size_t)size);
    }
    if (!good && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the base or the pieces of keys are not right");
    return good;
}

/* -- jobs --------------------------------------------------------------------------------------------------------- */

static bool look_for_signals(void *arg) {
    job *job = arg;
    PyEval_RestoreThread(job->saved);
    int found = PyErr_CheckSignals();
    job->saved = PyEval_SaveThread();
    return found != 0;
}

static const uint8_t *whole_chunk(const item *item, const uint8_t *at) { /* NULL if it lies in pieces */
    const z_copy *copy = &item->copy;
    if (copy->in || copy->ndims > 1 || (copy->ndims && !z_is_run(copy))) return NULL;
    return z_count(copy) * copy->itemsize == item->nbytes ? at + copy->out : NULL;
}

static int decode_item(z_context *context, const plan *plan, const item *item, const uint8_t *raw, int64_t size) {
    uint8_t *work = plan->work->buf;
    const uint8_t *found;
    uint8_t *into = (uint8_t *)whole_chunk(item, work);
    int status = z_decode(context, &plan->program.chain, raw, size, item->nbytes, into, &found);
    if (!status && !into) z_scatter(&item->copy, found, work);
    return status;
}

static int missing(const job *job, const item *item) {
    if (!job->fill_missing) return Z_MISSING;
    z_fill(&item->copy, job->plan->work->buf, job->plan->program.fill);
    return Z_OK;
}

static int read_chunk(job *job, z_context *context, int64_t number) {
    const plan *plan = job->plan;
    const z_chain *chain = &plan->program.chain;
    int64_t groups[Z_DIMS];
    item item;
    locate(plan, number, groups, &item);
    if (!make_item(plan, &item)) return Z_DECLINED;
    if (!job->place.base) {
        if (!job->place.present[number]) return missing(job, &item);
        Py_buffer *value = &job->place.values[number];
        return decode_item(context, plan, &item, value->buf, value->len);
    }
    char path[Z_PATH];
    if (!path_of(&job->place, &item, chain->ndim, path)) return Z_DECLINED;
    int error, fd = z_open(path, job->place.follow, &error);
    if (fd < 0) return z_is_missing(error) ? missing(job, &item) : Z_FAILED;
    int64_t size = z_size(fd);
    int status = Z_DAMAGED;
    if (size < 0) status = Z_FAILED;
    else if (!chain->ncodecs) {
        if (size == item.nbytes) status = z_read_raw(context, &item.copy, chain, fd, plan->work->buf);
    } else if (size > 0 && size <= z_encoded_bound(chain, item.nbytes)) {
        uint8_t *raw = z_room(context, B_FILE, (size_t)size);
        status = raw ? z_pread(fd, raw, size, 0) : Z_DECLINED;
        if (!status) status = decode_item(context, plan, &item, raw, size);
    }
    close(fd);
    return status;
}

static void read_unit(z_job *base, int64_t unit, z_context *context) {
    job *job = (struct job *)base;
    job->statuses[unit] = (uint8_t)read_chunk(job, context, unit);
}

/* -- shards ------------------------------------------------------------------------------------------------------- */

static pthread_mutex_t opening[64]; /* of shards, by their number; those that differ may share one */

static void make_locks(void) {
    for (int k = 0; k < 64; k++) pthread_mutex_init(&opening[k], NULL);
    z_make_index_lock();
}

static uint64_t entry(const uint8_t *index, int64_t k) {
    uint64_t value = 0;
    for (int b = 7; b >= 0; b--) value = value << 8 | index[8 * k + b];
    return value;
}

static void put_entry(uint8_t *index, int64_t k, uint64_t value) {
    for (int b = 0; b < 8; b++) index[8 * k + b] = (uint8_t)(value >> 8 * b);
}

typedef struct {
    uint64_t start, end;
} span;

static int compare_spans(const void *one, const void *other) {
    const span *a = one, *b = other;
    return a->start != b->start ? (a->start > b->start) - (a->start < b->start) : (a->end > b->end) - (a->end < b->end);
}

static int check_sorted(const uint8_t *index, int64_t n) {
    span *spans = malloc((size_t)n * sizeof *spans);
    if (!spans) return Z_DECLINED;
    int64_t count = 0;
    for (int64_t k = 0; k < n; k++) {
        uint64_t offset = entry(index, 2 * k);
        if (offset != UINT64_MAX) spans[count++] = (span){offset, offset + entry(index, 2 * k + 1)};
    }
    qsort(spans, (size_t)count, sizeof *spans, compare_spans);
    int status = Z_OK;
    for (int64_t k = 1; k < count; k++)
        if (spans[k].start < spans[k - 1].end) status = Z_DAMAGED;
    free(spans);
    return status;
}

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

/* Whole entries inside the shard, no two over one another. Some writers store inner chunks in another order than C's, but
 * without gaps: then all ends but the last are the starts of others, and equal sums of mixed numbers say so without
 * sorting. */
static int check_index(const program *program, const uint8_t *index, int64_t n, int64_t size) {
    int64_t bytes = 16 * n + (program->index_crc ? 4 : 0);
    if (program->index_crc) {
        uint32_t sum = z_crc32c(0, index, (size_t)(16 * n)), stored = 0;
        for (int b = 3; b >= 0; b--) stored = stored << 8 | index[16 * n + b];
        if (sum != stored) return Z_DAMAGED;
    }
    uint64_t low = program->at_start ? (uint64_t)bytes : 0, high = (uint64_t)(program->at_start ? size : size - bytes);
    uint64_t first = UINT64_MAX, last = 0, next = low, starts = 0, ends = 0;
    bool in_order = true, empty = false;
    for (int64_t k = 0; k < n; k++) {
        uint64_t offset = entry(index, 2 * k), length = entry(index, 2 * k + 1), end = offset + length;
        if (offset == UINT64_MAX && length == UINT64_MAX) continue;
        if (offset > high || length > high - offset) return Z_DAMAGED;
        if (offset < low) return length ? Z_DAMAGED : Z_DECLINED;
        in_order = in_order && offset >= next;
        empty = empty || !length;
        next = end;
        if (offset < first) first = offset;
        if (end > last) last = end;
        starts += mixed(offset);
        ends += mixed(end);
    }
    if (in_order || (!empty && starts - mixed(first) == ends - mixed(last))) return Z_OK;
    return check_sorted(index, n);
}

static int open_shard(job *job, shard *shard, const item *item, int64_t number) {
    const program *program = &job->plan->program;
    int64_t bytes = 16 * item->inners + (program->index_crc ? 4 : 0);
    int ndim = program->chain.ndim;
    struct stat info;
    if (item->inners > Z_MOST / 64) return Z_DECLINED;
    if (job->place.base) {
        char path[Z_PATH];
        if (!path_of(&job->place, item, ndim, path)) return Z_DECLINED;
        int error;
        shard->fd = z_open(path, job->place.follow, &error);
        if (shard->fd < 0) return z_is_missing(error) ? Z_MISSING : Z_FAILED;
        if (fstat(shard->fd, &info) || !S_ISREG(info.st_mode)) return Z_FAILED;
        shard->size = (int64_t)info.st_size;
    } else {
        if (!job->place.present[number]) return Z_MISSING;
        shard->at = job->place.values[number].buf;
        shard->size = job->place.values[number].len;
    }
    if (job->indexes && (shard->index = z_find_index(job->indexes, item->numbers, ndim, &info, bytes))) return Z_OK;
    if (shard->size < bytes) return Z_DAMAGED; /* before memory is taken for the index */
    if (!(shard->index = z_new_index(bytes))) return Z_DECLINED;
    int64_t at = program->at_start ? 0 : shard->size - bytes;
    int status = Z_OK;
    if (shard->at) memcpy(shard->index->at, shard->at + at, (size_t)bytes);
    else status = z_pread(shard->fd, shard->index->at, bytes, at);
    if (!status) status = check_index(program, shard->index->at, item->inners, shard->size);
    if (!status && job->indexes) z_keep_index(job->indexes, shard->index, item->numbers, ndim, &info);
    return status;
}

static void close_shard(shard *shard) {
    if (shard->fd >= 0) close(shard->fd);
    shard->fd = -1;
    z_drop_index(shard->index);
    shard->index = NULL;
}

/* The shard of a unit and its inner chunks, counted from `from` to `to` in C order of the rows. */
static int64_t shard_of(const job *job, int64_t unit, int64_t *from, int64_t *to, int64_t *groups, item *item) {
    const plan *plan = job->plan;
    int64_t low = 0, high = plan->items;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (job->first_units[middle] <= unit) low = middle;
        else high = middle;
    }
    locate(plan, low, groups, item);
    int64_t count = 1;
    for (int d = 0; d < plan->naxes; d++)
        count *= plan->axes[d].groups[groups[d] + 1] - plan->axes[d].groups[groups[d]];
    *from = (unit - job->first_units[low]) * job->per_unit;
    *to = *from + job->per_unit < count ? *from + job->per_unit : count;
    return low;
}

static bool inner_item(const plan *plan, const int64_t *groups, int64_t number, item *item) {
    for (int d = plan->naxes - 1; d >= 0; d--) {
        const axis *axis = &plan->axes[d];
        int64_t first = axis->groups[groups[d]], count = axis->groups[groups[d] + 1] - first;
        item->rows[d] = axis->rows + (first + number % count) * axis->width;
        number /= count;
    }
    return make_item(plan, item);
}

static int read_inner(job *job, z_context *context, shard *shard, const int64_t *groups, int64_t from, int64_t to) {
    const plan *plan = job->plan;
    const z_chain *chain = &plan->program.chain;
    item item;
    int64_t low = INT64_MAX, high = 0, sum = 0, stored = 0;
    for (int64_t k = from; k < to; k++) { /* where they lie, to read them together if that is near each other */
        if (!inner_item(plan, groups, k, &item)) return Z_DECLINED;
        uint64_t offset = entry(shard->index->at, 2 * item.number), length = entry(shard->index->at, 2 * item.number + 1);
        if (offset == UINT64_MAX) continue;
        if ((int64_t)length > z_encoded_bound(chain, item.nbytes)) return Z_DAMAGED;
        if ((int64_t)offset < low) low = (int64_t)offset;
        if ((int64_t)(offset + length) > high) high = (int64_t)(offset + length);
        sum += (int64_t)length;
        stored++;
    }
    bool together = shard->at || (stored && high - low <= sum + GAP * (stored - 1) && high - low <= TOGETHER);
    const uint8_t *all = shard->at ? shard->at + (stored ? low : 0) : NULL;
    if (together && stored && !all) {
        uint8_t *raw = z_room(context, B_FILE, (size_t)(high - low));
        int status = raw ? z_pread(shard->fd, raw, high - low, low) : Z_DECLINED;
        if (status) return status;
        all = raw;
    }
    for (int64_t k = from; k < to; k++) {
        if (!inner_item(plan, groups, k, &item)) return Z_DECLINED;
        int64_t offset = (int64_t)entry(shard->index->at, 2 * item.number);
        int64_t length = (int64_t)entry(shard->index->at, 2 * item.number + 1);
        int status;
        if (offset < 0) { /* an inner chunk that is not there is always fill */
            z_fill(&item.copy, plan->work->buf, plan->program.fill);
            continue;
        }
        const uint8_t *raw = all ? all + (offset - low) : NULL;
        if (!raw) {
            uint8_t *mine = z_room(context, B_FILE, (size_t)length);
            status = mine ? z_pread(shard->fd, mine, length, offset) : Z_DECLINED;
            if (status) return status;
            raw = mine;
        }
        if ((status = decode_item(context, plan, &item, raw, length))) return status;
    }
    return Z_OK;
}

static void read_shard_unit(z_job *base, int64_t unit, z_context *context) {
    job *job = (struct job *)base;
    int64_t from, to, groups[Z_DIMS];
    item item;
    int64_t number = shard_of(job, unit, &from, &to, groups, &item);
    shard *shard = &job->shards[number];
    int status = make_item(job->plan, &item) ? Z_OK : Z_DECLINED;
    if (!status && !atomic_load_explicit(&shard->state, memory_order_acquire)) {
        pthread_mutex_lock(&opening[number % 64]);
        if (!atomic_load(&shard->state)) {
            int found = open_shard(job, shard, &item, number);
            if (found > Z_MISSING) atomic_store(&shard->status, found);
            atomic_store_explicit(&shard->state, found == Z_OK ? 1 : found == Z_MISSING ? 2 : 3, memory_order_release);
        }
        pthread_mutex_unlock(&opening[number % 64]);
    }
    int state = atomic_load(&shard->state);
    if (!status && state == 2 && !job->fill_missing) status = Z_MISSING;
    else if (!status && state == 2) {
        for (int64_t k = from; !status && k < to; k++)
            status = inner_item(job->plan, groups, k, &item) ? missing(job, &item) : Z_DECLINED;
    } else if (!status && state == 1 && !atomic_load(&shard->status))
        status = read_inner(job, context, shard, groups, from, to);
    if (status) atomic_store(&shard->status, status);
    if (atomic_fetch_sub(&shard->left, 1) == 1) {
        job->statuses[number] = (uint8_t)atomic_load(&shard->status);
        close_shard(shard);
    }
}

/* -- writing ------------------------------------------------------------------------------------------------------ */

static bool is_fill(const uint8_t *at, int64_t nbytes, const uint8_t *fill, int64_t item) {
    return !memcmp(at, fill, (size_t)item) && !memcmp(at, at + item, (size_t)(nbytes - item));
}

/* Encode one chunk, or inner chunk; Z_EMPTY if it need not be stored. */
static int encode_item(job *job, z_context *context, const item *item, const uint8_t **raw, int64_t *size) {
    const plan *plan = job->plan;
    const z_chain *chain = &plan->program.chain;
    const uint8_t *work = plan->work->buf, *fill = plan->program.fill;
    uint8_t *chunk = chain->swap > 1 ? NULL : (uint8_t *)whole_chunk(item, work);
    if (!chunk) {
        chunk = z_room(context, B_CHUNK, (size_t)item->nbytes);
        if (!chunk) return Z_DECLINED;
        if (z_count(&item->copy) * chain->itemsize != item->nbytes) /* the rest, beyond the end of the array */
            for (int64_t k = 0; k < item->nbytes; k += chain->itemsize) memcpy(chunk + k, fill, (size_t)chain->itemsize);
        z_gather(&item->copy, chunk, work);
    }
    if (!(job->flags & FLAG_KEEP) && is_fill(chunk, item->nbytes, fill, chain->itemsize)) return Z_EMPTY;
    return z_encode(context, chain, chunk, item->nbytes, raw, size);
}

static int store(job *job, const item *item, int64_t number, const z_piece *pieces, int64_t count) {
    if (job->results) {
        int64_t size = 0, at = 0;
        for (int64_t k = 0; k < count; k++) size += pieces[k].size;
        uint8_t *all = malloc((size_t)size + 1);
        if (!all) return Z_DECLINED;
        for (int64_t k = 0; k < count; at += pieces[k++].size) memcpy(all + at, pieces[k].at, (size_t)pieces[k].size);
        job->results[number] = (z_piece){all, size};
        return Z_OK;
    }
    char path[Z_PATH], temporary[Z_PATH];
    if (!path_of(&job->place, item, job->plan->program.chain.ndim, path)) return Z_DECLINED;
    snprintf(temporary, sizeof temporary, "%s%llu", job->temporary, (unsigned long long)atomic_fetch_add(job->numbers, 1));
    if (!job->pending) return z_write(path, job->place.folder, temporary, pieces, count, job->place.follow);
    z_pending *pending = &job->pending[number - job->first];
    bool begun = z_begin(pending, path, job->place.folder, temporary, pieces, count, job->place.follow);
    return begun ? Z_NOT_BEGUN : Z_FAILED; /* `place_unit` says what became of it */
}

static int store_nothing(job *job, const item *item) {
    struct stat info;
    char path[Z_PATH];
    if (job->results) return Z_EMPTY;
    if (!path_of(&job->place, item, job->plan->program.chain.ndim, path)) return Z_DECLINED;
    return lstat(path, &info) && errno == ENOENT ? Z_OK : Z_EMPTY;
}

static bool all_whole(const plan *plan, const int64_t *groups) {
    for (int d = 0; d < plan->naxes; d++)
        if (!plan->axes[d].whole[groups[d]]) return false;
    return true;
}

static int write_chunk(job *job, z_context *context, int64_t number) {
    int64_t groups[Z_DIMS];
    item item;
    locate(job->plan, number, groups, &item);
    if (!all_whole(job->plan, groups) || !make_item(job->plan, &item)) return Z_DECLINED;
    z_piece piece;
    int status = encode_item(job, context, &item, &piece.at, &piece.size);
    if (status == Z_EMPTY) return store_nothing(job, &item);
    return status ? status : store(job, &item, number, &piece, 1);
}

static void write_unit(z_job *base, int64_t unit, z_context *context) {
    job *job = (struct job *)base;
    unit += job->first_unit;
    job->statuses[unit] = (uint8_t)write_chunk(job, context, unit);
}

static int write_inner(job *job, z_context *context, shard *shard, const int64_t *groups, int64_t from, int64_t to) {
    for (int64_t k = from; k < to; k++) {
        item item;
        const uint8_t *raw;
        int64_t size;
        if (!inner_item(job->plan, groups, k, &item)) return Z_DECLINED;
        int status = encode_item(job, context, &item, &raw, &size);
        if (status == Z_EMPTY) continue;
        if (status) return status;
        uint8_t *kept = malloc((size_t)size + 1);
        if (!kept) return Z_DECLINED;
        memcpy(kept, raw, (size_t)size);
        shard->pieces[item.number + 1] = (z_piece){kept, size};
    }
    return Z_OK;
}

/* Inner chunks in order, with their index before or after them; `pieces` has room for both. */
static int write_shard(job *job, shard *shard, const item *item, int64_t number) {
    const program *program = &job->plan->program;
    int64_t n = item->inners, bytes = 16 * n + (program->index_crc ? 4 : 0);
    uint8_t *index = malloc((size_t)bytes);
    z_piece *pieces = malloc((size_t)(n + 1) * sizeof *pieces);
    int status = index && pieces ? Z_OK : Z_DECLINED;
    int64_t stored = 0;
    if (!status) {
        uint64_t at = program->at_start ? (uint64_t)bytes : 0;
        if (program->at_start) pieces[stored++] = (z_piece){index, bytes};
        for (int64_t k = 0; k < n; k++) {
            z_piece *piece = &shard->pieces[k + 1];
            put_entry(index, 2 * k, piece->at ? at : UINT64_MAX);
            put_entry(index, 2 * k + 1, piece->at ? (uint64_t)piece->size : UINT64_MAX);
            if (!piece->at) continue;
            at += (uint64_t)piece->size;
            pieces[stored++] = *piece;
        }
        if (program->index_crc) {
            uint32_t sum = z_crc32c(0, index, (size_t)(16 * n));
            for (int b = 0; b < 4; b++) index[16 * n + b] = (uint8_t)(sum >> 8 * b);
        }
        bool empty = stored == (program->at_start ? 1 : 0);
        if (!program->at_start) pieces[stored++] = (z_piece){index, bytes};
        status = empty && !(job->flags & FLAG_KEEP) ? store_nothing(job, item) : store(job, item, number, pieces, stored);
    }
    free(index);
    free(pieces);
    return status;
}

static void free_pieces(shard *shard, int64_t inners) {
    for (int64_t k = 0; shard->pieces && k <= inners; k++) free((void *)shard->pieces[k].at);
    free(shard->pieces);
    shard->pieces = NULL;
}

static void write_shard_unit(z_job *base, int64_t unit, z_context *context) {
    job *job = (struct job *)base;
    int64_t from, to, groups[Z_DIMS];
    item item;
    int64_t number = shard_of(job, job->first_unit + unit, &from, &to, groups, &item);
    shard *shard = &job->shards[number];
    int status = all_whole(job->plan, groups) && make_item(job->plan, &item) && item.inners < Z_MOST / 64 ? Z_OK : Z_DECLINED;
    if (!status && !atomic_load_explicit(&shard->state, memory_order_acquire)) {
        pthread_mutex_lock(&opening[number % 64]);
        if (!atomic_load(&shard->state)) {
            shard->pieces = calloc((size_t)item.inners + 1, sizeof *shard->pieces);
            shard->size = item.inners;
            atomic_store_explicit(&shard->state, shard->pieces ? 1 : 3, memory_order_release);
        }
        pthread_mutex_unlock(&opening[number % 64]);
    }
    if (!status && atomic_load(&shard->state) != 1) status = Z_DECLINED;
    if (!status && !atomic_load(&shard->status)) status = write_inner(job, context, shard, groups, from, to);
    if (status) atomic_store(&shard->status, status);
    if (atomic_fetch_sub(&shard->left, 1) == 1) {
        status = atomic_load(&shard->status);
        job->statuses[number] = (uint8_t)(status ? status : write_shard(job, shard, &item, number));
        free_pieces(shard, shard->size);
    }
}

/* -- surviving a power cut ---------------------------------------------------------------------------------------- */

static void flush_unit(z_job *base, int64_t unit, z_context *context) {
    (void)context;
    z_pending *pending = &((struct job *)base)->pending[unit];
    if (pending->path) z_flush(pending);
}

static void place_unit(z_job *base, int64_t unit, z_context *context) {
    (void)context;
    job *job = (struct job *)base;
    z_pending *pending = &job->pending[unit];
    if (pending->path) job->statuses[job->first + unit] = z_place(pending) ? Z_OK : Z_FAILED;
}

static void folder_unit(z_job *base, int64_t unit, z_context *context) {
    (void)context;
    job *job = (struct job *)base;
    if (!z_sync_directory(job->folders[unit], job->place.follow)) atomic_store(&job->unsynced, true);
}

static bool never(void *unused) {
    (void)unused;
    return false;
}

/* Note the directory of a value, and those above it that the one noted before does not lie in, up to the store's own:
 * an earlier write that was not to survive a power cut may have made them. */
static bool note_folders(job *job, const char *path) {
    const char *last = job->nfolders ? job->folders[job->nfolders - 1] : "";
    size_t same = 0, length = (size_t)(strrchr(path, '/') - path);
    while (same <= length && last[same] == path[same]) same++;
    if (job->nfolders && (same > length || (same == length && !last[same]))) return true;
    for (size_t k = job->place.folder - 1; k <= length; k++) {
        bool noted = job->nfolders && (k < same || (k == same && !last[same]));
        if (path[k] != '/' || noted) continue;
        if (job->nfolders == job->most_folders) {
            int64_t most = 2 * job->most_folders + 64;
            char **grown = realloc(job->folders, (size_t)most * sizeof *grown);
            if (!grown) return false;
            job->folders = grown, job->most_folders = most;
        }
        char *folder = malloc(k + 2);
        if (!folder) return false;
        memcpy(folder, path, k ? k : 1);
        folder[k ? k : 1] = 0;
        job->folders[job->nfolders++] = folder;
    }
    return true;
}

static void run_phase(job *job, int64_t units, int threads, void (*work)(z_job *, int64_t, z_context *)) {
    job->job.units = units;
    job->job.work = work;
    z_run(&job->job, threads);
}

/* In rounds: write temporary files, flush all of them, rename all of them. At the end each directory, once. */
static void write_rounds(job *job, int threads) {
    z_pending pending[ROUND] = {0};
    const int64_t items = job->plan->items, *firsts = job->first_units;
    void (*write)(z_job *, int64_t, z_context *) = job->job.work;
    job->pending = pending;
    for (int64_t to; job->first < items && !atomic_load(&job->job.stop); job->first = to) {
        to = job->first + ROUND < items ? job->first + ROUND : items;
        job->first_unit = firsts ? firsts[job->first] : job->first;
        run_phase(job, (firsts ? firsts[to] : to) - job->first_unit, threads, write);
        run_phase(job, to - job->first, threads, flush_unit);
        run_phase(job, to - job->first, threads, place_unit);
        for (int64_t k = 0; k < to - job->first; k++) {
            if (pending[k].path && !pending[k].name && !note_folders(job, pending[k].path)) job->unsynced = true;
            z_drop(&pending[k]);
        }
    }
    job->job.interrupted = never; /* what has its name is to last, also after an interrupt */
    atomic_store(&job->job.stop, false);
    run_phase(job, job->nfolders, threads, folder_unit);
    if (atomic_load(&job->job.no_memory)) job->unsynced = true; /* some may have been passed over */
    for (int64_t k = 0; job->unsynced && k < items; k++)
        if (job->statuses[k] == Z_OK) job->statuses[k] = Z_FAILED;
    for (int64_t k = 0; k < job->nfolders; k++) free(job->folders[k]);
    free(job->folders);
    job->pending = NULL;
}

/* -- running ------------------------------------------------------------------------------------------------------ */

static bool prepare_shards(job *job) {
    const plan *plan = job->plan;
    int64_t inner = plan->program.chain.itemsize;
    for (int k = 0; k < plan->program.chain.ndim; k++)
        if (!times(&inner, plan->program.inner[k])) inner = Z_MOST;
    job->per_unit = UNIT / inner < 1 ? 1 : UNIT / inner > UNIT_MOST ? UNIT_MOST : UNIT / inner;
    job->shards = calloc((size_t)plan->items + 1, sizeof *job->shards);
    job->first_units = malloc((size_t)(plan->items + 1) * sizeof *job->first_units);
    if (!job->shards || !job->first_units) return false;
    int64_t units = 0, groups[Z_DIMS];
    item item;
    for (int64_t k = 0; k < plan->items; k++) {
        locate(plan, k, groups, &item);
        int64_t count = 1;
        for (int d = 0; d < plan->naxes; d++) {
            int64_t here = plan->axes[d].groups[groups[d] + 1] - plan->axes[d].groups[groups[d]];
            if (!times(&count, here)) return false;
        }
        job->first_units[k] = units;
        units += (count + job->per_unit - 1) / job->per_unit;
        if (units > Z_MOST) return false;
        atomic_init(&job->shards[k].left, units - job->first_units[k]);
        job->shards[k].fd = -1;
    }
    job->first_units[plan->items] = units;
    job->job.units = units;
    return true;
}

/* All units; returns how many items did not end well, or -1 with an error. */
static int64_t carry_out(job *job, int threads, void (*plain)(z_job *, int64_t, z_context *),
                         void (*sharded)(z_job *, int64_t, z_context *)) {
    plan *plan = job->plan;
    if (plan->too_large) { /* before anything is worked out from such sizes */
        memset(job->statuses, Z_DECLINED, (size_t)plan->items);
        return plan->items;
    }
    memset(job->statuses, Z_NOT_BEGUN, (size_t)plan->items);
    job->job.units = plan->items;
    job->job.work = plan->program.sharded ? sharded : plain;
    job->job.interrupted = look_for_signals;
    job->job.arg = job;
    if (plan->program.sharded && !prepare_shards(job)) {
        PyErr_NoMemory();
        return -1;
    }
    if (plan->decoded <= INLINE) threads = 1;
    job->saved = PyEval_SaveThread();
    if (job->flags & FLAG_SYNC) write_rounds(job, threads);
    else z_run(&job->job, threads);
    for (int64_t k = 0; job->shards && k < plan->items; k++) { /* those that were not finished, after an interrupt */
        close_shard(&job->shards[k]);
        free_pieces(&job->shards[k], job->shards[k].size);
    }
    int64_t bad = 0;
    for (int64_t k = 0; k < plan->items; k++) bad += job->statuses[k] != Z_OK;
    PyEval_RestoreThread(job->saved);
    return PyErr_Occurred() ? -1 : bad;
}

int64_t z_read_plan(job *job, int threads) { return carry_out(job, threads, read_unit, read_shard_unit); }

static bool take_statuses(plan *plan, PyObject *given, uint8_t **into) {
    Py_buffer *found = view(plan, given, PyBUF_WRITABLE);
    if (!found) return false;
    if (found->len < plan->items) {
        PyErr_SetString(PyExc_ValueError, "there are fewer statuses than items");
        return false;
    }
    *into = found->buf;
    return true;
}

void z_release(job *job) {
    free(job->shards);
    free(job->first_units);
}

static void free_job(job *job) {
    z_release(job);
    free_plan(job->plan);
    free(job);
}

static PyObject *read_files(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *base, *pieces, *axes, *code, *work, *statuses;
    int follow, fill, threads;
    if (!PyArg_ParseTuple(args, "SO!pO!OOOpi", &base, &PyTuple_Type, &pieces, &follow, &PyTuple_Type, &axes, &code, &work,
                          &statuses, &fill, &threads))
        return NULL;
    job *made = calloc(1, sizeof *made);
    if (!made) return PyErr_NoMemory();
    if (!(made->plan = parse_plan(axes, code, work, true, false))) {
        free(made);
        return NULL;
    }
    made->fill_missing = fill;
    int64_t bad = -1;
    if (z_parse_place(&made->place, base, pieces, made->plan->program.chain.ndim) &&
        take_statuses(made->plan, statuses, &made->statuses)) {
        made->place.follow = follow;
        bad = z_read_plan(made, threads);
    }
    free_job(made);
    return bad < 0 ? NULL : PyLong_FromLongLong(bad);
}

static PyObject *decode(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *values, *axes, *code, *work, *statuses;
    int fill, threads;
    if (!PyArg_ParseTuple(args, "O!O!OOOpi", &PyList_Type, &values, &PyTuple_Type, &axes, &code, &work, &statuses, &fill,
                          &threads))
        return NULL;
    job *made = calloc(1, sizeof *made);
    if (!made) return PyErr_NoMemory();
    if (!(made->plan = parse_plan(axes, code, work, true, false))) {
        free(made);
        return NULL;
    }
    int64_t bad = -1, items = made->plan->items, taken = 0;
    place *place = &made->place;
    made->fill_missing = fill;
    place->values = calloc((size_t)items + 1, sizeof *place->values);
    place->present = calloc((size_t)items + 1, 1);
    if (!place->values || !place->present) {
        PyErr_NoMemory();
    } else if (PyList_Size(values) != items) {
        PyErr_SetString(PyExc_ValueError, "there is not one value for each item");
    } else if (take_statuses(made->plan, statuses, &made->statuses)) {
        for (; taken < items; taken++) {
            /* A reference of its own: to ask for a buffer may run code, which may change the list. */
            PyObject *value = PySequence_GetItem(values, taken);
            if (!value) break;
            if (value != Py_None) place->present[taken] = !PyObject_GetBuffer(value, &place->values[taken], PyBUF_SIMPLE);
            bool good = value == Py_None || place->present[taken];
            Py_DECREF(value);
            if (!good) break;
        }
        if (taken == items) bad = z_read_plan(made, threads);
    }
    for (int64_t k = 0; k < taken; k++)
        if (place->present[k]) PyBuffer_Release(&place->values[k]);
    free(place->values);
    free(place->present);
    free_job(made);
    return bad < 0 ? NULL : PyLong_FromLongLong(bad);
}

static PyObject *write_files(PyObject *self, PyObject *args) {
    (void)self;
    static const char BAD_FOLDER[] = "the name of temporary files or the length of the folder is not right";
    static atomic_llong numbers;
    PyObject *base, *pieces, *axes, *code, *work, *statuses;
    const char *temporary;
    Py_ssize_t folder;
    int follow, flags, threads;
    if (!PyArg_ParseTuple(args, "SO!npyO!OOOii", &base, &PyTuple_Type, &pieces, &folder, &follow, &temporary, &PyTuple_Type,
                          &axes, &code, &work, &statuses, &flags, &threads))
        return NULL;
    job *made = calloc(1, sizeof *made);
    if (!made) return PyErr_NoMemory();
    if (!(made->plan = parse_plan(axes, code, work, false, flags & FLAG_PAD))) {
        free(made);
        return NULL;
    }
    made->flags = flags;
    made->temporary = temporary;
    made->numbers = &numbers;
    int64_t bad = -1;
    if (strlen(temporary) > 200 || strchr(temporary, '/') || folder < 1) {
        PyErr_SetString(PyExc_ValueError, BAD_FOLDER);
    } else if (z_parse_place(&made->place, base, pieces, made->plan->program.chain.ndim) &&
               take_statuses(made->plan, statuses, &made->statuses)) {
        made->place.follow = follow;
        made->place.folder = (size_t)folder;
        if (made->place.folder > made->place.base_size) PyErr_SetString(PyExc_ValueError, BAD_FOLDER);
        else bad = carry_out(made, threads, write_unit, write_shard_unit);
    }
    free_job(made);
    return bad < 0 ? NULL : PyLong_FromLongLong(bad);
}

static PyObject *encode(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *axes, *code, *work, *statuses, *found = NULL;
    int flags, threads;
    if (!PyArg_ParseTuple(args, "O!OOOii", &PyTuple_Type, &axes, &code, &work, &statuses, &flags, &threads)) return NULL;
    job *made = calloc(1, sizeof *made);
    if (!made) return PyErr_NoMemory();
    if (!(made->plan = parse_plan(axes, code, work, false, flags & FLAG_PAD))) {
        free(made);
        return NULL;
    }
    int64_t items = made->plan->items;
    made->flags = flags;
    made->results = calloc((size_t)items + 1, sizeof *made->results);
    if (!made->results) PyErr_NoMemory();
    else if (take_statuses(made->plan, statuses, &made->statuses) &&
             carry_out(made, threads, write_unit, write_shard_unit) >= 0 && (found = PyList_New(items))) {
        for (int64_t k = 0; k < items; k++) {
            z_piece *piece = &made->results[k];
            PyObject *value = piece->at ? PyBytes_FromStringAndSize((const char *)piece->at, piece->size) : Py_None;
            if (!value) {
                Py_DECREF(found);
                found = NULL;
                break;
            }
            if (value == Py_None) Py_INCREF(value);
            PyList_SetItem(found, k, value);
            free((void *)piece->at); /* one by one: not everything twice */
            piece->at = NULL;
        }
    }
    for (int64_t k = 0; made->results && k < items; k++) free((void *)made->results[k].at);
    free(made->results);
    free_job(made);
    return found;
}

/* -- the module --------------------------------------------------------------------------------------------------- */

static PyObject *bind(PyObject *self, PyObject *args) {
    (void)self;
    const char *name;
    unsigned long long address;
    if (!PyArg_ParseTuple(args, "sK", &name, &address)) return NULL;
    return PyBool_FromLong(z_bind(name, (void *)(uintptr_t)address));
}

static PyObject *can(PyObject *self, PyObject *args) {
    (void)self;
    z_codec codec = {0};
    long long id;
    if (!PyArg_ParseTuple(args, "L", &id)) return NULL;
    codec.id = id;
    return PyBool_FromLong(z_can(&codec));
}

static PyObject *crc32c(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer value;
    if (!PyArg_ParseTuple(args, "y*", &value)) return NULL;
    uint32_t sum = z_crc32c(0, value.buf, (size_t)value.len);
    PyBuffer_Release(&value);
    return PyLong_FromUnsignedLong(sum);
}

static PyObject *has_no_links(PyObject *self, PyObject *path) {
    (void)self;
    const char *at = PyBytes_AsString(path);
    return at ? PyBool_FromLong(z_has_no_links(at)) : NULL;
}

/* A whole value with the inode and the time of its file; False if it is missing, None if the plain path has to look. */
static PyObject *read_file(PyObject *self, PyObject *path) {
    (void)self;
    PyObject *encoded, *value = NULL, *found = NULL;
    struct stat info;
    if (!PyUnicode_FSConverter(path, &encoded)) return NULL;
    int error, fd = z_open(PyBytes_AsString(encoded), false, &error);
    Py_DECREF(encoded);
    if (fd < 0) return z_is_missing(error) ? PyBool_FromLong(0) : Py_NewRef(Py_None);
    bool good = !fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size <= Z_MOST;
    if (good && (value = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)info.st_size))) {
        uint8_t *at = (uint8_t *)PyBytes_AsString(value), more;
        Py_BEGIN_ALLOW_THREADS /* longer than it said is for the plain path, too */
        good = !z_pread(fd, at, (int64_t)info.st_size, 0) && z_pread(fd, &more, 1, (int64_t)info.st_size) == Z_DAMAGED;
        Py_END_ALLOW_THREADS
        long long time = (long long)info.st_mtime * 1000000000 + NANOSECONDS(&info, m);
        if (good) found = Py_BuildValue("OKL", value, (unsigned long long)info.st_ino, time);
    }
    close(fd);
    Py_XDECREF(value);
    return found || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

static PyObject *pool_size(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyLong_FromLong(z_pool_size());
}

static PyMethodDef methods[] = {
    {"read_files", read_files, METH_VARARGS, "Read, decode and scatter the chunks of a plan that are files."},
    {"decode", decode, METH_VARARGS, "Decode and scatter the chunks of a plan that are in memory."},
    {"write_files", write_files, METH_VARARGS, "Gather, encode and write the whole chunks of a plan to files."},
    {"encode", encode, METH_VARARGS, "Gather and encode the whole chunks of a plan."},
    {"bind", bind, METH_VARARGS, "Hand over the address of a function of a compression library."},
    {"can", can, METH_VARARGS, "Whether the library of a codec was handed over."},
    {"crc32c", crc32c, METH_VARARGS, "The CRC-32C of some bytes."},
    {"has_no_links", has_no_links, METH_O, "Whether an absolute path leads somewhere without any symbolic link."},
    {"read_file", read_file, METH_O, "A file's content, inode and time; False if it is missing, None if that is unsure."},
    {"pool_size", pool_size, METH_NOARGS, "How many threads are kept."},
    {NULL, NULL, 0, NULL},
};

static int setup(PyObject *module) {
    z_pool_setup(make_locks);
    PyObject *type = PyType_FromModuleAndSpec(module, &z_reader_spec, NULL);
    int failed = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;
    Py_XDECREF(type);
    return failed;
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, setup},
#ifdef Z_FREE_THREADED
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "zellige.kernel._native",
    .m_doc = "Batches of chunks, without the interpreter.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__native(void) { return PyModuleDef_Init(&definition); }
