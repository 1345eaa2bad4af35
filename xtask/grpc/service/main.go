// A service of known capacity, over gRPC and over plain HTTP/2: a pool of workers, each of which takes a fixed time for
// a call. Like most services it has no bound on what waits for a worker. It honours deadlines: a call that nobody waits
// for any more gets no worker. `/counts` tells what it did.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// What the service did since it began.
type counts struct {
	// Calls that got a worker.
	Begun atomic.Int64
	// Calls that left before they had one.
	Expired atomic.Int64
	// Calls that nobody waited for when their work was done.
	Wasted atomic.Int64
	// Calls that said they had been tried before.
	Retried atomic.Int64
}

func (c *counts) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]int64{
		"begun": c.Begun.Load(), "expired": c.Expired.Load(), "wasted": c.Wasted.Load(), "retried": c.Retried.Load(),
	})
}

// The workers that are free, each as how much longer than it should it has worked, and how long one takes for a call.
//
// A timer fires late, by up to a millisecond while nothing else wakes the process: a twentieth of the work, more or less
// of it depending on who asks. What a call took too long the worker's next one takes less, so that workers who are kept
// busy do exactly what they should. The time until a free worker gets its next call is lost as it is anywhere.
type pool struct {
	free chan time.Duration
	work time.Duration
	done counts
}

func newPool(workers int, work time.Duration) *pool {
	p := &pool{free: make(chan time.Duration, workers), work: work}
	for range workers {
		p.free <- 0
	}
	return p
}

// serve waits for a worker, and for its work. An error says that nobody waits any more.
func (p *pool) serve(ctx context.Context) error {
	var over time.Duration
	select {
	case over = <-p.free:
		defer func() { p.free <- over }()
	case <-ctx.Done():
		p.done.Expired.Add(1)
		return ctx.Err()
	}
	// Both may have been so.
	if err := ctx.Err(); err != nil {
		p.done.Expired.Add(1)
		return err
	}
	p.done.Begun.Add(1)
	began := time.Now()
	time.Sleep(p.work - over)
	over += time.Since(began) - p.work
	if err := ctx.Err(); err != nil {
		p.done.Wasted.Add(1)
		return err
	}
	return nil
}

// method answers a call with what it brought.
func method(name string) grpc.MethodDesc {
	handler := func(server any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		p := server.(*pool)
		in := new(wrapperspb.BytesValue)
		if err := decode(in); err != nil {
			return nil, err
		}
		if fields, ok := metadata.FromIncomingContext(ctx); ok && len(fields.Get("grpc-previous-rpc-attempts")) > 0 {
			p.done.Retried.Add(1)
		}
		if err := p.serve(ctx); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		return in, nil
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

var shop = grpc.ServiceDesc{
	ServiceName: "tidegate.live.Shop",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{method("Order"), method("Report")},
}

func serveHTTP(p *pool, listener net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/counts", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(&p.done)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if p.serve(r.Context()) == nil {
			_, _ = w.Write([]byte("done\n"))
		}
	})
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 10_000}}
	return server.Serve(listener)
}

func serveGRPC(p *pool, listener net.Listener) error {
	server := grpc.NewServer()
	server.RegisterService(&shop, p)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	return server.Serve(listener)
}

func main() {
	grpcAt := flag.String("grpc", "127.0.0.1:0", "where to listen for gRPC")
	httpAt := flag.String("http", "127.0.0.1:0", "where to listen for HTTP/1.1 and HTTP/2 without TLS")
	workers := flag.Int("workers", 4, "calls at work at once")
	work := flag.Duration("work", 20*time.Millisecond, "how long a worker takes for a call")
	flag.Parse()
	if *workers < 1 || *work <= 0 {
		log.Fatal("-workers and -work must be positive")
	}
	p := newPool(*workers, *work)
	ended := make(chan error, 2)
	for at, serve := range map[string]func(*pool, net.Listener) error{*grpcAt: serveGRPC, *httpAt: serveHTTP} {
		listener, err := net.Listen("tcp", at)
		if err != nil {
			log.Fatal(err)
		}
		go func() { ended <- serve(p, listener) }()
	}
	log.Fatal(errors.Join(<-ended))
}
