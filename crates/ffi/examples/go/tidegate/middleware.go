package tidegate

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"time"
)

// Gate stands in front of a handler.
type Gate struct {
	app     App
	next    http.Handler
	classOf func(*http.Request) uint8
	origin  time.Time
	seed    maphash.Seed
	waiters waiters
	sooner  chan struct{}
	done    chan struct{}
}

// NewGate puts a gate in front of `next`: what cannot be answered within the target is answered with 503 at once, and
// says when to come back. `classOf` says how important a request is, 0 most; nil: all are alike.
func NewGate(config string, next http.Handler, classOf func(*http.Request) uint8) (*Gate, error) {
	app, err := Open(config, uint64(time.Now().UnixNano()))
	if err != nil {
		return nil, err
	}
	if classOf == nil {
		classOf = func(*http.Request) uint8 { return 0 }
	}
	gate := &Gate{
		app: app, next: next, classOf: classOf, origin: time.Now(), seed: maphash.MakeSeed(),
		waiters: waiters{by: map[uint64]chan Decision{}},
		sooner:  make(chan struct{}, 1), done: make(chan struct{}),
	}
	go gate.ticking()
	return gate, nil
}

// Close ends the gate, when its server has ended.
func (g *Gate) Close() {
	close(g.done)
	g.app.Close()
}

// Counts says what became of the requests of a class.
func (g *Gate) Counts(class uint8) (Counts, error) { return g.app.Counts(g.now(), class) }

// ServeHTTP decides, waits where that is the decision, and lets the handler answer or refuses.
func (g *Gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, decided := g.waiters.enter()
	defer g.waiters.leave(user)
	url := maphash.String(g.seed, r.URL.Path)
	decision, flags, err := g.app.Arrive(g.now(), Request{User: user, URL: url, Class: g.classOf(r)})
	if err != nil {
		// Without a decision the service is as it was without a gate.
		g.next.ServeHTTP(w, r)
		return
	}
	g.follow(flags)
	if decision.Kind == Waits {
		select {
		case decision = <-decided:
		case <-r.Context().Done():
			// An error says that it was refused meanwhile: nobody is there to be told.
			flags, _ := g.app.Cancel(g.now(), decision.Ticket)
			g.follow(flags)
			return
		}
	}
	if decision.Kind == Refused {
		g.refuse(w, decision)
		return
	}
	g.serve(w, r, decision.Ticket)
}

// serve lets the handler answer, and says how that ended, even by a panic.
func (g *Gate) serve(w http.ResponseWriter, r *http.Request, ticket uint64) {
	how := Failed
	writer := &watched{ResponseWriter: w, status: http.StatusOK}
	begun := time.Now()
	defer func() {
		var flags Flags
		if r.Context().Err() != nil {
			flags, _ = g.app.Cancel(g.now(), ticket)
		} else {
			flags, _ = g.app.Complete(g.now(), ticket, time.Since(begun), how)
		}
		g.follow(flags)
	}()
	g.next.ServeHTTP(writer, r)
	if writer.status < 500 {
		how = Answered
	}
}

func (g *Gate) refuse(w http.ResponseWriter, d Decision) {
	header, body := g.app.Say(d)
	w.Header().Set("Retry-After", strconv.FormatUint(uint64(d.RetryAfterSeconds), 10))
	w.Header().Set("Tidegate-Decision", header)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(body))
}

// follow does what a call asks for: decisions go to those who wait for them, and the timer is woken.
func (g *Gate) follow(flags Flags) {
	if flags&Poll != 0 {
		var decisions [64]Decision
		for {
			count := g.app.Poll(decisions[:])
			for at := 0; at < count; at++ {
				g.waiters.deliver(decisions[at])
			}
			if count < len(decisions) {
				break
			}
		}
	}
	if flags&Sooner != 0 {
		select {
		case g.sooner <- struct{}{}:
		default:
		}
	}
}

func (g *Gate) ticking() {
	for {
		next, flags, err := g.app.Tick(g.now())
		if err != nil {
			return
		}
		g.follow(flags &^ Sooner)
		timer := time.NewTimer(next - g.now())
		select {
		case <-timer.C:
		case <-g.sooner:
			timer.Stop()
		case <-g.done:
			timer.Stop()
			return
		}
	}
}

// now is the time since the gate was made, by a clock that never goes back.
func (g *Gate) now() time.Duration { return time.Since(g.origin) }

// watched remembers the status.
type watched struct {
	http.ResponseWriter
	status int
}

func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
