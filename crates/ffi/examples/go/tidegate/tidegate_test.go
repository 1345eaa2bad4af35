package tidegate

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const one = `admission = { policy = "concurrency", limit = 1, queue = 1, queue_timeout = "10s" }`

// holding is a handler that says when it has begun, and goes on when it is told to.
func holding() (http.Handler, chan struct{}, chan struct{}) {
	begun, goOn := make(chan struct{}, 8), make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-goOn
		w.WriteHeader(http.StatusOK)
	}), begun, goOn
}

func ask(g *Gate, ctx context.Context) chan *httptest.ResponseRecorder {
	answered := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		recorder := httptest.NewRecorder()
		g.ServeHTTP(recorder, httptest.NewRequest("GET", "/a", nil).WithContext(ctx))
		answered <- recorder
	}()
	return answered
}

func waitFor(t *testing.T, g *Gate, what string, is func(Counts) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if counts, err := g.Counts(0); err != nil {
			t.Fatal(err)
		} else if is(counts) {
			return
		}
	}
	t.Fatalf("not within 30 s: %s", what)
}

func newGate(t *testing.T, config string, next http.Handler) *Gate {
	t.Helper()
	gate, err := NewGate(config, next, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(gate.Close)
	return gate
}

func TestOneIsServedOneWaitsAndTheThirdIsToldWhy(t *testing.T) {
	handler, begun, goOn := holding()
	gate := newGate(t, one, handler)
	first := ask(gate, context.Background())
	<-begun
	second := ask(gate, context.Background())
	waitFor(t, gate, "the second waits", func(c Counts) bool { return c.Waiting == 1 })
	third := <-ask(gate, context.Background())
	if third.Code != 503 || third.Header().Get("Retry-After") == "" {
		t.Fatalf("the third got %d %v", third.Code, third.Header())
	}
	const why = "rejected; reason=queue-full; policy=concurrency; class=default"
	if said := third.Header().Get("Tidegate-Decision"); said != why {
		t.Fatalf("it said %q", said)
	}
	if body := third.Body.String(); !strings.Contains(body, "because the queue is full") {
		t.Fatalf("it said %q", body)
	}
	goOn <- struct{}{}
	<-begun
	goOn <- struct{}{}
	if a, b := (<-first).Code, (<-second).Code; a != 200 || b != 200 {
		t.Fatalf("the others got %d and %d", a, b)
	}
	counts, _ := gate.Counts(0)
	if counts.Offered != 3 || counts.Completed != 2 || counts.Refused != 1 {
		t.Fatalf("%+v", counts)
	}
}

func TestWhoLeavesWhileWaitingIsForgotten(t *testing.T) {
	handler, begun, goOn := holding()
	gate := newGate(t, one, handler)
	first := ask(gate, context.Background())
	<-begun
	ctx, leave := context.WithCancel(context.Background())
	second := ask(gate, ctx)
	waitFor(t, gate, "the second waits", func(c Counts) bool { return c.Waiting == 1 })
	leave()
	<-second
	goOn <- struct{}{}
	<-first
	counts, _ := gate.Counts(0)
	if counts.Cancelled != 1 || counts.Completed != 1 || counts.Waiting+counts.InFlight != 0 {
		t.Fatalf("%+v", counts)
	}
	if len(gate.waiters.by) != 0 {
		t.Fatalf("%d are still waited for", len(gate.waiters.by))
	}
}

func TestAHandlerThatPanicsGivesItsPlaceBack(t *testing.T) {
	gate := newGate(t, one, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a mistake") }))
	func() {
		defer func() {
			if recover() == nil {
				t.Fatal("the panic is gone")
			}
		}()
		gate.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/a", nil))
	}()
	counts, _ := gate.Counts(0)
	if counts.Failed != 1 || counts.InFlight != 0 {
		t.Fatalf("%+v", counts)
	}
}

func TestAMistakeInTheConfigurationIsTold(t *testing.T) {
	_, err := Open(`targte = "100ms"`, 1)
	if err == nil || !strings.Contains(err.Error(), `did you mean "target"?`) {
		t.Fatalf("%v", err)
	}
}

func TestAClosedApplicationIsAnErrorAndTheServiceServesOn(t *testing.T) {
	gate := newGate(t, one, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }))
	gate.app.Close()
	if _, _, err := gate.app.Arrive(0, Request{}); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Fatalf("%v", err)
	}
	if got := (<-ask(gate, context.Background())).Code; got != 204 {
		t.Fatalf("got %d", got)
	}
}

func TestManyAtOnce(t *testing.T) {
	app, err := Open(one, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	requests, decisions := []Request{{User: 1}, {User: 2}, {User: 3}}, make([]Decision, 3)
	if _, err := app.ArriveMany(0, requests, decisions); err != nil {
		t.Fatal(err)
	}
	kinds := [3]Kind{decisions[0].Kind, decisions[1].Kind, decisions[2].Kind}
	if kinds != [3]Kind{Admitted, Waits, Refused} || decisions[2].User != 3 || decisions[2].RetryAfterSeconds == 0 {
		t.Fatalf("%+v", decisions)
	}
	flags, err := app.CompleteMany(time.Millisecond, []Ended{{Ticket: decisions[0].Ticket}})
	if err != nil || flags&Poll == 0 || app.Poll(decisions) != 1 || decisions[0].User != 2 {
		t.Fatalf("%v %v %+v", flags, err, decisions[0])
	}
	if text, err := app.Snapshot(time.Millisecond); err != nil || !strings.Contains(text, `"completed":1`) {
		t.Fatalf("%v %v", text, err)
	}
}
