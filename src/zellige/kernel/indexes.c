/* Indexes of shards that were read and checked, kept by a reader for its next reads.
 *
 * One is used again only for the same file in the same state: device, inode, size and times are compared. A file that
 * was changed a moment ago is not kept, because another change might leave it with the same times.
 */
#include "plan.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST ((int64_t)16 << 20) /* bytes that a reader keeps */
#define OLD 2                    /* seconds; file systems count time in steps of up to so many */

static pthread_mutex_t lock; /* one for all, held for a moment */

void z_make_index_lock(void) { pthread_mutex_init(&lock, NULL); }

z_index *z_new_index(int64_t bytes) {
    z_index *made = malloc(sizeof *made + (size_t)bytes);
    if (!made) return NULL;
    memset(made, 0, sizeof *made);
    made->bytes = bytes;
    atomic_init(&made->users, 1);
    return made;
}

void z_drop_index(z_index *index) {
    if (index && atomic_fetch_sub(&index->users, 1) == 1) free(index);
}

static int64_t slot_of(const int64_t *numbers, int ndim) {
    uint64_t mixed = 0;
    for (int k = 0; k < ndim; k++) mixed = (mixed ^ (uint64_t)numbers[k]) * 0x9e3779b97f4a7c15u;
    return (int64_t)(mixed >> 32) % Z_KEPT;
}

static bool is_same(const struct stat *one, const struct stat *other) {
    return one->st_ino == other->st_ino && one->st_dev == other->st_dev && one->st_size == other->st_size &&
           one->st_mtime == other->st_mtime && NANOSECONDS(one, m) == NANOSECONDS(other, m) &&
           one->st_ctime == other->st_ctime && NANOSECONDS(one, c) == NANOSECONDS(other, c);
}

z_index *z_find_index(z_indexes *among, const int64_t *numbers, int ndim, const struct stat *info, int64_t bytes) {
    pthread_mutex_lock(&lock);
    z_index *found = among->kept[slot_of(numbers, ndim)];
    if (found && (found->bytes != bytes || !is_same(&found->file, info))) found = NULL;
    if (found) atomic_fetch_add(&found->users, 1);
    pthread_mutex_unlock(&lock);
    return found;
}

static void forget(z_indexes *among, int64_t slot) {
    if (among->kept[slot]) among->bytes -= among->kept[slot]->bytes;
    z_drop_index(among->kept[slot]);
    among->kept[slot] = NULL;
}

void z_keep_index(z_indexes *among, z_index *index, const int64_t *numbers, int ndim, const struct stat *info) {
    time_t now = time(NULL);
    if (index->bytes > MOST || now - info->st_ctime < OLD || now - info->st_mtime < OLD) return;
    index->file = *info;
    pthread_mutex_lock(&lock);
    int64_t slot = slot_of(numbers, ndim);
    forget(among, slot);
    if (among->bytes + index->bytes > MOST)
        for (int64_t k = 0; k < Z_KEPT; k++) forget(among, k);
    atomic_fetch_add(&index->users, 1);
    among->kept[slot] = index;
    among->bytes += index->bytes;
    pthread_mutex_unlock(&lock);
}

void z_forget_indexes(z_indexes *among) {
    for (int64_t k = 0; k < Z_KEPT; k++) forget(among, k);
}
