/* The kernel: reads, decodes, encodes and writes batches of chunks without the interpreter.
 *
 * The contract, for every entry point:
 *   - It trusts nothing. Tables, programs, encoded bytes and shard indexes are checked before any memory is
 *     touched by them; sizes are bounded so that sums and products of 64-bit integers cannot overflow.
 *   - It never explains. Each item ends with a status; whatever is not Z_OK is looked at again by the plain Python
 *     path, which knows every codec and names what is wrong.
 *   - No function of the interpreter is called while its lock is released.
 *   - Buffers must not change during a call, and the work array overlaps no other buffer: what was checked is not
 *     checked again.
 *
 * Files: pool.c (threads), codecs.c (bytes to bytes), copy.c (between chunks and the work array), files.c (paths and
 * files), plan.h and module.c (what Python sees: arguments, plans, entry points), reader.c (an array prepared for plain
 * indices), indexes.c (of shards, which a reader keeps).
 */
#ifndef ZELLIGE_KERNEL_H
#define ZELLIGE_KERNEL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define Z_DIMS 32            /* numpy's limit in older versions; more axes are declined */
#define Z_CODECS 8           /* bytes-to-bytes codecs of one chain */
#define Z_MOST ((int64_t)1 << 46) /* bytes, elements, items: larger numbers are refused, so products of two... */
                                  /* ...numbers below 2^15 and these never overflow */

enum status { Z_OK = 0, Z_MISSING = 1, Z_DECLINED = 2, Z_DAMAGED = 3, Z_FAILED = 4, Z_NOT_BEGUN = 5 };

/* -- memory that a thread works in -------------------------------------------------------------------------------- */

typedef struct {
    uint8_t *at;
    size_t room;
} z_buffer;

enum { B_FILE, B_ONE, B_TWO, B_CHUNK, B_BUFFERS };

typedef struct z_stream z_stream;

typedef struct z_context {
    struct z_context *next;
    z_buffer buffers[B_BUFFERS];
    void *zstd_in, *zstd_out;     /* ZSTD_DCtx, ZSTD_CCtx */
    int64_t level, checksum;      /* what zstd_out was set to */
    void *inflate, *deflate, *levels; /* isal's states, opaque */
    z_stream *zlib;                   /* for levels that isal does not have */
    int64_t zlib_level, zlib_window;  /* what it was set to */
} z_context;

uint8_t *z_room(z_context *context, int which, size_t size); /* NULL if there is no memory */
z_context *z_take_context(void);                             /* NULL if there is no memory */
void z_give_context(z_context *context);

/* -- threads ------------------------------------------------------------------------------------------------------ */

typedef struct z_job {
    void (*work)(struct z_job *job, int64_t unit, z_context *context);
    bool (*interrupted)(void *); /* asked now and then by the thread that called; true to stop */
    void *arg;
    int64_t units;
    atomic_bool stop;
    atomic_bool no_memory;
} z_job;

void z_run(z_job *job, int threads); /* all units, by the caller and up to threads - 1 others */
int z_pool_size(void);
void z_pool_setup(void (*make_locks)(void)); /* which is called again in a forked child */

/* -- codecs ------------------------------------------------------------------------------------------------------- */

enum codec_id { C_ZSTD = 1, C_GZIP, C_ZLIB, C_BLOSC, C_LZ4, C_CRC32C, C_FLETCHER32, C_SHUFFLE, C_IDS };

typedef struct {
    int64_t id, given[5];
} z_codec;

/* How the elements of a chunk become bytes: axes reordered, bytes swapped, then the codecs in this order. */
typedef struct {
    int ndim;
    int64_t itemsize;
    int64_t swap;  /* size of the units whose bytes are reversed; 0 or 1 for none */
    bool is_bool;  /* bytes must be 0 or 1 */
    int order[Z_DIMS]; /* axis i of the encoded chunk is axis order[i] of the array */
    int ncodecs;
    z_codec codecs[Z_CODECS];
} z_chain;

bool z_bind(const char *name, void *address); /* false: no such symbol is used here */
bool z_can(const z_codec *codec);             /* whether the library of a codec is there */
int64_t z_fixed_size(const z_chain *chain, int64_t nbytes); /* encoded size, -1 if it depends on the bytes */
int64_t z_encoded_bound(const z_chain *chain, int64_t nbytes); /* no honest encoding is longer */
/* Decode to exactly `nbytes`: into `into`, or where `*found` says, which may be within `raw`. */
int z_decode(z_context *context, const z_chain *chain, const uint8_t *raw, int64_t size, int64_t nbytes, uint8_t *into,
             const uint8_t **found);
/* Encode what is in B_CHUNK; `*found` lies in a buffer of the context. */
int z_encode(z_context *context, const z_chain *chain, uint8_t *chunk, int64_t nbytes, const uint8_t **found,
             int64_t *size);
uint32_t z_crc32c(uint32_t crc, const uint8_t *at, size_t size);
void z_swap(uint8_t *at, int64_t nbytes, int64_t unit);
bool z_are_bools(const uint8_t *at, int64_t nbytes);

/* -- copies ------------------------------------------------------------------------------------------------------- */

/* One dimension of a copy between a chunk and the work array. */
typedef struct {
    int64_t count;
    int64_t in, out;                 /* bytes from one index to the next, if there is no list */
    int lists;                       /* of how many axes the positions are given one by one; 0 for none */
    const int64_t *positions[Z_DIMS]; /* within the chunk */
    int64_t strides[Z_DIMS];         /* of those axes, in bytes */
    const int64_t *places;           /* in the work array; NULL: one after the other */
} z_dim;

typedef struct {
    int ndims;
    int64_t itemsize;
    int64_t in, out; /* where the first element is, in bytes */
    z_dim dims[Z_DIMS];
} z_copy;

void z_simplify(z_copy *copy);                    /* fewer and longer dimensions, the same elements */
void z_bounds(const z_copy *copy, int64_t *low, int64_t *high); /* bytes of the chunk that are touched */
bool z_is_run(const z_copy *copy);                 /* whether the last dimension is contiguous in both */
int64_t z_run_bytes(const z_copy *copy);          /* how many follow each other in both, at least */
int64_t z_count(const z_copy *copy);              /* elements; Z_MOST if there are more */
void z_scatter(const z_copy *copy, const uint8_t *chunk, uint8_t *work);
void z_gather(const z_copy *copy, uint8_t *chunk, const uint8_t *work);
void z_fill(const z_copy *copy, uint8_t *work, const uint8_t *fill);
/* Read what a copy picks from an uncompressed value in a file. */
int z_read_raw(z_context *context, z_copy *copy, const z_chain *chain, int fd, uint8_t *work);

/* -- files -------------------------------------------------------------------------------------------------------- */

#define Z_PATH 4096

int z_open(const char *path, bool follow, int *error); /* for reading; -1: *error says why */
bool z_has_no_links(const char *path); /* false also where that cannot be told */
bool z_is_missing(int error);
int64_t z_size(int fd);                          /* -1 if it is no regular file */
int z_pread(int fd, uint8_t *into, int64_t size, int64_t at); /* exactly; Z_OK, Z_DAMAGED if it ends early, Z_FAILED */

typedef struct {
    const uint8_t *at;
    int64_t size;
} z_piece;

/* Write a temporary file beside the path and rename it; `base` bytes of the path are a directory that exists. */
int z_write(const char *path, size_t base, const char *temporary, const z_piece *pieces, int64_t count, bool follow);

/* The same in steps, for values that are to survive a power cut: each step is done for many before the next one. */
typedef struct {
    char *path; /* NULL if nothing is pending */
    char *name; /* of the temporary file; NULL once it is in its place */
    int fd;
    bool flushed;
} z_pending;

bool z_begin(z_pending *pending, const char *path, size_t base, const char *temporary, const z_piece *pieces,
             int64_t count, bool follow); /* write the temporary file */
void z_flush(z_pending *pending);
bool z_place(z_pending *pending); /* rename it, if it was flushed */
void z_drop(z_pending *pending);  /* forget it, and remove what was not placed */
bool z_sync_directory(const char *path, bool follow);

#endif
