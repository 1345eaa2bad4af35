/* The smallest use of libtidegate: one request, and what is to be seen of it. Time is the system's monotonic clock. */
#define _POSIX_C_SOURCE 199309L
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tidegate.h"

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(void) {
    const char *config = "target = \"100ms\"";
    tidegate_app app;
    char *problem;
    if (tidegate_open(config, strlen(config), 1, &app, &problem) != 0) {
        fprintf(stderr, "%s\n", problem ? problem : "tidegate cannot begin");
        return 1;
    }
    tidegate_request request = {0};
    tidegate_decision decision;
    int32_t code = tidegate_arrive(app, now_ns(), &request, &decision);
    if (code < 0) {
        fprintf(stderr, "%s\n", tidegate_error(code));
        return 1;
    }
    if (decision.kind == TIDEGATE_ADMITTED) {
        /* The work is done here. */
        tidegate_end end = {.ticket = decision.ticket, .end = TIDEGATE_ANSWERED};
        tidegate_complete(app, now_ns(), &end);
    }
    tidegate_counts counts;
    tidegate_count(app, now_ns(), 0, &counts);
    printf("arrived %d, answered %d, in time %d\n", (int)counts.offered, (int)counts.completed, (int)counts.in_target);
    return tidegate_close(app);
}
