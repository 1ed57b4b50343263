/* A prepared reader: integers and plain slices of an array whose chunks are files, from the index to the result.
 *
 * What does not change between reads is checked once, when a reader is made. A read takes an index apart, works out the
 * rows of a plan for each axis, lets numpy make the result, and carries the plan out like any other. It declines with
 * None what it does not know, and everything that does not end well: then Python reads all of it again by the path that
 * knows every index and names what is wrong. A reader never changes, but for a flag and the indexes of shards that it keeps;
 * so threads share it.
 */
#include "plan.h"

#include <stdlib.h>
#include <string.h>

#define MOST_ROWS ((int64_t)1 << 20) /* along an axis, and chunks or shards in all; what touches more is declined */
#define ON_STACK 512                 /* 64-bit integers of rows and groups for which no memory is taken */
#define LARGE (64 << 10)             /* bytes of results that the second function makes, as io.results does */
#define OPENING (8 << 10)            /* to open a file takes about as long as to read so many bytes */

/* Chunks of one size side by side. */
typedef struct {
    int64_t start, first, size; /* its first element; the number of its first chunk */
} run;

typedef struct {
    int64_t extent, nruns;
    run *runs; /* and one more, where the last one ends */
} edges;

typedef struct {
    PyObject_HEAD
    program program;
    place place;
    bool fill;
    edges axes[Z_DIMS];
    z_indexes indexes;    /* of shards, kept for the next read */
    atomic_bool given_up; /* what is stored is not for the kernel: trying again would only cost time */
    PyObject *base, *pieces, *code; /* where program and place point to */
    PyObject *threads, *empty, *large, *dtype;
} reader;

/* What an index picks along an axis. */
typedef struct {
    int64_t start, step, count;
    bool kept; /* whether the axis is one of the result, too */
} pick;

/* -- making ------------------------------------------------------------------------------------------------------- */

static const int64_t *numbers_of(PyObject *from, Py_buffer *view) {
    if (PyObject_GetBuffer(from, view, PyBUF_SIMPLE)) return NULL;
    if (view->len >= 16 && view->len % 8 == 0 && (uintptr_t)view->buf % 8 == 0) return view->buf;
    PyErr_SetString(PyExc_ValueError, "edges are two buffers of 64-bit integers, at least two in each");
    PyBuffer_Release(view);
    return NULL;
}

/* Whether runs of chunks follow each other from 0 on and reach the end of the axis; with shards, of whole inner chunks. */
static bool take_runs(edges *into, const int64_t *starts, const int64_t *firsts, int64_t nruns, int64_t inner) {
    for (int64_t k = 0; k < nruns; k++) {
        if (starts[k] < 0 || starts[k + 1] <= starts[k] || starts[k + 1] > Z_MOST) return false;
        if (firsts[k] < 0 || firsts[k + 1] <= firsts[k] || firsts[k + 1] > Z_MOST) return false;
        int64_t length = starts[k + 1] - starts[k], count = firsts[k + 1] - firsts[k];
        if (length % count || (inner && length / count % inner)) return false;
        into->runs[k] = (run){starts[k], firsts[k], length / count};
    }
    into->runs[nruns] = (run){starts[nruns], firsts[nruns], 1};
    into->nruns = nruns;
    return !starts[0] && !firsts[0] && into->extent >= 0 && into->extent <= starts[nruns];
}

static bool parse_edges(edges *into, PyObject *extent, PyObject *given, int64_t inner) {
    PyObject *starts, *firsts;
    if (!PyTuple_Check(given) || !PyArg_ParseTuple(given, "OO", &starts, &firsts)) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "edges are a tuple of two buffers");
        return false;
    }
    into->extent = PyLong_AsLongLong(extent);
    if (into->extent == -1 && PyErr_Occurred()) return false;
    Py_buffer one, two;
    const int64_t *at = numbers_of(starts, &one), *numbers;
    if (!at) return false;
    bool good = (numbers = numbers_of(firsts, &two)) != NULL;
    if (good) {
        int64_t count = one.len / 8;
        good = one.len == two.len;
        if (good && !(into->runs = malloc((size_t)count * sizeof *into->runs))) {
            PyErr_NoMemory();
            good = false;
        }
        good = good && take_runs(into, at, numbers, count - 1, inner);
        if (!good && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the edges of an axis do not fit");
        PyBuffer_Release(&two);
    }
    PyBuffer_Release(&one);
    return good;
}

static bool prepare(reader *made, PyObject *shape, PyObject *axes) {
    char *code;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(made->code, &code, &size)) return false;
    if (!z_parse_program((const uint8_t *)code, size, &made->program)) {
        PyErr_SetString(PyExc_ValueError, "the program is not one that this kernel knows");
        return false;
    }
    int ndim = made->program.chain.ndim;
    bool follow = made->place.follow;
    if (!z_parse_place(&made->place, made->base, made->pieces, ndim)) return false;
    made->place.follow = follow;
    if (PyTuple_Size(shape) != ndim || PyTuple_Size(axes) != ndim) {
        PyErr_SetString(PyExc_ValueError, "the shape or the edges have not as many axes as the program");
        return false;
    }
    for (int d = 0; d < ndim; d++) {
        int64_t inner = made->program.sharded ? made->program.inner[d] : 0;
        if (!parse_edges(&made->axes[d], PyTuple_GetItem(shape, d), PyTuple_GetItem(axes, d), inner)) return false;
    }
    if (PyCallable_Check(made->threads) && PyCallable_Check(made->empty) && PyCallable_Check(made->large)) return true;
    PyErr_SetString(PyExc_TypeError, "threads and what makes results are functions");
    return false;
}

static PyObject *make(PyTypeObject *type, PyObject *args, PyObject *options) {
    PyObject *base, *pieces, *code, *shape, *axes, *threads, *empty, *large, *dtype;
    int follow, fill;
    if (options && PyDict_Size(options)) {
        PyErr_SetString(PyExc_TypeError, "a reader has no arguments with names");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "SO!pSO!O!pOOOO", &base, &PyTuple_Type, &pieces, &follow, &code, &PyTuple_Type, &shape,
                          &PyTuple_Type, &axes, &fill, &threads, &empty, &large, &dtype))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    reader *made = (reader *)alloc(type, 0); /* all zero */
    if (!made) return NULL;
    made->fill = fill;
    made->place.follow = follow;
    Py_INCREF(made->base = base);
    Py_INCREF(made->pieces = pieces);
    Py_INCREF(made->code = code);
    Py_INCREF(made->threads = threads);
    Py_INCREF(made->empty = empty);
    Py_INCREF(made->large = large);
    Py_INCREF(made->dtype = dtype);
    if (prepare(made, shape, axes)) return (PyObject *)made;
    Py_DECREF(made);
    return NULL;
}

static int traverse(PyObject *self, visitproc visit, void *arg) {
    reader *reader = (void *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(reader->pieces);
    Py_VISIT(reader->threads);
    Py_VISIT(reader->empty);
    Py_VISIT(reader->large);
    Py_VISIT(reader->dtype);
    return 0;
}

/* There is no tp_clear: like a tuple, a reader stays whole as long as somebody can use it. */
static void dealloc(PyObject *self) {
    reader *reader = (void *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    for (int d = 0; d < Z_DIMS; d++) free(reader->axes[d].runs);
    z_forget_indexes(&reader->indexes);
    Py_XDECREF(reader->base);
    Py_XDECREF(reader->pieces);
    Py_XDECREF(reader->code);
    Py_XDECREF(reader->threads);
    Py_XDECREF(reader->empty);
    Py_XDECREF(reader->large);
    Py_XDECREF(reader->dtype);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* -- from an index to rows ---------------------------------------------------------------------------------------- */

enum { DECLINES = 0, GOOD = 1, FAILS = -1 }; /* the last with an error */

static int parse_entry(PyObject *entry, int64_t extent, pick *into) {
    if (PyLong_CheckExact(entry)) {
        int overflow;
        int64_t at = PyLong_AsLongLongAndOverflow(entry, &overflow);
        if (overflow) return DECLINES;
        if (at < 0) at += extent;
        *into = (pick){at, 1, 1, false};
        return at >= 0 && at < extent ? GOOD : DECLINES;
    }
    if (!PySlice_Check(entry)) return DECLINES;
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(entry, &start, &stop, &step)) { /* which may call `__index__`, and fail like that */
        if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_ValueError)) return FAILS;
        PyErr_Clear();
        return DECLINES;
    }
    if (step < 1) return DECLINES;
    int64_t count = PySlice_AdjustIndices((Py_ssize_t)extent, &start, &stop, step);
    *into = (pick){start, step, count, true};
    return count > 0 ? GOOD : DECLINES;
}

/* What is picked along each axis; `dots` is whether there is a `...`, without which numpy makes scalars. */
static int parse_index(const reader *reader, PyObject *index, pick *picks, bool *dots) {
    int ndim = reader->program.chain.ndim, d = 0;
    bool many = PyTuple_CheckExact(index);
    Py_ssize_t n = many ? PyTuple_Size(index) : 1;
    *dots = false;
    for (Py_ssize_t k = 0; k <= n; k++) {
        PyObject *entry = k == n ? Py_Ellipsis : many ? PyTuple_GetItem(index, k) : index;
        if (entry == Py_Ellipsis) {
            if (k == n && *dots) break; /* else all axes that are left, as if it were written there */
            Py_ssize_t end = k == n ? ndim : ndim - (n - k - 1);
            if (*dots || end < d) return DECLINES;
            if (k < n) *dots = true;
            for (; d < end; d++) {
                picks[d] = (pick){0, 1, reader->axes[d].extent, true};
                if (!picks[d].count) return DECLINES;
            }
            continue;
        }
        if (d == ndim) return DECLINES;
        int found = parse_entry(entry, reader->axes[d].extent, &picks[d]);
        if (found != GOOD) return found;
        d++;
    }
    return d == ndim ? GOOD : DECLINES;
}

static int64_t run_of(const edges *axis, int64_t at) {
    int64_t low = 0, high = axis->nruns;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (axis->runs[middle].start <= at) low = middle;
        else high = middle;
    }
    return low;
}

static int64_t chunk_of(const edges *axis, int64_t at) {
    const run *run = &axis->runs[run_of(axis, at)];
    return run->first + (at - run->start) / run->size;
}

static int64_t last_of(const pick *pick) { return pick->start + (pick->count - 1) * pick->step; }

/* How many rows there are at most. */
static int64_t most_rows(const edges *axis, const pick *pick, int64_t inner) {
    int64_t from = pick->start, to = last_of(pick);
    int64_t rows = 1 + (inner ? to / inner - from / inner : chunk_of(axis, to) - chunk_of(axis, from));
    return rows < pick->count ? rows : pick->count;
}

/* The rows of an axis, see plan.h: one for each chunk that is touched, or inner chunk, in groups for each shard. */
static void fill_rows(const edges *edges, const pick *pick, int64_t inner, axis *into, int64_t *rows, int64_t *groups) {
    int64_t at = pick->start, stop = last_of(pick) + 1, done = 0, count = 0, ngroups = 0, before = -1;
    const run *run = &edges->runs[run_of(edges, at)];
    into->rows = rows;
    into->groups = groups;
    while (at < stop) {
        while (run[1].start <= at) run++;
        int64_t number = (at - run->start) / run->size, start = run->start + number * run->size, size = run->size;
        number += run->first;
        if (number != before || !inner) groups[ngroups++] = count;
        before = number;
        *rows++ = number, *rows++ = size;
        if (inner) {
            int64_t within = (at - start) / inner;
            start += within * inner, size = inner;
            *rows++ = within, *rows++ = inner;
        }
        int64_t end = start + size < stop ? start + size : stop;
        int64_t here = (end - 1 - at) / pick->step + 1;
        *rows++ = at - start, *rows++ = pick->step, *rows++ = here, *rows++ = done;
        done += here;
        count++;
        if (done == pick->count) break; /* before a long step leaves the range of integers */
        at += here * pick->step;
    }
    groups[ngroups] = count;
    into->count = count;
    into->ngroups = ngroups;
}

/* -- reading ------------------------------------------------------------------------------------------------------ */

/* A result of the shape that the picks have; NULL with an error. */
static PyObject *make_result(const reader *reader, const pick *picks, int64_t nbytes, Py_buffer *view) {
    int ndim = reader->program.chain.ndim, kept = 0;
    for (int d = 0; d < ndim; d++) kept += picks[d].kept;
    PyObject *shape = PyTuple_New(kept);
    if (!shape) return NULL;
    for (int d = 0, k = 0; d < ndim; d++)
        if (picks[d].kept) {
            PyObject *length = PyLong_FromLongLong(picks[d].count);
            if (!length || PyTuple_SetItem(shape, k++, length)) {
                Py_DECREF(shape);
                return NULL;
            }
        }
    PyObject *maker = nbytes < LARGE ? reader->empty : reader->large;
    PyObject *made = PyObject_CallFunctionObjArgs(maker, shape, reader->dtype, NULL);
    Py_DECREF(shape);
    if (!made) return NULL;
    if (!PyObject_GetBuffer(made, view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) {
        if (view->len == nbytes && view->itemsize == reader->program.chain.itemsize) return made;
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_ValueError, "what was made for the result has another size");
    }
    Py_DECREF(made);
    return NULL;
}

static int threads_for(const reader *reader, const plan *plan) {
    if (plan->decoded <= INLINE) return 1;
    PyObject *found = PyObject_CallNoArgs(reader->threads);
    if (!found) return -1;
    long threads = PyLong_AsLong(found);
    Py_DECREF(found);
    if (threads == -1 && PyErr_Occurred()) return -1;
    return threads < 1 ? 1 : threads > 1024 ? 1024 : (int)threads;
}

/* About how many bytes are read from uncompressed chunks: those between the first and the last one that is wanted. */
static int64_t touched(const plan *plan, const pick *picks) {
    const z_chain *chain = &plan->program.chain;
    int64_t bytes = chain->itemsize, all = bytes;
    for (int k = chain->ndim - 1; k >= 0; k--) { /* from the axis along which elements lie closest */
        const pick *pick = &picks[chain->order[k]];
        int64_t size = plan->axes[chain->order[k]].rows[1], span = last_of(pick) - pick->start + 1;
        if (span > 1) {
            bytes = all;
            if (!times(&bytes, span < size ? span : size)) return Z_MOST;
        }
        if (!times(&all, size)) return Z_MOST;
    }
    bytes += OPENING;
    return times(&bytes, plan->items) ? bytes : Z_MOST;
}

/* Carry a plan out; a new reference to None if it did not end well. */
static PyObject *carry(reader *reader, plan *plan, const pick *picks, int64_t nbytes, uint8_t *statuses, bool scalar) {
    Py_buffer made, work = {0};
    Py_ssize_t strides[Z_DIMS], stride = (Py_ssize_t)plan->program.chain.itemsize;
    int threads = threads_for(reader, plan);
    PyObject *result = threads < 0 ? NULL : make_result(reader, picks, nbytes, &made);
    if (!result) return NULL;
    for (int d = plan->naxes - 1; d >= 0; d--) { /* of all axes: those that the result has not are 1 long */
        strides[d] = stride;
        stride *= (Py_ssize_t)picks[d].count;
    }
    work.buf = made.buf;
    work.strides = strides;
    plan->work = &work;
    job job = {.plan = plan, .place = reader->place, .statuses = statuses, .fill_missing = reader->fill};
    job.indexes = &reader->indexes;
    int64_t bad = z_read_plan(&job, threads);
    z_release(&job);
    PyBuffer_Release(&made);
    if (!bad && !scalar) return result;
    PyObject *found = NULL;
    if (!bad) {
        PyObject *all = PyTuple_New(0);
        found = all ? PyObject_GetItem(result, all) : NULL;
        Py_XDECREF(all);
    } else if (bad > 0) {
        for (int64_t k = 0; k < plan->items; k++)
            if (statuses[k] == Z_DECLINED || statuses[k] == Z_FAILED) atomic_store(&reader->given_up, true);
        Py_INCREF(found = Py_None);
    }
    Py_DECREF(result);
    return found;
}

static PyObject *read_index(PyObject *self, PyObject *index) {
    reader *reader = (void *)self;
    const program *program = &reader->program;
    int ndim = program->chain.ndim, width = program->sharded ? 8 : 6;
    pick picks[Z_DIMS];
    bool dots, kept = false;
    if (atomic_load_explicit(&reader->given_up, memory_order_relaxed)) Py_RETURN_NONE;
    int found = parse_index(reader, index, picks, &dots);
    if (found == FAILS) return NULL;
    if (found == DECLINES) Py_RETURN_NONE;
    int64_t nbytes = program->chain.itemsize, rows[Z_DIMS], words = 0;
    for (int d = 0; d < ndim; d++) {
        rows[d] = most_rows(&reader->axes[d], &picks[d], program->inner[d]);
        if (rows[d] > MOST_ROWS || !times(&nbytes, picks[d].count)) Py_RETURN_NONE;
        words += rows[d] * (width + 1) + 1;
        kept = kept || picks[d].kept;
    }
    int64_t few[ON_STACK], *memory = words <= ON_STACK ? few : malloc((size_t)words * sizeof *memory), *next = memory;
    if (!memory) Py_RETURN_NONE;
    plan plan; /* of which only what is used is set: it is large */
    plan.naxes = ndim;
    plan.items = 1;
    plan.nviews = 0;
    plan.program = *program;
    plan.too_large = false; /* a reader has no such axes */
    plan.decoded = program->chain.itemsize;
    for (int d = 0; d < ndim; d++) {
        axis *axis = &plan.axes[d];
        axis->axes[0] = d, axis->naxes = 1;
        axis->width = width;
        axis->positions = axis->places = NULL, axis->npositions = 0;
        axis->whole = NULL; /* which only those who write look at */
        fill_rows(&reader->axes[d], &picks[d], program->inner[d], axis, next, next + rows[d] * width);
        next += rows[d] * (width + 1) + 1;
        if (!times(&plan.items, axis->ngroups)) plan.items = Z_MOST;
        int64_t size = axis->rows[program->sharded ? 3 : 1];
        if (!times(&plan.decoded, size) || !times(&plan.decoded, axis->count)) plan.decoded = Z_MOST;
    }
    if (!program->sharded && !program->chain.ncodecs) plan.decoded = touched(&plan, picks);
    uint8_t one, *statuses = plan.items == 1 ? &one : plan.items > MOST_ROWS ? NULL : malloc((size_t)plan.items);
    PyObject *result = NULL;
    if (statuses) result = carry(reader, &plan, picks, nbytes, statuses, !kept && !dots);
    else Py_INCREF(result = Py_None);
    if (statuses != &one) free(statuses);
    if (memory != few) free(memory);
    return result;
}

/* -- the type ----------------------------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
    {"read", read_index, METH_O, "What an index picks, or None if that is for another to read."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "An array whose chunks are files, prepared for reading by integers and plain slices."},
    {Py_tp_new, make},
    {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec z_reader_spec = {
    .name = "zellige.kernel._native.Reader",
    .basicsize = sizeof(reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
