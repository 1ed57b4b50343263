/* Threads, kept between calls. Each takes a contiguous run of the units, and helps others at the end: neighbouring
 * units touch neighbouring memory, so interleaved ones would make threads fault the same pages.
 */
#include "kernel.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define RUNS 256          /* runs that a job is cut into at most, one for each thread */
#define KEPT (4u << 20)   /* bytes of buffers that a context keeps between calls */
#define LOOK_NS 20000000  /* how often the calling thread looks for signals */

#ifdef __APPLE__
#define WAITING_CLOCK CLOCK_REALTIME /* conditions know no other there */
#else
#define WAITING_CLOCK CLOCK_MONOTONIC
#endif

/* -- contexts ----------------------------------------------------------------------------------------------------- */

static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static z_context *contexts;

#define LINE 64 /* bytes of a line of the cache: rows that begin at one are copied a fifth faster */

uint8_t *z_room(z_context *context, int which, size_t size) {
    z_buffer *buffer = &context->buffers[which];
    if (buffer->room < size || !buffer->at) {
        /* One that has to grow grows by half: each fresh page costs a fault. Pages that are not touched cost nothing. */
        size_t room = ((buffer->at ? size + size / 2 : size) + 4096) / LINE * LINE;
        free(buffer->at);
        buffer->at = aligned_alloc(LINE, room);
        buffer->room = buffer->at ? room : 0;
    }
    return buffer->at;
}

z_context *z_take_context(void) {
    pthread_mutex_lock(&contexts_lock);
    z_context *context = contexts;
    if (context) contexts = context->next;
    pthread_mutex_unlock(&contexts_lock);
    return context ? context : calloc(1, sizeof(z_context));
}

void z_give_context(z_context *context) {
    size_t kept = 0;
    for (int k = 0; k < B_BUFFERS; k++) {
        z_buffer *buffer = &context->buffers[k];
        kept += buffer->room;
        if (kept > KEPT) {
            free(buffer->at);
            kept -= buffer->room;
            buffer->at = NULL;
            buffer->room = 0;
        }
    }
    pthread_mutex_lock(&contexts_lock);
    context->next = contexts;
    contexts = context;
    pthread_mutex_unlock(&contexts_lock);
}

/* -- the pool ----------------------------------------------------------------------------------------------------- */

typedef struct {
    _Alignas(64) atomic_llong next;
    int64_t end;
} run;

typedef struct task {
    struct task *next;
    z_job *job;
    int nruns;
    int wanted; /* helpers that may still join */
    int joined; /* helpers at work; under the lock */
    int process; /* of which they are threads */
    run runs[RUNS];
} task;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake, left;
static task *tasks;
static int threads_alive;
static int processes; /* how often this one was forked from another that had loaded the kernel */

static bool take(run *from, int64_t *unit) {
    if (atomic_load_explicit(&from->next, memory_order_relaxed) >= from->end) return false;
    *unit = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
    return *unit < from->end;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void ask(task *task);

/* Let nobody join any more, and wait for those at work; until the job is stopped, look for signals meanwhile. */
static void wait_for_helpers(task *task, bool asking) {
    pthread_mutex_lock(&lock);
    task->wanted = 0;
    for (struct task **at = &tasks; *at; at = &(*at)->next)
        if (*at == task) {
            *at = task->next;
            break;
        }
    while (task->joined && task->process == processes) { /* in a forked child nobody is at work */
        struct timespec until;
        clock_gettime(WAITING_CLOCK, &until);
        until.tv_nsec += LOOK_NS;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        bool late = pthread_cond_timedwait(&left, &lock, &until) == ETIMEDOUT;
        /* Not again once it is stopped: a handler must not run while the error of another is being raised. */
        if (late && task->joined && asking && !atomic_load(&task->job->stop)) {
            pthread_mutex_unlock(&lock);
            ask(task);
            pthread_mutex_lock(&lock);
        }
    }
    pthread_mutex_unlock(&lock);
}

/* Leave a job that has begun: no unit begins from now on, and those in hand are waited for. */
static void leave(void *arg) {
    task *task = arg;
    atomic_store(&task->job->stop, true);
    if (task->nruns > 1) wait_for_helpers(task, false);
}

/* Ask whether to stop. The interpreter may end this thread meanwhile, if it ends itself; but what the others work on
 * may lie on its stack. */
static void ask(task *task) {
    z_job *job = task->job;
    pthread_cleanup_push(leave, task);
    if (job->interrupted(job->arg)) atomic_store(&job->stop, true);
    pthread_cleanup_pop(0);
}

static void drain(task *task, int me, bool caller) {
    z_job *job = task->job;
    z_context *context = z_take_context();
    if (!context) {
        atomic_store(&job->no_memory, true);
        return;
    }
    int64_t looked = caller ? now_ns() : 0, unit;
    for (int k = 0; k < task->nruns; k++) {
        run *from = &task->runs[(me + k) % task->nruns];
        while (!atomic_load_explicit(&job->stop, memory_order_relaxed) && take(from, &unit)) {
            job->work(job, unit, context);
            if (caller && now_ns() - looked > LOOK_NS) {
                ask(task);
                looked = now_ns();
            }
        }
    }
    z_give_context(context);
}

static void *helper(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        task *task = tasks;
        while (task && !task->wanted) task = task->next;
        if (!task) {
            pthread_cond_wait(&wake, &lock);
            continue;
        }
        int me = task->nruns - task->wanted--; /* 1, 2, … in order of joining; 0 is the caller */
        task->joined++;
        pthread_mutex_unlock(&lock);
        drain(task, me, false);
        pthread_mutex_lock(&lock);
        task->joined--;
        if (!task->joined) pthread_cond_broadcast(&left);
    }
    return NULL;
}

static void start_helpers(int wanted) { /* under the lock */
    sigset_t all, before;
    sigfillset(&all); /* signals are for the interpreter's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, 1 << 20);
    while (threads_alive < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, helper, NULL)) break; /* the others do its share */
        threads_alive++;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void z_run(z_job *job, int threads) {
    if (threads > RUNS) threads = RUNS;
    if (threads > job->units) threads = (int)job->units;
    if (threads < 1) threads = 1;
    task *mine = NULL;
    task alone;
    if (threads > 1) mine = aligned_alloc(64, sizeof(task));
    if (!mine) {
        mine = &alone;
        threads = 1;
    }
    mine->next = NULL;
    mine->job = job;
    mine->nruns = threads;
    mine->wanted = threads - 1;
    mine->joined = 0;
    mine->process = processes;
    for (int k = 0; k < threads; k++) {
        atomic_init(&mine->runs[k].next, job->units / threads * k + job->units % threads * k / threads);
        mine->runs[k].end = job->units / threads * (k + 1) + job->units % threads * (k + 1) / threads;
    }
    if (threads == 1) {
        drain(mine, 0, true);
        return;
    }
    pthread_mutex_lock(&lock);
    start_helpers(threads - 1);
    task **end = &tasks;
    while (*end) end = &(*end)->next;
    *end = mine;
    if (threads > 2) pthread_cond_broadcast(&wake);
    else pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    drain(mine, 0, true);
    wait_for_helpers(mine, true);
    free(mine);
}

int z_pool_size(void) {
    pthread_mutex_lock(&lock);
    int size = threads_alive;
    pthread_mutex_unlock(&lock);
    return size;
}

/* -- forks -------------------------------------------------------------------------------------------------------- */

static void before_fork(void) {
    pthread_mutex_lock(&lock);
    pthread_mutex_lock(&contexts_lock);
}

static void after_in_parent(void) {
    pthread_mutex_unlock(&contexts_lock);
    pthread_mutex_unlock(&lock);
}

static void make_conditions(void) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#ifndef __APPLE__
    pthread_condattr_setclock(&attributes, WAITING_CLOCK);
#endif
    pthread_cond_init(&wake, &attributes);
    pthread_cond_init(&left, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void (*reset_locks)(void);

static void after_in_child(void) { /* none of the threads is here; what they worked on stays as it is */
    threads_alive = 0;
    processes++;
    tasks = NULL;
    make_conditions();
    reset_locks();
    after_in_parent();
}

void z_pool_setup(void (*make_locks)(void)) {
    static bool done;
    if (done) return;
    done = true;
    reset_locks = make_locks;
    make_locks();
    make_conditions();
    pthread_atfork(before_fork, after_in_parent, after_in_child);
}
