// Rate counts how many requests libtidegate decides in a second of one core from Go: an arrival and an end each. It is
// the processor's time that is counted, as other programs may have a part of the machine. The same requests, decided in
// Rust without a boundary: cargo run --release -p tidegate-ffi --example rate.
//
// Time is an argument, so the requests come in virtual time: to a server that takes one after the other, each for 100
// microseconds, at half of what it can serve and at three times of it.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"tidegate.example/embedding/tidegate"
)

const (
	service = 100 * time.Microsecond
	config  = `target = "100ms"`
	// How many requests arrive in one call, and end in one, where calls are batched.
	batch = 16
)

// server takes one request after the other.
type server struct {
	app     tidegate.App
	freeAt  time.Duration
	work    []tidegate.Ended // with when each is done in Took
	first   int              // of them, those before are done
	polled  [batch]tidegate.Decision
	due     time.Duration
	refused int
}

func (s *server) take(now time.Duration, d tidegate.Decision) {
	switch d.Kind {
	case tidegate.Admitted:
		if s.freeAt < now {
			s.freeAt = now
		}
		s.freeAt += service
		s.work = append(s.work, tidegate.Ended{Ticket: d.Ticket, Took: s.freeAt})
	case tidegate.Refused:
		s.refused++
	}
}

// follow takes up what a call asks for.
func (s *server) follow(now time.Duration, flags tidegate.Flags, err error) {
	check(err)
	if flags&tidegate.Poll != 0 {
		for {
			count := s.app.Poll(s.polled[:])
			for _, d := range s.polled[:count] {
				s.take(now, d)
			}
			if count < len(s.polled) {
				break
			}
		}
	}
	if flags&tidegate.Sooner != 0 {
		s.due = now
	}
}

// until ends what is done until `now`, one call for each, and ticks when that is due.
func (s *server) until(now time.Duration) {
	for s.first < len(s.work) && s.work[s.first].Took <= now {
		ended := s.work[s.first]
		s.forget(1)
		flags, err := s.app.Complete(ended.Took, ended.Ticket, service, tidegate.Answered)
		s.follow(ended.Took, flags, err)
	}
	s.tick(now)
}

// untilMany ends the same in one call.
func (s *server) untilMany(now time.Duration) {
	under := s.work[s.first:]
	count := 0
	for count < len(under) && under[count].Took <= now {
		under[count].Took = service
		count++
	}
	flags, err := s.app.CompleteMany(now, under[:count])
	s.forget(count)
	s.follow(now, flags, err)
	s.tick(now)
}

// forget takes the first ones off; the list moves to its beginning now and then, so that it does not grow.
func (s *server) forget(count int) {
	s.first += count
	if s.first >= 1024 {
		s.work = s.work[:copy(s.work, s.work[s.first:])]
		s.first = 0
	}
}

func (s *server) tick(now time.Duration) {
	if now >= s.due {
		next, flags, err := s.app.Tick(now)
		s.due = next
		s.follow(now, flags&^tidegate.Sooner, err)
	}
}

// play decides about `count` requests that come every `between`, and says how many per second and how many it refused.
func play(count int, between time.Duration, isBatched bool) (perSecond float64, refused int) {
	app, err := tidegate.Open(config, 7)
	check(err)
	defer app.Close()
	s := &server{app: app}
	requests, decisions := make([]tidegate.Request, batch), make([]tidegate.Decision, batch)
	begun := processorTime()
	var now time.Duration
	for at := 0; at < count; {
		if isBatched {
			now += batch * between
			s.untilMany(now)
			flags, err := app.ArriveMany(now, requests, decisions)
			for _, d := range decisions {
				s.take(now, d)
			}
			s.follow(now, flags, err)
			at += batch
		} else {
			now += between
			s.until(now)
			d, flags, err := app.Arrive(now, tidegate.Request{})
			s.take(now, d)
			s.follow(now, flags, err)
			at++
		}
	}
	took := (processorTime() - begun).Seconds()
	return float64(count) / took, s.refused
}

func main() {
	count := flag.Int("requests", 2_000_000, "how many requests, of each kind")
	flag.Parse()
	runtime.GOMAXPROCS(1)
	begun := processorTime()
	for at := 0; at < *count; at++ {
		tidegate.Nothing()
	}
	fmt.Printf("a call to C that does nothing: %d ns\n", (processorTime()-begun).Nanoseconds()/int64(*count))
	for _, load := range []struct {
		name    string
		between time.Duration
	}{{"half", 2 * service}, {"three times", service / 3}} {
		for _, isBatched := range []bool{false, true} {
			how := "a call each"
			if isBatched {
				how = fmt.Sprintf("%d in a call", batch)
			}
			perSecond, refused := play(*count, load.between, isBatched)
			fmt.Printf("%s what can be served, %s: %.2f M requests/s decided, %d refused\n",
				load.name, how, perSecond/1e6, refused)
		}
	}
}

// processorTime is what the process has had.
func processorTime() time.Duration {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
