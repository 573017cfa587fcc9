/* Estimates pi by throwing darts at a square; keeps the contract (docs/contract.md) by unbroken.h.
 *
 *   cc -O2 -o pi pi.c
 *   UNBROKEN_GOAL=1500 ./pi        without unbroken; writes pi.csv, a row a million darts
 *
 * Exit code 0: done; 85: told to leave, saved; 1: an error.
 */
#include "unbroken.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define DARTS 1000000 /* between two looks at the stop file */
#define EXIT_PAUSED 85

typedef struct {
    int64_t millions, hits;
    uint64_t random; /* the generator's whole state: everything that the next dart depends on */
} State;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static double draw(State *s) { /* xorshift64*, in [0, 1) */
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return (double)((s->random * 2685821657736338717ULL) >> 11) / 9007199254740992.0;
}

static void throw_a_million(State *s) {
    for (int n = 0; n < DARTS; n++) {
        double x = draw(s), y = draw(s);
        s->hits += x * x + y * y < 1.0;
    }
    s->millions++;
}

static void write_state(const State *s, const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/state.bin", folder);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(s, sizeof *s, 1, file) != 1 || fclose(file)) die(path);
}

static void read_state(State *s, const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/state.bin", folder);
    FILE *file = fopen(path, "rb");
    if (!file || fread(s, sizeof *s, 1, file) != 1) die(path);
    fclose(file);
}

int main(void) {
    State s = {0, 0, 88172645463325252ULL};
    long long goal = getenv("UNBROKEN_GOAL") ? atoll(getenv("UNBROKEN_GOAL")) : 1500;
    const char *resume = unbroken_resume();
    if (*resume) read_state(&s, resume);
    FILE *table = fopen("pi.csv", "w");
    if (!table) die("pi.csv");
    fprintf(table, "millions,pi\n");
    for (int stop = 0; s.millions < goal && !stop;) {
        throw_a_million(&s);
        fprintf(table, "%lld,%.12f\n", (long long)s.millions, 4.0 * (double)s.hits / ((double)s.millions * DARTS));
        fflush(table); /* a state counts once a later row is in the file */
        stop = unbroken_must_stop();
        if (unbroken_must_save(stop || s.millions == goal)) {
            write_state(&s, unbroken_draft());
            unbroken_commit((double)s.millions, (double)goal);
        }
    }
    if (fclose(table)) die("pi.csv");
    return s.millions < goal ? EXIT_PAUSED : 0;
}
