// A gRPC client that tries again as its service config says, and tells when it did: whether it was told how long to
// wait (`grpc-retry-pushback-ms`), and how long it waited.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Without a push-back it would try again after at most a hundredth of this.
const config = `{"methodConfig": [{"name": [{"service": "tidegate.live.Shop"}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.01s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// attempt is one try of a call; times are milliseconds since the call began.
type attempt struct {
	Began float64 `json:"began"`
	Ended float64 `json:"ended"`
	// What it was told; absent if nothing.
	Pushback *int `json:"pushback,omitempty"`
}

// call is what came of a call.
type call struct {
	Code     string    `json:"code"`
	Attempts []attempt `json:"attempts"`

	since time.Time
	lock  sync.Mutex
}

func (c *call) now() float64 {
	return float64(time.Since(c.since).Microseconds()) / 1e3
}

type callKey struct{}
type attemptKey struct{}

// tries notes the attempts of each call in it.
type tries struct{}

func (tries) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	c := ctx.Value(callKey{}).(*call)
	c.lock.Lock()
	defer c.lock.Unlock()
	c.Attempts = append(c.Attempts, attempt{Began: c.now()})
	return context.WithValue(ctx, attemptKey{}, len(c.Attempts)-1)
}

func (tries) HandleRPC(ctx context.Context, event stats.RPCStats) {
	c, number := ctx.Value(callKey{}).(*call), ctx.Value(attemptKey{}).(int)
	c.lock.Lock()
	defer c.lock.Unlock()
	own := &c.Attempts[number]
	switch event := event.(type) {
	case *stats.InTrailer:
		if said := event.Trailer.Get("grpc-retry-pushback-ms"); len(said) > 0 {
			if pushback, err := strconv.Atoi(said[0]); err == nil {
				own.Pushback = &pushback
			}
		}
	case *stats.End:
		own.Ended = c.now()
	}
}

func (tries) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (tries) HandleConn(context.Context, stats.ConnStats) {}

func main() {
	to := flag.String("to", "", "the address to call")
	method := flag.String("method", "/tidegate.live.Shop/Report", "the method to call")
	calls := flag.Int("calls", 50, "how many calls")
	every := flag.Duration("every", 20*time.Millisecond, "between two calls' beginnings")
	deadline := flag.Duration("deadline", 10*time.Second, "of each call")
	flag.Parse()
	connection, err := grpc.NewClient(*to, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultServiceConfig(config), grpc.WithStatsHandler(tries{}))
	if err != nil {
		log.Fatal(err)
	}
	all := make([]*call, *calls)
	var under sync.WaitGroup
	for i := range all {
		all[i] = &call{since: time.Now(), Attempts: []attempt{}}
		under.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), callKey{}, all[i]), *deadline)
			defer cancel()
			answer := new(wrapperspb.BytesValue)
			err := connection.Invoke(ctx, *method, wrapperspb.Bytes([]byte("x")), answer)
			all[i].Code = status.Code(err).String()
		})
		time.Sleep(*every)
	}
	under.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(all); err != nil {
		log.Fatal(err)
	}
}
