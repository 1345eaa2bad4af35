// Package tidegate keeps a service useful under overload: it decides in the service's own process which requests to
// work on now, which later, and which not at all. It is libtidegate (crates/ffi) for Go.
//
// Build the library first, with cargo build --release -p tidegate-ffi. Where it lies elsewhere than in target/release,
// say so in CGO_LDFLAGS.
package tidegate

/*
#cgo CFLAGS: -I${SRCDIR}/../../../include
#cgo LDFLAGS: -L${SRCDIR}/../../../../../target/release -l:libtidegate.a -lm -ldl -lpthread
#include <stdlib.h>
#include "tidegate.h"

// Arguments and answers are values here: what Go passes by a pointer it allocates.
typedef struct {
	tidegate_decision decision;
	int32_t code;
} arrived;

static arrived arrive_value(tidegate_app app, uint64_t now, uint64_t user, uint64_t url, uint16_t type,
                            uint8_t class_) {
	tidegate_request request = {.user = user, .url = url, .request_type = type, .class_ = class_};
	arrived it = {0};
	it.code = tidegate_arrive(app, now, &request, &it.decision);
	return it;
}

static int32_t complete_value(tidegate_app app, uint64_t now, uint64_t ticket, uint64_t service_time, uint32_t how) {
	tidegate_end end = {.ticket = ticket, .service_time_ns = service_time, .end = how};
	return tidegate_complete(app, now, &end);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"
)

// Kind says what becomes of a request.
type Kind uint32

const (
	Admitted Kind = C.TIDEGATE_ADMITTED // begin, and say when it is done
	Waits    Kind = C.TIDEGATE_WAITS    // the decision comes from Poll
	Refused  Kind = C.TIDEGATE_REFUSED  // answer with a refusal
)

// End says how an admitted request ended.
type End uint32

const (
	Answered     End = C.TIDEGATE_ANSWERED      // with a status below 500
	Failed       End = C.TIDEGATE_FAILED        // with another, or not to the end
	TimedOut     End = C.TIDEGATE_TIMED_OUT     // by a time-out of the service
	RefusedBelow End = C.TIDEGATE_REFUSED_BELOW // by a service that it needs
)

// Flags of a call: what the caller has to do next.
type Flags int32

const (
	Poll   Flags = C.TIDEGATE_POLL   // there are decisions for Poll
	Sooner Flags = C.TIDEGATE_SOONER // Tick is due now
)

// Request is a request that arrives. All zeros are a request of the most important class of which nothing else is
// known. It is laid out as tidegate_request.
type Request struct {
	Deadline time.Duration // when its client stops waiting; 0: nobody said
	URL      uint64        // a hash of what is asked for; 0: not told apart
	Tenant   uint64        // a hash of on whose behalf it comes; 0: not told apart
	Session  uint64        // a hash of what ties it to others at one server; 0: nothing
	User     uint64        // the caller's: comes back with each decision about it
	Type     uint16        // its place in request_types
	Class    uint8         // its place among the classes; 0 is the most important
	IsRetry  uint8         // not 0: it was tried before
	_        uint32
}

// Decision is what becomes of a request, laid out as tidegate_decision.
type Decision struct {
	Ticket            uint64        // names it until its end
	User              uint64        // as in the request
	RetryAfter        time.Duration // refused: when to come back
	Predicted         time.Duration // refused: the response time that was foreseen; 0: none was
	Kind              Kind
	Reason            uint32 // why refused; 0: it is not
	RetryAfterSeconds uint32 // for Retry-After
	Server            uint16 // admitted: place in servers
	Class             uint8  // as in the request
	Shadow            uint8  // not 0: admitted in shadow mode only
}

// Ended is an admitted request that ended, laid out as tidegate_end.
type Ended struct {
	Ticket uint64
	Took   time.Duration // how long the work took; 0: since it was admitted
	Bytes  uint64        // of the answer; 0: not counted
	How    End
	_      uint32
}

// Counts are what became of the requests of a class since the start; the last two are now. Laid out as
// tidegate_counts.
type Counts struct {
	Offered, Retries, Admitted, Guaranteed, Refused, Completed, InTarget, Failed, Cancelled, InFlight, Waiting uint64
}

// The header's structs are as large; the version of the ABI says that they are the same.
var (
	_ [C.sizeof_tidegate_request]byte  = [unsafe.Sizeof(Request{})]byte{}
	_ [C.sizeof_tidegate_decision]byte = [unsafe.Sizeof(Decision{})]byte{}
	_ [C.sizeof_tidegate_end]byte      = [unsafe.Sizeof(Ended{})]byte{}
	_ [C.sizeof_tidegate_counts]byte   = [unsafe.Sizeof(Counts{})]byte{}
)

// App is one application. All its methods may be called by all goroutines.
type App struct {
	handle C.tidegate_app
}

// Open reads a configuration, such as `target = "100ms"`, and begins. The error tells every mistake in it, each with
// its line.
func Open(config string, seed uint64) (App, error) {
	if found := C.tidegate_abi_version(); found != C.TIDEGATE_ABI_VERSION {
		return App{}, fmt.Errorf("libtidegate speaks version %d, and this was compiled for %d", found, C.TIDEGATE_ABI_VERSION)
	}
	text := C.CString(config)
	defer C.free(unsafe.Pointer(text))
	var app C.tidegate_app
	var problem *C.char
	if code := C.tidegate_open(text, C.size_t(len(config)), C.uint64_t(seed), &app, &problem); code != 0 {
		if problem != nil {
			return App{}, errors.New(taken(problem))
		}
		return App{}, failure(code)
	}
	return App{app}, nil
}

// Close ends it, once other calls have returned.
func (a App) Close() { C.tidegate_close(a.handle) }

// Arrive decides about a request at `now`. Of what can be said of a request it passes on what the gate knows; the rest
// goes by ArriveMany.
func (a App) Arrive(now time.Duration, r Request) (Decision, Flags, error) {
	it := C.arrive_value(a.handle, C.uint64_t(now), C.uint64_t(r.User), C.uint64_t(r.URL), C.uint16_t(r.Type),
		C.uint8_t(r.Class))
	flags, err := checked(it.code)
	return *(*Decision)(unsafe.Pointer(&it.decision)), flags, err
}

// ArriveMany decides about requests that arrive at once: one call for all of them. Decisions go to `into`, which is as
// long.
func (a App) ArriveMany(now time.Duration, requests []Request, into []Decision) (Flags, error) {
	if len(into) < len(requests) {
		return 0, failure(C.TIDEGATE_E_ARGUMENT)
	}
	if len(requests) == 0 {
		return 0, nil
	}
	from, to := (*C.tidegate_request)(unsafe.Pointer(&requests[0])), (*C.tidegate_decision)(unsafe.Pointer(&into[0]))
	return checked(C.tidegate_arrive_many(a.handle, C.uint64_t(now), from, C.size_t(len(requests)), to))
}

// Complete says that an admitted request ended; `took` is how long the work took, and 0: since it was admitted.
func (a App) Complete(now time.Duration, ticket uint64, took time.Duration, how End) (Flags, error) {
	return checked(C.complete_value(a.handle, C.uint64_t(now), C.uint64_t(ticket), C.uint64_t(took), C.uint32_t(how)))
}

// CompleteMany says the same of several.
func (a App) CompleteMany(now time.Duration, ends []Ended) (Flags, error) {
	if len(ends) == 0 {
		return 0, nil
	}
	from := (*C.tidegate_end)(unsafe.Pointer(&ends[0]))
	return checked(C.tidegate_complete_many(a.handle, C.uint64_t(now), from, C.size_t(len(ends))))
}

// Cancel says that nobody wants the answer and nobody works on it: of a request that waits, that its client left.
func (a App) Cancel(now time.Duration, ticket uint64) (Flags, error) {
	return checked(C.tidegate_cancel(a.handle, C.uint64_t(now), C.uint64_t(ticket)))
}

// Poll takes decisions about requests that waited: how many.
func (a App) Poll(into []Decision) int {
	if len(into) == 0 {
		return 0
	}
	return int(C.tidegate_poll(a.handle, (*C.tidegate_decision)(unsafe.Pointer(&into[0])), C.size_t(len(into))))
}

// Tick does what is due, and says when to come again.
func (a App) Tick(now time.Duration) (time.Duration, Flags, error) {
	var next C.uint64_t
	flags, err := checked(C.tidegate_tick(a.handle, C.uint64_t(now), &next))
	return time.Duration(next), flags, err
}

// Counts says what became of the requests of a class.
func (a App) Counts(now time.Duration, class uint8) (Counts, error) {
	var counts Counts
	into := (*C.tidegate_counts)(unsafe.Pointer(&counts))
	_, err := checked(C.tidegate_count(a.handle, C.uint64_t(now), C.uint8_t(class), into))
	return counts, err
}

// Snapshot is everything there is to see, as JSON.
func (a App) Snapshot(now time.Duration) (string, error) {
	var text *C.char
	if code := C.tidegate_snapshot(a.handle, C.uint64_t(now), &text); code != 0 {
		return "", failure(code)
	}
	return taken(text), nil
}

// Say is what a refused client is told: the header field Tidegate-Decision, and the body.
func (a App) Say(d Decision) (header, body string) {
	var texts [2]string
	for at, form := range [2]C.uint32_t{C.TIDEGATE_HEADER, C.TIDEGATE_TEXT} {
		var text *C.char
		if C.tidegate_say(a.handle, (*C.tidegate_decision)(unsafe.Pointer(&d)), form, &text) == 0 {
			texts[at] = taken(text)
		}
	}
	return texts[0], texts[1]
}

// Nothing crosses to C and back: it measures what a call costs that does nothing.
func Nothing() { C.tidegate_abi_version() }

func checked(code C.int32_t) (Flags, error) {
	if code < 0 {
		return 0, failure(code)
	}
	return Flags(code), nil
}

func failure(code C.int32_t) error {
	return errors.New("tidegate: " + C.GoString(C.tidegate_error(code)))
}

func taken(text *C.char) string {
	defer C.tidegate_free(text)
	return C.GoString(text)
}

// waiters are the requests that wait, by the number that goes with each.
type waiters struct {
	mutex sync.Mutex
	last  uint64
	by    map[uint64]chan Decision
}

func (w *waiters) enter() (uint64, chan Decision) {
	// Room for one: who delivers does not wait, and there is one decision for each.
	decided := make(chan Decision, 1)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.last++
	w.by[w.last] = decided
	return w.last, decided
}

func (w *waiters) leave(user uint64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	delete(w.by, user)
}

func (w *waiters) deliver(d Decision) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if decided, ok := w.by[d.User]; ok {
		decided <- d
	}
}
