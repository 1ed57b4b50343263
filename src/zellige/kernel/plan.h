/* Plans: what is read or written along each axis, and the job that carries one out. Shared by module.c, which takes
 * plans from Python, and reader.c, which makes them.
 */
#ifndef ZELLIGE_PLAN_H
#define ZELLIGE_PLAN_H

#ifndef Z_FREE_THREADED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel.h"

#include <sys/stat.h>

#define INLINE (256 << 10) /* decoded bytes for which no other thread is woken */

#ifdef __APPLE__
#define NANOSECONDS(info, which) ((info)->st_##which##timespec.tv_nsec)
#else
#define NANOSECONDS(info, which) ((info)->st_##which##tim.tv_nsec)
#endif

typedef struct {
    z_chain chain; /* of the chunks that the plan is about; with shards, of the inner ones */
    bool sharded, at_start, index_crc;
    int64_t inner[Z_DIMS]; /* the shape of inner chunks */
    const uint8_t *fill;
} program;

/* One axis of the work array. A row is what one chunk gives along it: for each of the array's axes that it stands for
 * (several for points) the chunk's number and size, with shards those of the shard and then of the inner chunk; then
 * start, step, count, place. With step 0 the positions are listed, from `start` on. */
typedef struct {
    int axes[Z_DIMS], naxes;
    int64_t count, width;
    const int64_t *rows;
    const int64_t *positions, *places;
    int64_t npositions;
    int64_t ngroups, *groups; /* of rows that lie in one shard; without shards each row by itself */
    bool *whole;              /* for each group: whether it is all of the chunks, or shards, along this axis */
} axis;

typedef struct {
    int naxes;
    axis axes[Z_DIMS];
    int64_t items;
    Py_buffer views[3 * Z_DIMS + 3];
    int nviews;
    Py_buffer *work;
    program program;
    bool too_large; /* some chunk is: all items are declined */
    int64_t decoded; /* about how many bytes all chunks have */
} plan;

/* Where encoded bytes are. */
typedef struct {
    const char *base; /* of paths; NULL if values are in memory */
    size_t base_size, folder; /* how much of a path is a directory that exists */
    int npieces;
    const char *pieces[Z_DIMS + 1]; /* of keys, around the numbers */
    size_t sizes[Z_DIMS + 1];
    bool follow;
    Py_buffer *values; /* in memory; those without a buffer are missing */
    bool *present;
} place;

/* The index of a shard, as it is stored. It is shared, so it never changes once it was checked. */
typedef struct {
    atomic_int users;
    int64_t bytes;
    struct stat file; /* what it was read from */
    uint8_t at[];
} z_index;

#define Z_KEPT 64

/* Indexes that are kept, each in the place that the numbers of its shard give it. */
typedef struct {
    z_index *kept[Z_KEPT];
    int64_t bytes;
} z_indexes;

z_index *z_new_index(int64_t bytes); /* NULL if there is no memory */
void z_drop_index(z_index *index);   /* by one of its users */
z_index *z_find_index(z_indexes *among, const int64_t *numbers, int ndim, const struct stat *info, int64_t bytes);
void z_keep_index(z_indexes *among, z_index *index, const int64_t *numbers, int ndim, const struct stat *info);
void z_forget_indexes(z_indexes *among); /* when nobody uses them any more */
void z_make_index_lock(void);

/* A shard that is being read, or written. */
typedef struct {
    atomic_int state; /* 0: not opened, 1: open, 2: missing, 3: not readable */
    atomic_int status;
    atomic_llong left; /* units that are not done */
    int fd;
    const uint8_t *at; /* the value, where it is in memory */
    int64_t size;
    z_index *index;
    z_piece *pieces; /* encoded inner chunks */
} shard;

typedef struct job {
    z_job job; /* first, so that one is the other */
    plan *plan;
    place place;
    uint8_t *statuses;
    bool fill_missing;
    z_indexes *indexes; /* of a reader; NULL for others */
    int flags;
    const char *temporary;
    atomic_llong *numbers; /* of temporary files */
    shard *shards;
    int64_t *first_units; /* of each shard, and the end */
    int64_t per_unit;
    z_piece *results; /* of encode; NULL if values go to files */
    /* Writes that are to survive a power cut: */
    z_pending *pending;           /* of the items of a round; NULL for other writes */
    int64_t first, first_unit;    /* the item and the unit that a round begins with */
    char **folders;               /* that got a name, or may have been made; a few may be named twice */
    int64_t nfolders, most_folders;
    atomic_bool unsynced;         /* a directory could not be synchronised */
    PyThreadState *saved;
} job;

bool z_parse_program(const uint8_t *at, int64_t size, program *into); /* false if it is not one; `at` has to stay */
bool z_parse_place(place *place, PyObject *base, PyObject *pieces, int ndim); /* false with an error; both have to stay */
/* Read all items of a plan; returns how many did not end well, or -1 with an error. */
int64_t z_read_plan(job *job, int threads);
void z_release(job *job); /* what `z_read_plan` has taken */
extern PyType_Spec z_reader_spec;

static inline bool times(int64_t *value, int64_t factor) {
    return !__builtin_mul_overflow(*value, factor, value) && *value <= Z_MOST;
}

#endif
