/* The pool by itself, for the thread sanitizer: jobs from several threads, with interrupts, forks and threads that end
 * while they are asked. `make tsan` compiles this with pool.c and runs it; a race ends it with a report. */
#include "../../src/zellige/kernel/kernel.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CALLERS = 4, ROUNDS = 60, UNITS = 300 };

typedef struct {
    z_job job;
    int64_t done[UNITS]; /* each written by one thread, and read after the job */
    int asked;
    bool stops, ends;
} work;

static void unit(z_job *base, int64_t at, z_context *context) {
    work *job = (work *)base;
    uint8_t *room = z_room(context, B_ONE, 4096 + (size_t)at * 16);
    if (!room) abort();
    memset(room, (int)at, 4096);
    usleep(at % 16 ? 100 : 1500); /* so that callers ask, which they do every 20 ms */
    job->done[at] = at + room[17] - (uint8_t)at + 1;
}

static bool asked(void *arg) {
    work *job = arg;
    if (++job->asked > 1 && job->stops) abort(); /* not again once it is stopped */
    if (job->ends) pthread_exit(NULL);           /* as the interpreter does with threads that outlive it */
    return job->stops;
}

static void no_locks(void) {}

static void *caller(void *given) {
    int me = (int)(intptr_t)given;
    for (int round = 0; round < ROUNDS; round++) {
        work mine = {.job = {.work = unit, .interrupted = asked, .units = UNITS}};
        mine.job.arg = &mine;
        mine.stops = round % 5 == 4;
        mine.ends = round == ROUNDS - 1 && me % 2;
        z_run(&mine.job, 2 + me);
        for (int64_t k = 0; k < UNITS && !mine.stops; k++)
            if (mine.done[k] != k + 1) abort();
    }
    return NULL;
}

int main(void) {
    pthread_t threads[CALLERS];
    z_pool_setup(no_locks);
    for (int k = 0; k < CALLERS; k++) pthread_create(&threads[k], NULL, caller, (void *)(intptr_t)k);
    for (int k = 0; k < 8; k++) {
        pid_t child = fork();
        if (!child) _exit(z_pool_size() ? 1 : 0); /* none of the threads is here */
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status) return puts("a child did not end well"), 1;
        usleep(20000);
    }
    for (int k = 0; k < CALLERS; k++) pthread_join(threads[k], NULL);
    puts("no races");
    return 0;
}
