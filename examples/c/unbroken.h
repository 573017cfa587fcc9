/* The contract of unbroken (docs/contract.md) for C: copy this file next to your program. */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static time_t unbroken_saved_at;
static char unbroken_folder[4000], unbroken_ready[4096];

static const char *unbroken_told(const char *name) { return getenv(name) ? getenv(name) : ""; }
static void unbroken_die(const char *path) { perror(path), exit(1); }

/* Returns the folder to resume from, "" at the very start. Call it first. */
static const char *unbroken_resume(void) { return time(&unbroken_saved_at), unbroken_told("UNBROKEN_RESUME"); }

/* Returns 1 if the program should save and exit with 85. */
static int unbroken_must_stop(void) { return access(unbroken_told("UNBROKEN_STOP"), F_OK) == 0; }

/* Returns 1 if a save is due: the last one always, others once the one before is taken; never without unbroken. */
static int unbroken_must_save(int is_last) {
    int is_due = difftime(time(NULL), unbroken_saved_at) >= atof(unbroken_told("UNBROKEN_SAVE_SECONDS"));
    return *unbroken_told("UNBROKEN_SAVE") && (is_last || (is_due && access(unbroken_ready, F_OK) != 0));
}

/* Returns a new folder to write the state into. */
static const char *unbroken_draft(void) {
    snprintf(unbroken_folder, sizeof unbroken_folder, "%s/draft", unbroken_told("UNBROKEN_SAVE"));
    if (mkdir(unbroken_folder, 0777)) unbroken_die(unbroken_folder);
    return unbroken_folder;
}

/* Hands that folder over; `done` must be more than in the state before. */
static void unbroken_commit(double done, double goal) {
    static int count;
    const char *json = "{\"done\": %.17g, \"goal\": %.17g, \"unit\": \"%s\"}\n";
    char path[4096];
    snprintf(path, sizeof path, "%s/progress.json", unbroken_folder);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, json, done, goal, unbroken_told("UNBROKEN_GOAL_UNIT")) < 0) unbroken_die(path);
    if (fclose(file)) unbroken_die(path);
    snprintf(unbroken_ready, sizeof unbroken_ready, "%s/%06d.ready", unbroken_told("UNBROKEN_SAVE"), count++);
    if (rename(unbroken_folder, unbroken_ready)) unbroken_die(unbroken_ready);
    time(&unbroken_saved_at);
}
