/* The Ising model on a square lattice (Metropolis), with a restart file of its own; knows nothing of unbroken.
 *
 *   cc -O2 -o ising ising.c
 *   ./ising SWEEPS          begins, or goes on from ising.chk; writes energy.tsv, a row a sweep
 *   ./ising --where FILE    prints the sweep of a restart file
 *
 * Exit code 0: done; 85: told to leave by USR1 or TERM, saved; 1: an error.
 * Same compiler, flags and machine: same bytes, whole or in pieces.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE 256
#define EVERY 50 /* sweeps between two restart files */
#define EXIT_PAUSED 85

typedef struct {
    char magic[8];
    int64_t sweep;
    uint64_t random; /* the generator's whole state belongs into the restart file */
    int8_t spin[SIZE][SIZE];
} State;

static volatile sig_atomic_t told;

static void hear(int number) { told = number; }

static double draw(State *s) { /* xorshift64*, in [0, 1) */
    s->random ^= s->random >> 12;
    s->random ^= s->random << 25;
    s->random ^= s->random >> 27;
    return (double)((s->random * 2685821657736338717ULL) >> 11) / 9007199254740992.0;
}

static int neighbours(const State *s, int i, int j) {
    return s->spin[(i + 1) % SIZE][j] + s->spin[(i + SIZE - 1) % SIZE][j] + s->spin[i][(j + 1) % SIZE] +
           s->spin[i][(j + SIZE - 1) % SIZE];
}

static void sweep(State *s) {
    /* exp(-dE / T) for dE = 4 and 8 at T = 2.269, written out: no two maths libraries have to agree */
    static const double chance[2] = {0.17154, 0.029427};
    for (int n = 0; n < SIZE * SIZE; n++) {
        int i = (int)(draw(s) * SIZE), j = (int)(draw(s) * SIZE);
        int change = 2 * s->spin[i][j] * neighbours(s, i, j);
        if (change <= 0 || draw(s) < chance[change / 4 - 1]) s->spin[i][j] = (int8_t)-s->spin[i][j];
    }
    s->sweep++;
}

static void measure(const State *s, FILE *table) {
    long energy = 0, spins = 0;
    for (int i = 0; i < SIZE; i++)
        for (int j = 0; j < SIZE; j++) {
            energy -= s->spin[i][j] * (s->spin[(i + 1) % SIZE][j] + s->spin[i][(j + 1) % SIZE]);
            spins += s->spin[i][j];
        }
    fprintf(table, "%lld\t%ld\t%ld\n", (long long)s->sweep, energy, spins);
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void save(const State *s) { /* under another name first: nobody ever sees half a restart file */
    FILE *file = fopen("ising.tmp", "wb");
    if (!file || fwrite(s, sizeof *s, 1, file) != 1 || fclose(file)) die("ising.tmp");
    if (rename("ising.tmp", "ising.chk")) die("ising.chk");
}

static int load(State *s, const char *name) {
    FILE *file = fopen(name, "rb");
    if (!file) return 0;
    if (fread(s, sizeof *s, 1, file) != 1 || memcmp(s->magic, "ISING1\n", 8)) {
        fprintf(stderr, "%s: not a restart file\n", name);
        exit(1);
    }
    fclose(file);
    return 1;
}

int main(int count, char **words) {
    static State s;
    if (count == 3 && !strcmp(words[1], "--where")) {
        if (!load(&s, words[2])) die(words[2]);
        printf("%lld\n", (long long)s.sweep);
        return 0;
    }
    if (count != 2) {
        fprintf(stderr, "usage: ising SWEEPS | ising --where FILE\n");
        return 1;
    }
    signal(SIGUSR1, hear);
    signal(SIGTERM, hear);
    if (!load(&s, "ising.chk")) {
        memcpy(s.magic, "ISING1\n", 8);
        s.random = 88172645463325252ULL;
        memset(s.spin, 1, sizeof s.spin);
    }
    FILE *table = fopen("energy.tsv", "a");
    if (!table) die("energy.tsv");
    fprintf(table, "sweep\tenergy\tmagnetisation\n");
    long long goal = atoll(words[1]);
    while (s.sweep < goal && !told) {
        sweep(&s);
        measure(&s, table);
        if (s.sweep % EVERY == 0) save(&s);
    }
    if (fclose(table)) die("energy.tsv");
    save(&s);
    return s.sweep < goal ? EXIT_PAUSED : 0;
}
