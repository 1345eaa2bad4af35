// Shop is a service with tidegate's middleware in front of it, and the load that shows what for: three times what it
// can serve, without the gate and with it. It listens on loopback only.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"sync"
	"time"

	"tidegate.example/embedding/tidegate"
)

const (
	target = 100 * time.Millisecond
	places = 4                     // requests that the service works on at once
	work   = 10 * time.Millisecond // on each: 400 requests/s
	rate   = 1200                  // requests/s that arrive
	giveUp = time.Second           // when a client leaves
)

// shop does its work in a few places; who finds none free waits for one, in the order of arrival.
func shop() http.Handler {
	free := make(chan struct{}, places)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		free <- struct{}{}
		time.Sleep(work)
		<-free
		fmt.Fprintln(w, "sold")
	})
}

// result is what clients saw.
type result struct {
	mutex               sync.Mutex
	good, late, refused int
	gaveUp              int
	times               []time.Duration // of the answers
	slowestRefusal      time.Duration
}

func (r *result) note(status int, took time.Duration) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	switch {
	case status == http.StatusOK:
		r.times = append(r.times, took)
		if took <= target {
			r.good++
		} else {
			r.late++
		}
	case status == http.StatusServiceUnavailable:
		r.refused++
		if took > r.slowestRefusal {
			r.slowestRefusal = took
		}
	default:
		r.gaveUp++
	}
}

// load sends requests at the rate, whether they are answered or not, and times each from when it was due.
func load(url string, during time.Duration) (*result, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: rate, DisableCompression: true}}
	defer client.CloseIdleConnections()
	seen := &result{}
	var under sync.WaitGroup
	begun := time.Now()
	for at := 0; at < int(during.Seconds()*rate); at++ {
		due := begun.Add(time.Duration(at) * time.Second / rate)
		time.Sleep(time.Until(due))
		under.Add(1)
		go func() {
			defer under.Done()
			seen.note(get(client, url), time.Since(due))
		}()
	}
	under.Wait()
	if len(seen.times)+seen.refused+seen.gaveUp == 0 {
		return nil, fmt.Errorf("nothing was asked; give it more than %v", during)
	}
	return seen, nil
}

// get gives the status, or 0 where the client left before it had the answer.
func get(client *http.Client, url string) int {
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return 0
	}
	return response.StatusCode
}

// try serves with a handler on loopback while the load comes.
func try(name string, handler http.Handler, during time.Duration) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	seen, err := load("http://"+listener.Addr().String()+"/", during)
	if err != nil {
		return err
	}
	sort.Slice(seen.times, func(a, b int) bool { return seen.times[a] < seen.times[b] })
	p95 := time.Duration(0)
	if len(seen.times) > 0 {
		p95 = seen.times[len(seen.times)*95/100]
	}
	per := func(count int) float64 { return float64(count) / during.Seconds() }
	fmt.Printf("%s: in time %.0f/s, late %.0f/s, refused %.0f/s, given up %.0f/s; p95 %d ms; slowest refusal %d ms\n",
		name, per(seen.good), per(seen.late), per(seen.refused), per(seen.gaveUp), p95.Milliseconds(),
		seen.slowestRefusal.Milliseconds())
	return nil
}

func run() error {
	during := flag.Duration("during", 10*time.Second, "how long the load lasts, each time")
	flag.Parse()
	fmt.Printf("the service: %d/s; what arrives: %d/s; the target: %v\n",
		places*int(time.Second/work), rate, target)
	if err := try("without", shop(), *during); err != nil {
		return err
	}
	gate, err := tidegate.NewGate(`target = "100ms"`, shop(), nil)
	if err != nil {
		return err
	}
	defer gate.Close()
	return try("with", gate, *during)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
