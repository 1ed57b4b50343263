/* Paths and files. A value is read from one descriptor, and written to a temporary file that is renamed. */
#include "kernel.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

#define TRIES 32   /* how often a directory is made that somebody else removes */
#define AT_ONCE 512 /* pieces for one call of writev; the system takes at most 1024 */

/* -- opening without leaving the store ---------------------------------------------------------------------------- */

#if defined(__linux__) && defined(SYS_openat2)
static struct {
    uint64_t flags, mode, resolve;
} how_type;
static atomic_bool no_openat2;
#endif

/* Refuses every symbolic link on the way: where links lead is for the plain path to decide. */
static int open_here(const char *path, int flags, mode_t mode, bool follow) {
    flags |= O_CLOEXEC;
    if (follow) return open(path, flags, mode);
#if defined(__linux__) && defined(SYS_openat2)
    if (!atomic_load_explicit(&no_openat2, memory_order_relaxed)) {
        __typeof__(how_type) how = {(uint64_t)flags, flags & O_CREAT ? mode : 0, 0x04 /* RESOLVE_NO_SYMLINKS */};
        long fd = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
        if (fd >= 0 || (errno != ENOSYS && errno != EPERM && errno != EINVAL)) return (int)fd;
        if (errno == ENOSYS) atomic_store(&no_openat2, true);
    }
#endif
#ifdef O_NOFOLLOW_ANY
    return open(path, flags | O_NOFOLLOW_ANY, mode);
#else
    /* One directory after the other. */
    int at = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char name[Z_PATH];
    while (at >= 0 && *path) {
        while (*path == '/') path++;
        size_t length = strcspn(path, "/");
        if (length >= sizeof name) {
            close(at);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path, length);
        name[length] = 0;
        path += length;
        int next = *path ? openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
                         : openat(at, name, flags | O_NOFOLLOW, mode);
        int error = errno;
        close(at);
        errno = error;
        at = next;
    }
    return at;
#endif
}

int z_open(const char *path, bool follow, int *error) {
    /* Without O_NONBLOCK the opening of a FIFO waits for a writer. */
    int fd = open_here(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW, 0, follow);
    *error = fd < 0 ? errno : 0;
    return fd;
}

bool z_has_no_links(const char *path) {
#ifdef O_PATH
    int fd = open_here(path, O_PATH, 0, false);
#else
    int fd = open_here(path, O_RDONLY | O_NONBLOCK, 0, false);
#endif
    if (fd >= 0) close(fd);
    return fd >= 0;
}

bool z_is_missing(int error) { return error == ENOENT || error == ENAMETOOLONG; }

int64_t z_size(int fd) {
    struct stat info;
    return fstat(fd, &info) || !S_ISREG(info.st_mode) ? -1 : (int64_t)info.st_size;
}

int z_pread(int fd, uint8_t *into, int64_t size, int64_t at) {
    while (size > 0) {
        ssize_t found = pread(fd, into, (size_t)(size > (1 << 30) ? 1 << 30 : size), (off_t)at);
        if (found < 0 && errno == EINTR) continue;
        if (found < 0) return Z_FAILED;
        if (!found) return Z_DAMAGED;
        into += found, at += found, size -= found;
    }
    return Z_OK;
}

/* -- writing ------------------------------------------------------------------------------------------------------ */

static void make_directories(const char *path, size_t base) {
    char name[Z_PATH];
    for (size_t k = base; path[k]; k++)
        if (path[k] == '/' && k > base) {
            memcpy(name, path, k);
            name[k] = 0;
            mkdir(name, 0777); /* who comes second finds it there; opening the file says what is wrong */
        }
}

static bool write_all(int fd, const z_piece *pieces, int64_t count) {
    struct iovec parts[AT_ONCE];
    int64_t done = 0, skip = 0; /* pieces, and bytes of the next one */
    while (done < count) {
        int many = 0;
        for (int64_t k = done; k < count && many < AT_ONCE; k++, many++) {
            int64_t from = k == done ? skip : 0;
            parts[many].iov_base = (void *)(pieces[k].at + from);
            parts[many].iov_len = (size_t)(pieces[k].size - from);
        }
        ssize_t written = writev(fd, parts, many);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        int64_t left = written;
        while (done < count && left >= pieces[done].size - skip) {
            left -= pieces[done].size - skip;
            skip = 0;
            done++;
        }
        skip += left;
    }
    return true;
}

/* A temporary file beside the path with the value in it, whose name is written to `name`; -1 if that failed. */
static int write_temporary(const char *path, size_t base, const char *temporary, const z_piece *pieces, int64_t count,
                           bool follow, char *name) {
    const char *slash = strrchr(path, '/');
    if (!slash) return -1;
    int length = snprintf(name, Z_PATH, "%.*s%s", (int)(slash + 1 - path), path, temporary);
    if (length < 0 || length >= Z_PATH) return -1;
    for (int k = 0; k < TRIES; k++) {
        int fd = open_here(name, O_WRONLY | O_CREAT | O_EXCL, 0666, follow);
        if (fd >= 0) {
            if (write_all(fd, pieces, count)) return fd;
            close(fd);
            unlink(name);
            return -1;
        }
        if (errno != ENOENT) return -1;
        make_directories(path, base);
    }
    return -1;
}

int z_write(const char *path, size_t base, const char *temporary, const z_piece *pieces, int64_t count, bool follow) {
    char name[Z_PATH];
    for (int k = 0; k < TRIES; k++) {
        int fd = write_temporary(path, base, temporary, pieces, count, follow, name);
        if (fd < 0) return Z_FAILED;
        bool done = !close(fd);
        if (done && !rename(name, path)) return Z_OK;
        int error = errno;
        unlink(name);
        if (!done || error != ENOENT) return Z_FAILED; /* else somebody has removed the directory */
    }
    return Z_FAILED;
}

/* -- surviving a power cut ---------------------------------------------------------------------------------------- */

static bool flush(int fd) {
    int failed;
#ifdef F_FULLFSYNC
    if (!fcntl(fd, F_FULLFSYNC)) return true; /* fsync does not empty the cache of a Mac's drive */
#endif
    do failed = fsync(fd);
    while (failed && errno == EINTR);
    return !failed;
}

bool z_begin(z_pending *pending, const char *path, size_t base, const char *temporary, const z_piece *pieces,
             int64_t count, bool follow) {
    char name[Z_PATH];
    int fd = write_temporary(path, base, temporary, pieces, count, follow, name);
    if (fd < 0) return false;
    size_t length = strlen(path) + 1, more = strlen(name) + 1;
    char *both = malloc(length + more);
    if (!both) {
        close(fd);
        unlink(name);
        return false;
    }
#ifdef SYNC_FILE_RANGE_WRITE
    sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* begin: the disk writes while other values are encoded */
#endif
    pending->path = memcpy(both, path, length);
    pending->name = memcpy(both + length, name, more);
    pending->fd = fd;
    pending->flushed = false;
    return true;
}

void z_flush(z_pending *pending) {
#ifdef __linux__
    int failed;
    do failed = fdatasync(pending->fd); /* without the times of the file */
    while (failed && errno == EINTR);
    pending->flushed = !failed;
#else
    pending->flushed = flush(pending->fd);
#endif
}

bool z_place(z_pending *pending) {
    bool done = pending->fd < 0 || !close(pending->fd);
    pending->fd = -1;
    if (!done || !pending->flushed || rename(pending->name, pending->path)) return false;
    pending->name = NULL;
    return true;
}

void z_drop(z_pending *pending) {
    if (!pending->path) return;
    if (pending->fd >= 0) close(pending->fd);
    if (pending->name) unlink(pending->name);
    free(pending->path);
    pending->path = NULL;
}

bool z_sync_directory(const char *path, bool follow) {
    int fd = open_here(path, O_RDONLY | O_DIRECTORY, 0, follow);
    if (fd < 0) return false;
    bool done = flush(fd);
    close(fd);
    return done;
}
