/*
 * tidegate.h - overload control inside a service: which requests to work on now, which later, which not at all.
 *
 *     tidegate_app app;
 *     char *problem;
 *     const char *config = "target = \"100ms\"";
 *     if (tidegate_open(config, strlen(config), 1, &app, &problem) != 0) { puts(problem); exit(1); }
 *
 *     tidegate_request request = {0};
 *     tidegate_decision decision;
 *     tidegate_arrive(app, now_ns(), &request, &decision);
 *     if (decision.kind == TIDEGATE_ADMITTED) {
 *         ... do the work ...
 *         tidegate_end end = { .ticket = decision.ticket };
 *         tidegate_complete(app, now_ns(), &end);
 *     }
 *
 * Requests may also wait (TIDEGATE_WAITS): the decision comes later, from tidegate_poll. So a caller needs a timer
 * for tidegate_tick, and something that hands decisions that were polled to those who wait for them.
 *
 * What calls return. Below 0: an error, and nothing was done (tidegate_error says what it means). Else a sum of
 *     TIDEGATE_POLL    there are decisions about requests that waited: call tidegate_poll, from any thread;
 *     TIDEGATE_SOONER  the next tick is due sooner than the last tick said: call tidegate_tick now.
 * Calls that return something else say so.
 *
 * Time. now_ns is nanoseconds of a clock that never goes back (CLOCK_MONOTONIC, or since the start of the process),
 * the same for all calls of an application. Where threads' times arrive out of order, an earlier one is taken for the
 * latest that was brought; so a time far in the future stops the clock until then.
 *
 * Threads. Every function may be called from every thread. Calls about one application take turns (one lock, held for
 * about as long as a decision takes); different applications have nothing in common. After a fork the child must not
 * use applications of its parent.
 *
 * Mistakes. Null, handles that were closed, tickets that have ended, numbers out of range: each is an error, and
 * nothing worse. A handle is a number and no pointer. What cannot be checked is a pointer to nowhere. An error inside
 * the library ends at its boundary, with a line on the standard error output: the call returns TIDEGATE_E_BROKEN, and
 * so do all later ones of that application until it is closed; how the service goes on is the caller's decision.
 *
 * Texts that a function gives through a `char **` are the caller's: end them with tidegate_free. Texts that a
 * function returns are the library's, and stay. All are UTF-8 and end with a null character.
 */
#ifndef TIDEGATE_H
#define TIDEGATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What this header says. A program should compare it with tidegate_abi_version() when it starts: other numbers do not
 * go together. It changes with every struct, number or function that is changed or goes, not with one
 * that is added. */
#define TIDEGATE_ABI_VERSION 1

/* An application, from tidegate_open. 0 is none. */
typedef uint64_t tidegate_app;

/* In what calls return. */
#define TIDEGATE_POLL 1
#define TIDEGATE_SOONER 2

/* Errors. */
#define TIDEGATE_E_ARGUMENT (-1) /* a pointer is null or not aligned, a number out of range, a name unknown */
#define TIDEGATE_E_HANDLE (-2)   /* no application has the handle */
#define TIDEGATE_E_TICKET (-3)   /* no request has the ticket, or the call does not go with what it does */
#define TIDEGATE_E_CONFIG (-4)   /* the configuration makes no sense */
#define TIDEGATE_E_BROKEN (-5)   /* an error inside the library: close the application */
#define TIDEGATE_E_FULL (-6)     /* there are 1024 applications in the process */

/* tidegate_decision.kind */
#define TIDEGATE_ADMITTED 1 /* begin, and say when it is done: tidegate_complete */
#define TIDEGATE_WAITS 2    /* another decision will come from tidegate_poll */
#define TIDEGATE_REFUSED 3  /* answer with a refusal; there is nothing to be said of it any more */

/* tidegate_end.end */
#define TIDEGATE_ANSWERED 0      /* to the last byte, with a status below 500 */
#define TIDEGATE_FAILED 1        /* with a status of 500 or more, or not to the end */
#define TIDEGATE_TIMED_OUT 2     /* a time-out of the service ended it */
#define TIDEGATE_REFUSED_BELOW 3 /* a service that it needs refused it: a failure that is nobody's here */

/* Who left, for tidegate_abandon. */
#define TIDEGATE_BY_CLIENT 0   /* the client */
#define TIDEGATE_BY_TIME_OUT 1 /* the service, by a time-out of its own */

/* States for tidegate_server. */
#define TIDEGATE_UP 0
#define TIDEGATE_DOWN 1     /* it does not answer */
#define TIDEGATE_DRAINING 2 /* it finishes what it has, and gets nothing new */

/* Forms for tidegate_say. */
#define TIDEGATE_HEADER 0 /* the value of the header field Tidegate-Decision, and what a log should say */
#define TIDEGATE_TEXT 1   /* a sentence for a person, and so the body of a 503 in text/plain */
#define TIDEGATE_JSON 2   /* the same in application/json */
#define TIDEGATE_HTML 3   /* the same in text/html */

/* A request that arrives. All zeros are a request of the most important class of which nothing else is known. */
typedef struct {
    uint64_t deadline_ns; /* when its client stops waiting, on the clock of now_ns; 0: nobody said */
    uint64_t url;         /* a hash of what is asked for, by which costs are learned; 0: not told apart */
    uint64_t tenant;      /* a hash of on whose behalf it comes: a class is shared fairly; 0: not told apart */
    uint64_t session;     /* a hash of what ties it to others that should go to the same server; 0: nothing */
    uint64_t user;        /* yours: comes back in every decision about it */
    uint16_t request_type; /* its kind: place in request_types of the configuration */
    uint8_t class_;       /* its importance: place among the [[class]] of the configuration, 0 is the most important */
    uint8_t is_retry;     /* not 0: it was tried before */
    uint32_t reserved;    /* 0 */
} tidegate_request;

/* What becomes of a request. */
typedef struct {
    uint64_t ticket;         /* admitted or waiting: names it until its end; never 0 then */
    uint64_t user;           /* as in the request */
    uint64_t retry_after_ns; /* refused: when trying again makes sense */
    uint64_t predicted_ns;   /* refused: the response time that was foreseen; 0: none was */
    uint32_t kind;           /* TIDEGATE_ADMITTED, TIDEGATE_WAITS or TIDEGATE_REFUSED */
    uint32_t reason;         /* why refused, for tidegate_reason; 0: it is not */
    uint32_t retry_after_s;  /* the same as retry_after_ns for Retry-After: whole seconds, rounded up, never 0 */
    uint16_t server;         /* admitted: place in servers of the configuration */
    uint8_t class_;          /* as in the request */
    uint8_t shadow;          /* not 0: admitted in shadow mode only; reason says why it would have been refused */
} tidegate_decision;

/* How an admitted request ended. Zeros besides the ticket: it was answered, and took since it was admitted. */
typedef struct {
    uint64_t ticket;
    uint64_t service_time_ns; /* how long the server worked on it; 0: since it was admitted */
    uint64_t bytes;           /* of the answer; 0: not counted */
    uint32_t end;             /* TIDEGATE_ANSWERED, ... */
    uint32_t reserved;        /* 0 */
} tidegate_end;

/* What became of the requests of a class since the start; the last two are now. */
typedef struct {
    uint64_t offered;    /* arrived */
    uint64_t retries;    /* of these, tried before */
    uint64_t admitted;
    uint64_t guaranteed; /* of these, by min_rate of their class */
    uint64_t refused;    /* in shadow mode: would have been */
    uint64_t completed;  /* answered */
    uint64_t in_target;  /* of these, within the target */
    uint64_t failed;     /* or timed out */
    uint64_t cancelled;  /* their clients left */
    uint64_t in_flight;  /* worked on now */
    uint64_t waiting;    /* waiting now */
} tidegate_counts;

/* TIDEGATE_ABI_VERSION of the library. */
uint32_t tidegate_abi_version(void);
/* The library's own version, such as "0.1.0". */
const char *tidegate_version(void);
/* What an error means and what to do. */
const char *tidegate_error(int32_t code);

/* Opens an application. `config` are `length` bytes of TOML; nothing in it is required, and the target is what one
 * wants to say: `target = "100ms"` (docs/embedding.md has all keys). Equal calls after an equal `seed` bring equal
 * decisions. Where TIDEGATE_E_CONFIG comes back, and `problem` is not null, `*problem` says what is wrong, in which
 * line, and what to write: a line for each mistake. Else `*problem` is null. Returns 0, or an error. */
int32_t tidegate_open(const char *config, size_t length, uint64_t seed, tidegate_app *app, char **problem);
/* Puts another configuration in force; what was learned, waits and is worked on is kept. What is wrong changes
 * nothing, and is told as by tidegate_open. Numbers of classes, types and servers may be others: look them up again. */
int32_t tidegate_reload(tidegate_app app, uint64_t now_ns, const char *config, size_t length, char **problem);
/* Closes an application, when other calls with it have returned. Decisions that were not polled will not come any
 * more. Returns 0, or an error. */
int32_t tidegate_close(tidegate_app app);

/* A request arrives. `*decision` is what becomes of it. */
int32_t tidegate_arrive(tidegate_app app, uint64_t now_ns, const tidegate_request *request,
                        tidegate_decision *decision);
/* `count` requests arrive at once, decided in this order. Both lists may be the same memory. Where a class or type is
 * out of range, none of them is decided. */
int32_t tidegate_arrive_many(tidegate_app app, uint64_t now_ns, const tidegate_request *requests, size_t count,
                             tidegate_decision *decisions);
/* An admitted request ended. */
int32_t tidegate_complete(tidegate_app app, uint64_t now_ns, const tidegate_end *end);
/* `count` admitted requests ended. Where some are wrong the others are done, and the first error comes back; then
 * poll and tick as if both flags had been given. */
int32_t tidegate_complete_many(tidegate_app app, uint64_t now_ns, const tidegate_end *ends, size_t count);
/* The answer to an admitted request begins: needed where the target is one of the first byte. */
int32_t tidegate_first_byte(tidegate_app app, uint64_t now_ns, uint64_t ticket);
/* Nobody wants the answer any more and nobody works on it: a request that waits, or work that was stopped. The ticket
 * is dead, and no decision about it will be polled. */
int32_t tidegate_cancel(tidegate_app app, uint64_t now_ns, uint64_t ticket);
/* Nobody wants the answer any more, but the work goes on: it keeps its place. With `is_watched`, until
 * tidegate_complete or tidegate_cancel says that it is over; without, for as long as it is expected to last, and the
 * ticket is dead. Of a request that waits: the same as tidegate_cancel. */
int32_t tidegate_abandon(tidegate_app app, uint64_t now_ns, uint64_t ticket, uint32_t by, int32_t is_watched);

/* Takes up to `most` decisions about requests that waited: each TIDEGATE_ADMITTED or TIDEGATE_REFUSED, with the
 * ticket and the `user` of its request, once. Returns how many, or an error; fewer than `most`: there are no more. */
int32_t tidegate_poll(tidegate_app app, tidegate_decision *decisions, size_t most);
/* Does what is due, and says in `*next_ns` when to come again: within 100 ms. Earlier does no harm. The first is due
 * when the application is opened. */
int32_t tidegate_tick(tidegate_app app, uint64_t now_ns, uint64_t *next_ns);

/* A server is up (all are in the beginning), down, or to finish what it has. */
int32_t tidegate_server(tidegate_app app, uint64_t now_ns, uint16_t server, uint32_t state);
/* Shadow mode: decide and count, refuse nothing, keep nobody waiting. */
int32_t tidegate_shadow(tidegate_app app, uint64_t now_ns, int32_t on);

/* The number of the class, kind of requests or server with this name of `length` bytes. Returns it, or an error. */
int32_t tidegate_class_named(tidegate_app app, const char *name, size_t length);
int32_t tidegate_type_named(tidegate_app app, const char *name, size_t length);
int32_t tidegate_server_named(tidegate_app app, const char *name, size_t length);

/* What became of the requests of a class. Returns 0, or an error. */
int32_t tidegate_count(tidegate_app app, uint64_t now_ns, uint8_t class_, tidegate_counts *counts);
/* Everything there is to see, as JSON: what the sentry shows in /api/state. Returns 0, or an error. */
int32_t tidegate_snapshot(tidegate_app app, uint64_t now_ns, char **json);

/* What is to be told of a refusal, or of one that shadow mode did not carry out, in one of the forms. Returns 0, or
 * an error. */
int32_t tidegate_say(tidegate_app app, const tidegate_decision *decision, uint32_t form, char **said);
/* A reason's name, such as "sla-target"; empty for what is none. */
const char *tidegate_reason(uint32_t reason);
/* A reason in a clause that follows "because"; empty for what is none. */
const char *tidegate_reason_text(uint32_t reason);

/* Frees a text that a function gave through a `char **`. Null is nothing. */
void tidegate_free(char *text);

#ifdef __cplusplus
}
#endif

#endif
