/* Codecs: from bytes to bytes. Compressors are functions of the libraries that Python has loaded, handed over as
 * addresses; checksums, shuffling and byte order are our own.
 */
#include "kernel.h"

#include <stdlib.h>
#include <string.h>

/* -- the libraries ------------------------------------------------------------------------------------------------ */

static struct {
    void *(*ZSTD_createDCtx)(void);
    void *(*ZSTD_createCCtx)(void);
    size_t (*ZSTD_freeCCtx)(void *);
    size_t (*ZSTD_decompressDCtx)(void *, void *, size_t, const void *, size_t);
    size_t (*ZSTD_CCtx_setParameter)(void *, int, int);
    size_t (*ZSTD_compress2)(void *, void *, size_t, const void *, size_t);
    size_t (*ZSTD_compressBound)(size_t);
    unsigned (*ZSTD_isError)(size_t);
    int (*blosc_decompress_ctx)(const void *, void *, size_t, int);
    int (*blosc_compress_ctx)(int, int, size_t, size_t, const void *, void *, size_t, const char *, size_t, int);
    int (*LZ4_decompress_safe)(const char *, char *, int, int);
    int (*LZ4_compress_fast)(const char *, char *, int, int, int);
    void (*isal_inflate_init)(void *);
    int (*isal_inflate_stateless)(void *);
    void (*isal_deflate_stateless_init)(void *);
    int (*isal_deflate_stateless)(void *);
    uint32_t (*crc32_gzip_refl)(uint32_t, const void *, uint64_t);
    int (*deflateInit2_)(void *, int, int, int, int, int, const char *, int);
    int (*deflate)(void *, int);
    int (*deflateReset)(void *);
    int (*deflateEnd)(void *);
} lib;

#define SYMBOL(name) {#name, (void **)&lib.name}
static const struct {
    const char *name;
    void **at;
} symbols[] = {
    SYMBOL(ZSTD_createDCtx),        SYMBOL(ZSTD_createCCtx),      SYMBOL(ZSTD_freeCCtx),
    SYMBOL(ZSTD_decompressDCtx),    SYMBOL(ZSTD_CCtx_setParameter), SYMBOL(ZSTD_compress2),
    SYMBOL(ZSTD_compressBound),     SYMBOL(ZSTD_isError),         SYMBOL(blosc_decompress_ctx),
    SYMBOL(blosc_compress_ctx),     SYMBOL(LZ4_decompress_safe),  SYMBOL(LZ4_compress_fast),
    SYMBOL(isal_inflate_init),      SYMBOL(isal_inflate_stateless), SYMBOL(isal_deflate_stateless_init),
    SYMBOL(isal_deflate_stateless), SYMBOL(crc32_gzip_refl),      SYMBOL(deflateInit2_),
    SYMBOL(deflate),                SYMBOL(deflateReset),         SYMBOL(deflateEnd),
};

bool z_bind(const char *name, void *address) {
    for (size_t k = 0; k < sizeof symbols / sizeof *symbols; k++)
        if (!strcmp(symbols[k].name, name)) {
            memcpy(symbols[k].at, &address, sizeof address);
            return true;
        }
    return false;
}

bool z_can(const z_codec *codec) {
    switch (codec->id) {
    case C_ZSTD:
        return lib.ZSTD_createDCtx && lib.ZSTD_decompressDCtx && lib.ZSTD_isError && lib.ZSTD_createCCtx &&
               lib.ZSTD_freeCCtx && lib.ZSTD_CCtx_setParameter && lib.ZSTD_compress2 && lib.ZSTD_compressBound;
    case C_GZIP:
    case C_ZLIB:
        return lib.isal_inflate_init && lib.isal_inflate_stateless && lib.isal_deflate_stateless_init &&
               lib.isal_deflate_stateless && lib.crc32_gzip_refl && lib.deflateInit2_ && lib.deflate &&
               lib.deflateReset && lib.deflateEnd;
    case C_BLOSC:
        return lib.blosc_decompress_ctx && lib.blosc_compress_ctx;
    case C_LZ4:
        return lib.LZ4_decompress_safe && lib.LZ4_compress_fast;
    case C_CRC32C:
    case C_FLETCHER32:
    case C_SHUFFLE:
        return true;
    }
    return false;
}

/* -- checksums, bytes --------------------------------------------------------------------------------------------- */

static uint32_t crc_table[8][256];
static bool crc_by_hardware;

__attribute__((constructor)) static void make_tables(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        crc_table[0][n] = crc;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int k = 1; k < 8; k++) crc_table[k][n] = crc_table[k - 1][n] >> 8 ^ crc_table[0][crc_table[k - 1][n] & 255];
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    crc_by_hardware = __builtin_cpu_supports("sse4.2");
#endif
}

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("sse4.2"))) static uint32_t crc_hardware(uint32_t crc, const uint8_t *at, size_t size) {
    uint64_t sum = crc, word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        sum = __builtin_ia32_crc32di(sum, word);
    }
    for (; size; at++, size--) sum = __builtin_ia32_crc32qi((uint32_t)sum, *at);
    return (uint32_t)sum;
}
#else
static uint32_t crc_hardware(uint32_t crc, const uint8_t *at, size_t size) { return (void)at, (void)size, crc; }
#endif

uint32_t z_crc32c(uint32_t crc, const uint8_t *at, size_t size) {
    crc = ~crc;
    if (crc_by_hardware) return ~crc_hardware(crc, at, size);
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^ crc_table[5][low >> 16 & 255] ^
              crc_table[4][low >> 24] ^ crc_table[3][at[4]] ^ crc_table[2][at[5]] ^ crc_table[1][at[6]] ^
              crc_table[0][at[7]];
    }
    for (; size; at++, size--) crc = crc >> 8 ^ crc_table[0][(crc ^ *at) & 255];
    return ~crc;
}

/* As HDF5 has it: sums of 16-bit words, the first byte of each the higher one. */
static uint32_t fletcher32(const uint8_t *at, size_t size) {
    uint32_t one = 0, two = 0;
    for (size_t words = size / 2; words;) {
        size_t block = words > 360 ? 360 : words; /* the sums of so many cannot overflow */
        words -= block;
        for (; block; block--, at += 2) two += one += (uint32_t)at[0] << 8 | at[1];
        one = (one & 0xffff) + (one >> 16);
        two = (two & 0xffff) + (two >> 16);
    }
    if (size % 2) {
        two += one += (uint32_t)*at << 8;
        one = (one & 0xffff) + (one >> 16);
        two = (two & 0xffff) + (two >> 16);
    }
    one = (one & 0xffff) + (one >> 16);
    two = (two & 0xffff) + (two >> 16);
    return two << 16 | one;
}

static uint32_t adler32(const uint8_t *at, size_t size) {
    uint32_t one = 1, two = 0;
    while (size) {
        size_t block = size > 5552 ? 5552 : size; /* the sums of so many cannot overflow */
        size -= block;
        for (; block; block--) two += one += *at++;
        one %= 65521;
        two %= 65521;
    }
    return two << 16 | one;
}

static uint32_t little(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static void put_little(uint8_t *at, uint32_t value) {
    for (int k = 0; k < 4; k++) at[k] = (uint8_t)(value >> 8 * k);
}

void z_swap(uint8_t *at, int64_t nbytes, int64_t unit) {
    uint8_t *end = at + nbytes / unit * unit;
    if (unit == 2)
        for (; at < end; at += 2) {
            uint16_t v;
            memcpy(&v, at, 2);
            v = (uint16_t)(v << 8 | v >> 8);
            memcpy(at, &v, 2);
        }
    else if (unit == 4)
        for (; at < end; at += 4) {
            uint32_t v;
            memcpy(&v, at, 4);
            v = __builtin_bswap32(v);
            memcpy(at, &v, 4);
        }
    else if (unit == 8)
        for (; at < end; at += 8) {
            uint64_t v;
            memcpy(&v, at, 8);
            v = __builtin_bswap64(v);
            memcpy(at, &v, 8);
        }
    else
        for (; at < end; at += unit)
            for (int64_t k = 0; k < unit / 2; k++) {
                uint8_t v = at[k];
                at[k] = at[unit - 1 - k];
                at[unit - 1 - k] = v;
            }
}

bool z_are_bools(const uint8_t *at, int64_t nbytes) {
    uint8_t all = 0;
    for (int64_t k = 0; k < nbytes; k++) all |= at[k];
    return all <= 1;
}

static void shuffle(const uint8_t *from, uint8_t *to, int64_t size, int64_t item) {
    int64_t count = size / item;
    for (int64_t b = 0; b < item; b++)
        for (int64_t k = 0; k < count; k++) to[b * count + k] = from[k * item + b];
}

static void unshuffle(const uint8_t *from, uint8_t *to, int64_t size, int64_t item) {
    int64_t count = size / item;
    for (int64_t b = 0; b < item; b++)
        for (int64_t k = 0; k < count; k++) to[k * item + b] = from[b * count + k];
}

/* -- deflate ------------------------------------------------------------------------------------------------------ */

/* The public beginnings of isal's states, which are the same in all versions 2.x; what follows is its own. */
typedef struct {
    uint8_t *next_out;
    uint32_t avail_out, total_out;
    const uint8_t *next_in;
    uint64_t read_in;
    uint32_t avail_in;
    int32_t read_in_length;
} inflate_state;

typedef struct {
    const uint8_t *next_in;
    uint32_t avail_in, total_in;
    uint8_t *next_out;
    uint32_t avail_out, total_out;
    void *hufftables;
    uint32_t level, level_buf_size;
    uint8_t *level_buf;
    uint16_t end_of_stream, flush, gzip_flag, hist_bits;
} deflate_state;

enum { STATE = 1 << 20, LEVELS = 1 << 20 }; /* bytes; several times what the states take */

static int inflate(z_context *context, const uint8_t **from, const uint8_t *end, uint8_t **to, uint8_t *limit) {
    if (end - *from > UINT32_MAX || limit - *to > UINT32_MAX) return Z_DECLINED;
    if (!context->inflate && !(context->inflate = calloc(1, STATE))) return Z_DECLINED;
    inflate_state *state = context->inflate;
    lib.isal_inflate_init(state);
    state->next_in = *from, state->avail_in = (uint32_t)(end - *from);
    state->next_out = *to, state->avail_out = (uint32_t)(limit - *to);
    if (lib.isal_inflate_stateless(state)) return Z_DAMAGED;
    if (state->next_in < *from || state->next_in > end || state->next_out < *to || state->next_out > limit)
        return Z_DAMAGED;
    *from = state->next_in, *to = state->next_out;
    return Z_OK;
}

/* Members one after the other, each with its header, checksum and length. */
static int gunzip(z_context *context, const uint8_t *at, int64_t size, uint8_t *out, int64_t nbytes) {
    const uint8_t *end = at + size;
    uint8_t *to = out, *limit = out + nbytes;
    do {
        if (end - at < 18 || at[0] != 31 || at[1] != 139 || at[2] != 8 || at[3] & 0xe0) return Z_DAMAGED;
        int flags = at[3];
        at += 10;
        if (flags & 4) {
            if (end - at < 2) return Z_DAMAGED;
            int64_t extra = at[0] | at[1] << 8;
            if (end - at < 2 + extra) return Z_DAMAGED;
            at += 2 + extra;
        }
        for (int text = 8; text <= 16; text *= 2)
            if (flags & text) {
                at = memchr(at, 0, (size_t)(end - at));
                if (!at) return Z_DAMAGED;
                at++;
            }
        if (end - at <= (flags & 2)) return Z_DAMAGED;
        at += flags & 2;
        uint8_t *begin = to;
        int status = inflate(context, &at, end, &to, limit);
        if (status) return status;
        if (end - at < 8 || little(at) != lib.crc32_gzip_refl(0, begin, (uint64_t)(to - begin)) ||
            little(at + 4) != (uint32_t)(to - begin))
            return Z_DAMAGED;
        at += 8;
    } while (at < end);
    return to == limit ? Z_OK : Z_DAMAGED;
}

static int unzlib(z_context *context, const uint8_t *at, int64_t size, uint8_t *out, int64_t nbytes) {
    const uint8_t *end = at + size;
    if (size < 7 || (at[0] & 15) != 8 || at[0] >> 4 > 7 || (at[0] << 8 | at[1]) % 31 || at[1] & 32) return Z_DAMAGED;
    at += 2;
    uint8_t *to = out;
    int status = inflate(context, &at, end, &to, out + nbytes);
    if (status) return status;
    if (to != out + nbytes || end - at != 4) return Z_DAMAGED;
    uint32_t stored = (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
    return stored == adler32(out, (size_t)nbytes) ? Z_OK : Z_DAMAGED;
}

static int64_t isal_gzip(z_context *context, int64_t level, const uint8_t *at, int64_t size, uint8_t *out, int64_t room) {
    if (size > UINT32_MAX || room > UINT32_MAX) return -1;
    if (!context->deflate && !(context->deflate = calloc(1, STATE))) return -1;
    if (!context->levels && !(context->levels = malloc(LEVELS))) return -1;
    deflate_state *state = context->deflate;
    lib.isal_deflate_stateless_init(state);
    state->next_in = at, state->avail_in = (uint32_t)size;
    state->next_out = out, state->avail_out = (uint32_t)room;
    state->level = (uint32_t)level, state->level_buf = context->levels, state->level_buf_size = LEVELS;
    state->end_of_stream = 1, state->flush = 0, state->gzip_flag = 1;
    return lib.isal_deflate_stateless(state) || state->avail_in ? -1 : (int64_t)state->total_out;
}

/* The state of zlib, which is public and the same in all versions 1.x. */
struct z_stream {
    const uint8_t *next_in;
    unsigned avail_in;
    unsigned long total_in;
    uint8_t *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *msg;
    void *state, *zalloc, *zfree, *opaque;
    int data_type;
    unsigned long adler, reserved;
};

enum { ZLIB_WINDOW = 15, ZLIB_GZIP = 16, ZLIB_MEMORY = 8, ZLIB_DEFLATED = 8, ZLIB_FINISH = 4, ZLIB_END = 1 };

static int64_t zlib(z_context *context, int window, int64_t level, const uint8_t *at, int64_t size, uint8_t *out,
                    int64_t room) {
    if (size > UINT32_MAX || room > UINT32_MAX) return -1;
    z_stream *stream = context->zlib;
    if (stream && (context->zlib_level != level || context->zlib_window != window || lib.deflateReset(stream))) {
        lib.deflateEnd(stream);
        free(stream);
        stream = context->zlib = NULL;
    }
    if (!stream) {
        if (!(stream = calloc(1, sizeof *stream))) return -1;
        if (lib.deflateInit2_(stream, (int)level, ZLIB_DEFLATED, window, ZLIB_MEMORY, 0, "1", sizeof *stream)) {
            free(stream);
            return -1;
        }
        context->zlib = stream, context->zlib_level = level, context->zlib_window = window;
    }
    stream->next_in = at, stream->avail_in = (unsigned)size;
    stream->next_out = out, stream->avail_out = (unsigned)room;
    return lib.deflate(stream, ZLIB_FINISH) == ZLIB_END ? room - stream->avail_out : -1;
}

/* -- blosc -------------------------------------------------------------------------------------------------------- */

#define LARGEST_BLOCK (1 << 20) /* that the library makes by itself */

/* The library trusts the sizes in a container, so all of them are checked first. */
static bool is_container(const uint8_t *at, int64_t size, int64_t nbytes) {
    if (size < 16 || size > INT32_MAX || at[0] != 2 || at[2] & 8 || at[2] >> 5 > 4) return false;
    int64_t flags = at[2], item = at[3], block = little(at + 8);
    if (little(at + 4) != nbytes || little(at + 12) != size || nbytes > INT32_MAX - 16) return false;
    if (nbytes && !(block > 0 && block <= nbytes && item)) return false;
    if (flags & 2 || !nbytes) return size == nbytes + 16;
    int64_t full = nbytes / block, blocks = full + (nbytes % block != 0), splits = 1;
    if (!(flags & 16) && item <= 16 && block / item >= 128) {
        if (block % item) return false;
        splits = item;
    }
    int64_t first = 16 + 4 * blocks;
    if (first > size) return false;
    for (int64_t k = 0; k < blocks; k++) {
        int64_t pos = (int32_t)little(at + 16 + 4 * k);
        for (int64_t j = 0; j < (k < full ? splits : 1); j++) {
            if (pos < first || pos > size - 4) return false;
            int64_t length = (int32_t)little(at + pos);
            if (length < 0) return false;
            pos += 4 + length;
        }
        if (pos > size) return false;
    }
    return true;
}

/* Whether there is memory for what the library takes in a call: it crashes where it gets none. Other threads may still
 * take it meanwhile, so this makes a crash rare, not impossible. */
static bool has_room(int64_t block) {
    void *volatile probe = malloc(2 * (size_t)block + 4096); /* volatile: compilers leave out what is freed at once */
    bool found = probe != NULL;
    free(probe);
    return found;
}

static const char *const COMPRESSORS[] = {"blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"};

/* -- one codec ---------------------------------------------------------------------------------------------------- */

/* How many bytes a codec adds, where that does not depend on the bytes; -1 where it does. */
static int64_t adds(const z_codec *codec) {
    switch (codec->id) {
    case C_CRC32C:
    case C_FLETCHER32:
        return 4;
    case C_SHUFFLE:
        return 0;
    }
    return -1;
}

int64_t z_fixed_size(const z_chain *chain, int64_t nbytes) {
    for (int k = 0; k < chain->ncodecs; k++) {
        int64_t more = adds(&chain->codecs[k]);
        if (more < 0) return -1;
        nbytes += more;
    }
    return nbytes;
}

int64_t z_encoded_bound(const z_chain *chain, int64_t nbytes) {
    int64_t fixed = z_fixed_size(chain, nbytes);
    return fixed >= 0 ? fixed : 2 * nbytes + 4096 + 4 * Z_CODECS;
}

/* Whether the header of a zstd frame asks for nothing that the plain path refuses: a dictionary, a size beyond all
 * sense, which the library takes for none, or a window of more than 128 MiB. */
static bool is_frame(const uint8_t *raw, int64_t size) {
    if (size < 14) return true; /* too short for any of that */
    bool single = raw[4] & 32;
    if (raw[4] & 3) return false;
    if (raw[4] >> 6 == 3) return raw[12 + !single] < 128;
    if (raw[4] >> 6 || single) return true;
    return (raw[5] >> 3) <= 20 && ((8 + (int64_t)(raw[5] & 7)) << (7 + (raw[5] >> 3))) <= (int64_t)1 << 27;
}

static int decode_one(z_context *context, const z_codec *codec, const uint8_t *raw, int64_t size, uint8_t *out,
                      int64_t nbytes) {
    switch (codec->id) {
    case C_ZSTD: {
        if (!context->zstd_in && !(context->zstd_in = lib.ZSTD_createDCtx())) return Z_DECLINED;
        if (!is_frame(raw, size)) return Z_DAMAGED;
        size_t found = lib.ZSTD_decompressDCtx(context->zstd_in, out, (size_t)nbytes, raw, (size_t)size);
        return !lib.ZSTD_isError(found) && (int64_t)found == nbytes ? Z_OK : Z_DAMAGED;
    }
    case C_GZIP:
        return gunzip(context, raw, size, out, nbytes);
    case C_ZLIB:
        return unzlib(context, raw, size, out, nbytes);
    case C_BLOSC:
        if (!is_container(raw, size, nbytes)) return Z_DAMAGED;
        if (!has_room(little(raw + 8))) return Z_DECLINED;
        return lib.blosc_decompress_ctx(raw, out, (size_t)nbytes, 1) == nbytes ? Z_OK : Z_DAMAGED;
    case C_LZ4:
        if (size < 5 || size > INT32_MAX || nbytes > INT32_MAX || little(raw) != nbytes) return Z_DAMAGED;
        return lib.LZ4_decompress_safe((const char *)raw + 4, (char *)out, (int)size - 4, (int)nbytes) == nbytes
                   ? Z_OK
                   : Z_DAMAGED;
    case C_SHUFFLE:
        if (size != nbytes || nbytes % codec->given[0]) return Z_DAMAGED;
        unshuffle(raw, out, nbytes, codec->given[0]);
        return Z_OK;
    }
    return Z_DECLINED;
}

int z_decode(z_context *context, const z_chain *chain, const uint8_t *raw, int64_t size, int64_t nbytes, uint8_t *into,
             const uint8_t **found) {
    int64_t sizes[Z_CODECS]; /* before each codec; -1 where it depends on the bytes */
    int64_t before = nbytes;
    for (int k = 0; k < chain->ncodecs; k++) {
        sizes[k] = before;
        int64_t more = adds(&chain->codecs[k]);
        before = before < 0 || more < 0 ? -1 : before + more;
    }
    if (before >= 0 && before != size) return Z_DAMAGED;
    int which = B_ONE;
    for (int k = chain->ncodecs - 1; k >= 0; k--) {
        const z_codec *codec = &chain->codecs[k];
        if (codec->id == C_CRC32C || codec->id == C_FLETCHER32) {
            if (size < 4) return Z_DAMAGED;
            size -= 4;
            uint32_t sum = codec->id == C_CRC32C ? z_crc32c(0, raw, (size_t)size) : fletcher32(raw, (size_t)size);
            if (sum != little(raw + size)) return Z_DAMAGED;
            continue;
        }
        int64_t expected = sizes[k] >= 0 ? sizes[k] : size; /* of fixed ones only shuffling comes here */
        uint8_t *out = k == 0 && into ? into : z_room(context, which, (size_t)expected);
        if (!out) return Z_DECLINED;
        int status = decode_one(context, codec, raw, size, out, expected);
        if (status) return status;
        raw = out, size = expected;
        which = which == B_ONE ? B_TWO : B_ONE;
    }
    if (size != nbytes) return Z_DAMAGED;
    if (chain->is_bool && !z_are_bools(raw, nbytes)) return Z_DAMAGED;
    if (into && raw != into) memcpy(into, raw, (size_t)nbytes), raw = into;
    if (chain->swap > 1) {
        uint8_t *mine = (uint8_t *)raw;
        if (raw != into && raw != context->buffers[B_ONE].at && raw != context->buffers[B_TWO].at) {
            if (!(mine = z_room(context, which, (size_t)nbytes))) return Z_DECLINED;
            memcpy(mine, raw, (size_t)nbytes);
        }
        z_swap(mine, nbytes, chain->swap);
        raw = mine;
    }
    *found = raw;
    return Z_OK;
}

static int64_t room_for(const z_codec *codec, int64_t size) {
    switch (codec->id) {
    case C_ZSTD:
        return (int64_t)lib.ZSTD_compressBound((size_t)size);
    case C_BLOSC:
        return size + 16;
    case C_LZ4:
        return size + size / 255 + 20;
    case C_GZIP:
    case C_ZLIB:
        return size + size / 8 + 1024; /* codes of 9 bits, or stored blocks */
    }
    return size + 4;
}

static int64_t encode_one(z_context *context, const z_codec *codec, const uint8_t *raw, int64_t size, uint8_t *out,
                          int64_t room) {
    const int64_t *given = codec->given;
    switch (codec->id) {
    case C_ZSTD: {
        if (context->zstd_out && (context->level != given[0] || context->checksum != given[1])) {
            lib.ZSTD_freeCCtx(context->zstd_out);
            context->zstd_out = NULL;
        }
        if (!context->zstd_out) {
            if (!(context->zstd_out = lib.ZSTD_createCCtx())) return -1;
            context->level = given[0], context->checksum = given[1];
            lib.ZSTD_CCtx_setParameter(context->zstd_out, 100, (int)given[0]);
            lib.ZSTD_CCtx_setParameter(context->zstd_out, 201, (int)given[1]);
        }
        size_t found = lib.ZSTD_compress2(context->zstd_out, out, (size_t)room, raw, (size_t)size);
        return lib.ZSTD_isError(found) ? -1 : (int64_t)found;
    }
    case C_GZIP:
        if (given[0]) return isal_gzip(context, given[0], raw, size, out, room);
        return zlib(context, ZLIB_WINDOW + ZLIB_GZIP, given[1], raw, size, out, room);
    case C_ZLIB:
        return zlib(context, ZLIB_WINDOW, given[0], raw, size, out, room);
    case C_BLOSC: {
        int64_t block = given[4] > LARGEST_BLOCK ? given[4] : LARGEST_BLOCK;
        if (size > INT32_MAX - 16 || !has_room(size < block ? size : block)) return -1;
        int found = lib.blosc_compress_ctx((int)given[1], (int)given[2], (size_t)given[3], (size_t)size, raw, out,
                                           (size_t)room, COMPRESSORS[given[0]], (size_t)given[4], 1);
        return found > 0 ? found : -1;
    }
    case C_LZ4: {
        if (size > 0x7E000000) return -1;
        int found = lib.LZ4_compress_fast((const char *)raw, (char *)out + 4, (int)size, (int)room - 4, (int)given[0]);
        put_little(out, (uint32_t)size);
        return found > 0 ? found + 4 : -1;
    }
    case C_SHUFFLE:
        if (size % given[0]) return -1;
        shuffle(raw, out, size, given[0]);
        return size;
    case C_CRC32C:
    case C_FLETCHER32:
        memcpy(out, raw, (size_t)size);
        put_little(out + size,
                   codec->id == C_CRC32C ? z_crc32c(0, raw, (size_t)size) : fletcher32(raw, (size_t)size));
        return size + 4;
    }
    return -1;
}

int z_encode(z_context *context, const z_chain *chain, uint8_t *chunk, int64_t nbytes, const uint8_t **found,
             int64_t *size) {
    if (chain->swap > 1) z_swap(chunk, nbytes, chain->swap);
    const uint8_t *raw = chunk;
    int which = B_ONE;
    for (int k = 0; k < chain->ncodecs; k++) {
        const z_codec *codec = &chain->codecs[k];
        int64_t room = room_for(codec, nbytes);
        uint8_t *out = z_room(context, which, (size_t)room);
        if (!out) return Z_DECLINED;
        nbytes = encode_one(context, codec, raw, nbytes, out, room);
        if (nbytes < 0) return Z_DECLINED;
        raw = out;
        which = which == B_ONE ? B_TWO : B_ONE;
    }
    *found = raw, *size = nbytes;
    return Z_OK;
}
