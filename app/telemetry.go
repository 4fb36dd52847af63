package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"

	"github.com/strandline-dev/strandline/config"
	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/redact"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/telemetry"
)

// exports tells receivers of the lives that this process has. It is safe for concurrent use.
type exports struct {
	mu    sync.Mutex
	begun bool                 // guarded by mu
	t     *telemetry.Telemetry // guarded by mu; nil: off
	off   string               // guarded by mu: why something that was asked for is off: that is no reason not to work
	lives bool                 // guarded by mu: there was something to tell
}

// Observe makes the lives that begin from now on be told to the receivers that cfg names; nil, or none: to nobody.
// Only the first call counts. Report ends it.
func (a *App) Observe(cfg *config.Config) {
	x := &a.exports
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.begun && cfg != nil {
		x.begun = true
		x.t, x.off = a.newTelemetry(cfg.Telemetry)
	}
}

// follow makes a session that was opened be told of, if anything is.
func (x *exports) follow(h *keeper.Handle) followed {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lives = true
	return followed{h, x.t.Follow(h.Session(), h)}
}

// Observed reports whether there is something to tell, or should be: then Report has something to do.
func (a *App) Observed() bool {
	x := &a.exports
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.lives && (x.t != nil || x.off != "")
}

// Report sends what is left to tell, and returns a line for a person if not all of it was taken, "" else. It waits
// for the receivers as long as ctx lasts. Nothing is told afterwards: call it once, when all work is closed.
func (a *App) Report(ctx context.Context) string {
	x := &a.exports
	x.mu.Lock()
	t, off, lives := x.t, x.off, x.lives
	x.t, x.off, x.begun = nil, "", true
	x.mu.Unlock()
	var lost telemetry.Lost
	if t != nil {
		lost = t.Close(ctx)
	}
	switch {
	case !lives:
		return ""
	case lost.Items > 0:
		return fmt.Sprintf("telemetry: the receiver did not take %d of %d items: %s", lost.Items, lost.Of, lost.Why)
	case off != "" && t != nil:
		return "a part of telemetry is off: " + off
	case off != "":
		return "telemetry is off: " + off
	case lost.Remark != "":
		return "telemetry: the receiver took all of it, and says: " + lost.Remark
	}
	return ""
}

// newTelemetry begins what is set; nil: nothing, and why if something was asked for.
func (a *App) newTelemetry(set config.Telemetry) (t *telemetry.Telemetry, why string) {
	if !set.On() {
		return nil, set.Why
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() // with the proxies of the environment
	conf, err := tlsConfig(set)
	if err != nil {
		return nil, err.Error()
	}
	transport.TLSClientConfig = conf
	target := func(s config.Signal) telemetry.Target {
		return telemetry.Target{URL: s.Endpoint(), Headers: s.Headers(), Timeout: s.Timeout, Gzip: s.Gzip}
	}
	t, err = telemetry.New(telemetry.Options{
		Traces: target(set.Traces), Metrics: target(set.Metrics), Logs: target(set.Logs),
		Service: "strandline", Version: Version, Instance: string(NewID()), Registry: a.Registry,
		Client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // the headers are for nobody else
		}},
		Content: set.Content.V,
		Redact:  func(s string) string { s, _ = redact.Redactor{}.Text(s); return s },
	})
	if err != nil {
		return nil, err.Error()
	}
	return t, set.Why
}

// tlsConfig reads the certificates that the environment names; nil: those of the system.
func tlsConfig(set config.Telemetry) (*tls.Config, error) {
	if set.CA == "" && set.ClientCert == "" && set.ClientKey == "" {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if set.CA != "" {
		pem, err := os.ReadFile(set.CA)
		if err != nil {
			return nil, fmt.Errorf("$OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		if conf.RootCAs = x509.NewCertPool(); !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("$OTEL_EXPORTER_OTLP_CERTIFICATE names a file without a certificate")
		}
	}
	if set.ClientCert != "" || set.ClientKey != "" {
		pair, err := tls.LoadX509KeyPair(set.ClientCert, set.ClientKey)
		if err != nil {
			return nil, fmt.Errorf("$OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// followed is a handle whose session telemetry follows.
type followed struct {
	*keeper.Handle
	f *telemetry.Follower
}

func (h followed) Flush(ctx context.Context) error {
	err := h.Handle.Flush(ctx)
	if errors.Is(err, store.ErrNotSaved) {
		h.f.NotSaved()
	}
	return err
}

func (h followed) Dispose(ctx context.Context) error {
	h.f.Pull()
	err := h.Handle.Dispose(ctx)
	if err == nil {
		h.f.End()
	}
	return err
}
