/* Estimates pi by throwing darts at a square; keeps the contract (docs/contract.md), with nothing but the C library.
 *
 *   cc -O2 -o pi pi.c
 *   UNBROKEN_GOAL=1500 ./pi        without unbroken; writes pi.csv, a row a million darts
 *
 * Exit code 0: done; 85: told to leave, saved; 1: an error.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DARTS 1000000 /* between two looks at the stop file */
#define EXIT_PAUSED 85

typedef struct {
    int64_t millions, hits;
    uint64_t random; /* the generator's whole state: everything that the next dart depends on */
} State;

static const char *told_as(const char *name, const char *otherwise) {
    const char *text = getenv(name);
    return text && *text ? text : otherwise;
}

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

static void write_file(const char *folder, const char *name, const void *data, size_t size) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file)) die(path);
}

/* A folder that is renamed when it is whole: half a state is never seen. */
static void hand_over(const State *s, const char *save, long long goal) {
    static int64_t handed_over = -1;
    if (s->millions == handed_over) return;
    handed_over = s->millions;
    char draft[4096], ready[4096], progress[200];
    snprintf(draft, sizeof draft, "%s/draft", save);
    snprintf(ready, sizeof ready, "%s/%09lld.ready", save, (long long)s->millions);
    if (mkdir(draft, 0777)) die(draft);
    write_file(draft, "state.bin", s, sizeof *s);
    int size = snprintf(progress, sizeof progress, "{\"done\": %lld, \"goal\": %lld, \"unit\": \"million darts\"}\n",
                        (long long)s->millions, goal);
    write_file(draft, "progress.json", progress, (size_t)size);
    if (rename(draft, ready)) die(ready);
}

static void load(State *s, const char *resume) {
    char path[4096];
    snprintf(path, sizeof path, "%s/state.bin", resume);
    FILE *file = fopen(path, "rb");
    if (!file || fread(s, sizeof *s, 1, file) != 1) die(path);
    fclose(file);
}

int main(void) {
    State s = {0, 0, 88172645463325252ULL};
    const char *resume = told_as("UNBROKEN_RESUME", ""), *save = told_as("UNBROKEN_SAVE", "");
    const char *stop = told_as("UNBROKEN_STOP", "");
    long long goal = atoll(told_as("UNBROKEN_GOAL", "1500"));
    double save_seconds = atof(told_as("UNBROKEN_SAVE_SECONDS", "60"));
    if (*resume) load(&s, resume);
    FILE *table = fopen("pi.csv", "w");
    if (!table) die("pi.csv");
    fprintf(table, "millions,pi\n");
    time_t saved_at = time(NULL);
    while (s.millions < goal && !(*stop && access(stop, F_OK) == 0)) {
        throw_a_million(&s);
        fprintf(table, "%lld,%.12f\n", (long long)s.millions, 4.0 * (double)s.hits / ((double)s.millions * DARTS));
        fflush(table); /* a state counts once a later row is in the file */
        if (*save && difftime(time(NULL), saved_at) >= save_seconds) {
            hand_over(&s, save, goal);
            saved_at = time(NULL);
        }
    }
    if (fclose(table)) die("pi.csv");
    if (*save) hand_over(&s, save, goal);
    return s.millions < goal ? EXIT_PAUSED : 0;
}
