package fake

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Listen binds to an address of this machine's loopback, e.g. "127.0.0.1:0" or "localhost:8080"; every
// other one is refused: the server trusts whoever reaches it.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("fake: %w", err)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.Unmap().IsLoopback()) {
		return nil, fmt.Errorf("fake: %q is not an address of the loopback, such as 127.0.0.1:0", addr)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("fake: %w", err)
	}
	// A name is what the hosts file makes of it.
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("fake: %q leads to %s, which is not the loopback", addr, l.Addr())
	}
	return l, nil
}

// BaseURL is what a client of a server on l is configured with.
func BaseURL(l net.Listener) string { return "http://" + l.Addr().String() + "/v1" }

// Serve answers the requests that come in on l with h until the end of ctx, then closes every connection,
// waits for the handlers and returns nil. It takes l over.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	// A connection may begin a request while the server closes: from then on none gets to its handler.
	var mu sync.Mutex
	var closing bool
	var handlers sync.WaitGroup
	srv := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			if closing {
				mu.Unlock()
				panic(http.ErrAbortHandler)
			}
			handlers.Add(1)
			mu.Unlock()
			defer handlers.Done()
			h.ServeHTTP(w, r)
		}),
	}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	err := srv.Serve(l)
	if !stop() {
		err = nil
	}
	mu.Lock()
	closing = true
	mu.Unlock()
	srv.Close()
	handlers.Wait()
	return err
}
