/* Uses every function of tidegate.h, with good arguments and with bad ones. Ends with 0 when all is well. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tidegate.h"

#define MS 1000000ull
#define CHECK(what)                                                                                                    \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            printf("line %d: not so: %s\n", __LINE__, #what);                                                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static tidegate_app open_app(const char *config) {
    tidegate_app app = 0;
    char *problem = NULL;
    int32_t code = tidegate_open(config, strlen(config), 7, &app, &problem);
    if (code != 0) {
        printf("%s: %s\n", tidegate_error(code), problem ? problem : "");
        exit(1);
    }
    CHECK(app != 0 && problem == NULL);
    return app;
}

static void versions(void) {
    CHECK(tidegate_abi_version() == TIDEGATE_ABI_VERSION);
    CHECK(strchr(tidegate_version(), '.') != NULL);
    CHECK(strstr(tidegate_error(TIDEGATE_E_HANDLE), "handle") != NULL);
    CHECK(strcmp(tidegate_error(TIDEGATE_POLL), "no error") == 0);
}

static void configurations(void) {
    const char *bad = "targte = \"100ms\"\nclass = 3\n";
    tidegate_app app = 0;
    char *problem = NULL;
    CHECK(tidegate_open(bad, strlen(bad), 1, &app, &problem) == TIDEGATE_E_CONFIG && app == 0);
    CHECK(strstr(problem, "configuration:1: unknown key \"targte\" at the top level; did you mean \"target\"?"));
    CHECK(strstr(problem, "\nconfiguration:2: "));
    tidegate_free(problem);
    tidegate_free(NULL);
    CHECK(tidegate_open(bad, strlen(bad), 1, &app, NULL) == TIDEGATE_E_CONFIG);
    CHECK(tidegate_open(NULL, 5, 1, &app, NULL) == TIDEGATE_E_CONFIG);
    CHECK(tidegate_open("", 0, 1, NULL, NULL) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_open("\xff", 1, 1, &app, NULL) == TIDEGATE_E_CONFIG);

    app = open_app("");
    const char *two = "[[class]]\nname = \"gold\"\n[[class]]\nname = \"rest\"\n";
    CHECK(tidegate_class_named(app, "rest", 4) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_reload(app, MS, bad, strlen(bad), &problem) == TIDEGATE_E_CONFIG && problem != NULL);
    tidegate_free(problem);
    CHECK(tidegate_reload(app, MS, two, strlen(two), &problem) >= 0 && problem == NULL);
    CHECK(tidegate_class_named(app, "rest", 4) == 1);
    CHECK(tidegate_close(app) == 0);
}

static void names(void) {
    tidegate_app app = open_app("servers = [\"a\", \"b\"]\nrequest_types = [\"page\", \"report\"]\n");
    CHECK(tidegate_server_named(app, "b", 1) == 1);
    CHECK(tidegate_server_named(app, "c", 1) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_type_named(app, "report", 6) == 1);
    CHECK(tidegate_type_named(app, NULL, 6) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_class_named(app, "default", 7) == 0);

    tidegate_request request = {0};
    tidegate_decision decision;
    CHECK(tidegate_server(app, MS, 0, TIDEGATE_DOWN) >= 0);
    for (int i = 0; i < 2; i++) {
        CHECK(tidegate_arrive(app, MS, &request, &decision) >= 0);
        CHECK(decision.kind == TIDEGATE_ADMITTED && decision.server == 1);
        tidegate_end end = {.ticket = decision.ticket};
        CHECK(tidegate_complete(app, 2 * MS, &end) >= 0);
    }
    CHECK(tidegate_server(app, MS, 2, TIDEGATE_UP) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_server(app, MS, 0, 7) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_server(app, MS, 1, TIDEGATE_DRAINING) >= 0);
    CHECK(tidegate_close(app) == 0);
}

/* A request's life, and what must not be done to it. */
static void tickets(void) {
    tidegate_app app = open_app("");
    tidegate_request request = {.user = 42};
    tidegate_decision decision;
    CHECK(tidegate_arrive(app, 0, &request, &decision) >= 0);
    CHECK(decision.kind == TIDEGATE_ADMITTED && decision.ticket != 0 && decision.user == 42 && decision.reason == 0);
    CHECK(tidegate_first_byte(app, MS, decision.ticket) >= 0);
    tidegate_end end = {.ticket = decision.ticket, .service_time_ns = 9 * MS, .bytes = 10, .end = 9};
    CHECK(tidegate_complete(app, 10 * MS, &end) == TIDEGATE_E_ARGUMENT);
    end.end = TIDEGATE_ANSWERED;
    CHECK(tidegate_complete(app, 10 * MS, &end) >= 0);
    CHECK(tidegate_complete(app, 10 * MS, &end) == TIDEGATE_E_TICKET);
    CHECK(tidegate_cancel(app, 10 * MS, decision.ticket) == TIDEGATE_E_TICKET);
    CHECK(tidegate_abandon(app, 10 * MS, decision.ticket, TIDEGATE_BY_CLIENT, 1) == TIDEGATE_E_TICKET);
    CHECK(tidegate_first_byte(app, 10 * MS, decision.ticket) == TIDEGATE_E_TICKET);
    CHECK(tidegate_abandon(app, 10 * MS, 12345, 7, 1) == TIDEGATE_E_ARGUMENT);

    /* Abandoned, and over later; abandoned unwatched; cancelled. */
    CHECK(tidegate_arrive(app, 11 * MS, &request, &decision) >= 0);
    CHECK(tidegate_abandon(app, 12 * MS, decision.ticket, TIDEGATE_BY_CLIENT, 1) >= 0);
    end.ticket = decision.ticket;
    CHECK(tidegate_complete(app, 20 * MS, &end) >= 0);
    CHECK(tidegate_arrive(app, 21 * MS, &request, &decision) >= 0);
    CHECK(tidegate_abandon(app, 22 * MS, decision.ticket, TIDEGATE_BY_TIME_OUT, 0) >= 0);
    uint64_t next = 0;
    for (uint64_t now = 30; now < 1000; now += 10) {
        CHECK(tidegate_tick(app, now * MS, &next) >= 0 && next > now * MS && next <= (now + 100) * MS);
    }
    CHECK(tidegate_arrive(app, 1000 * MS, &request, &decision) >= 0 && decision.kind == TIDEGATE_ADMITTED);
    CHECK(tidegate_cancel(app, 1001 * MS, decision.ticket) >= 0);

    tidegate_counts counts;
    CHECK(tidegate_count(app, 1001 * MS, 0, &counts) == 0);
    CHECK(counts.offered == 4 && counts.admitted == 4 && counts.completed == 1 && counts.cancelled == 2);
    CHECK(counts.failed == 1 && counts.in_flight == 0 && counts.waiting == 0 && counts.refused == 0);
    CHECK(tidegate_count(app, 1001 * MS, 1, &counts) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_count(app, 1001 * MS, 0, NULL) == TIDEGATE_E_ARGUMENT);

    request.class_ = 1;
    CHECK(tidegate_arrive(app, 1001 * MS, &request, &decision) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_arrive(app, 1001 * MS, NULL, &decision) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_arrive(app, 1001 * MS, &request, NULL) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_tick(app, 1001 * MS, NULL) == TIDEGATE_E_ARGUMENT);
    CHECK(tidegate_poll(app, NULL, 1) == TIDEGATE_E_ARGUMENT && tidegate_poll(app, NULL, 0) == 0);
    CHECK(tidegate_close(app) == 0 && tidegate_close(app) == TIDEGATE_E_HANDLE);
    request.class_ = 0;
    CHECK(tidegate_arrive(app, 1002 * MS, &request, &decision) == TIDEGATE_E_HANDLE);
    CHECK(tidegate_close(0) == TIDEGATE_E_HANDLE);
}

/* More arrives at once than there is room for: most wait, and hear of it later; what is refused says why. */
static void waiting(void) {
    enum { MANY = 1000 };
    static tidegate_request requests[MANY];
    static tidegate_decision decisions[MANY];
    static tidegate_end ends[MANY];
    tidegate_app app = open_app("name = \"shop\"\ntarget = \"100ms\"\ndefault_cost = \"10ms\"");
    for (size_t i = 0; i < MANY; i++) {
        requests[i].user = 1000 + i;
    }
    int32_t flags = tidegate_arrive_many(app, 0, requests, MANY, decisions);
    CHECK(flags >= 0);
    size_t admitted = 0, waits = 0;
    uint64_t patient = 0;
    tidegate_decision no = {0};
    for (size_t i = 0; i < MANY; i++) {
        CHECK(decisions[i].user == 1000 + i);
        if (decisions[i].kind == TIDEGATE_ADMITTED) {
            ends[admitted++].ticket = decisions[i].ticket;
        } else if (decisions[i].kind == TIDEGATE_WAITS) {
            waits++;
            patient = decisions[i].ticket;
        } else {
            no = decisions[i];
        }
    }
    CHECK(admitted > 0 && waits > 1);
    tidegate_end early = {.ticket = patient};
    CHECK(tidegate_complete(app, MS, &early) == TIDEGATE_E_TICKET);
    CHECK(tidegate_cancel(app, MS, patient) >= 0);

    /* Those who wait begin as others end. One ticket is wrong; the others are done all the same. */
    size_t heard = 0;
    uint64_t now = 10 * MS, next;
    ends[admitted].ticket = 12345;
    CHECK(tidegate_complete_many(app, now, ends, admitted + 1) == TIDEGATE_E_TICKET);
    while (heard < waits - 1 && now < 10000 * MS) {
        int32_t count = tidegate_poll(app, decisions, MANY);
        CHECK(count >= 0);
        now += 10 * MS;
        for (int32_t i = 0; i < count; i++, heard++) {
            CHECK(decisions[i].kind != TIDEGATE_WAITS && decisions[i].ticket != patient && decisions[i].user >= 1000);
            if (decisions[i].kind == TIDEGATE_ADMITTED) {
                tidegate_end end = {.ticket = decisions[i].ticket, .end = TIDEGATE_ANSWERED};
                CHECK(tidegate_complete(app, now, &end) >= 0);
            } else {
                no = decisions[i];
            }
        }
        CHECK(tidegate_tick(app, now, &next) >= 0);
    }
    CHECK(heard == waits - 1 && no.kind == TIDEGATE_REFUSED);

    CHECK(strlen(tidegate_reason(no.reason)) > 0 && strlen(tidegate_reason_text(no.reason)) > 0);
    CHECK(strcmp(tidegate_reason(0), "") == 0 && strcmp(tidegate_reason_text(999), "") == 0);
    CHECK(no.retry_after_s >= 1 && no.retry_after_s >= no.retry_after_ns / 1000000000u);
    for (uint32_t form = TIDEGATE_HEADER; form <= TIDEGATE_HTML; form++) {
        char *said = NULL;
        CHECK(tidegate_say(app, &no, form, &said) == 0);
        CHECK(strstr(said, form == TIDEGATE_HEADER ? tidegate_reason(no.reason) : tidegate_reason_text(no.reason)));
        tidegate_free(said);
    }
    char *said = NULL;
    CHECK(tidegate_say(app, &no, TIDEGATE_HTML + 1, &said) == TIDEGATE_E_ARGUMENT && said == NULL);
    no.reason = 0;
    CHECK(tidegate_say(app, &no, TIDEGATE_TEXT, &said) == TIDEGATE_E_ARGUMENT);

    char *json = NULL;
    CHECK(tidegate_snapshot(app, now, &json) == 0);
    CHECK(strstr(json, "\"application\":\"shop\"") && strstr(json, "\"stale_tickets\":0"));
    tidegate_free(json);
    CHECK(tidegate_close(app) == 0);
}

static void shadow(void) {
    tidegate_app app = open_app("admission = { policy = \"concurrency\", limit = 10 }");
    CHECK(tidegate_shadow(app, 0, 1) >= 0);
    tidegate_request request = {0};
    tidegate_decision decision = {0};
    int would_refuse = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK(tidegate_arrive(app, MS, &request, &decision) >= 0 && decision.kind == TIDEGATE_ADMITTED);
        would_refuse += decision.shadow;
        CHECK((decision.shadow != 0) == (decision.reason != 0));
    }
    tidegate_counts counts;
    CHECK(tidegate_count(app, MS, 0, &counts) == 0);
    CHECK(would_refuse > 0 && counts.refused == (uint64_t)would_refuse && counts.admitted == 1000);
    /* Enforced, the same policy refuses. */
    CHECK(tidegate_shadow(app, MS, 0) >= 0);
    CHECK(tidegate_arrive(app, MS, &request, &decision) >= 0);
    CHECK(decision.kind == TIDEGATE_ADMITTED || strcmp(tidegate_reason(decision.reason), "concurrency-limit") == 0);
    CHECK(tidegate_close(app) == 0);
}

int main(void) {
    versions();
    configurations();
    names();
    tickets();
    waiting();
    shadow();
    puts("all is well");
    return 0;
}
