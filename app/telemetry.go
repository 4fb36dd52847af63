package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/config"
	"github.com/strandline-dev/strandline/keeper"
	"github.com/strandline-dev/strandline/redact"
	"github.com/strandline-dev/strandline/store"
	"github.com/strandline-dev/strandline/telemetry"
)

// newTelemetry begins what the configuration asks for; nil: nothing. why says why something that was asked for is
// off: that is no reason not to work.
func (a *App) newTelemetry(cfg *config.Config) (t *telemetry.Telemetry, why string) {
	if cfg == nil {
		return nil, ""
	}
	set := cfg.Telemetry
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

// Exports reports whether telemetry is on, or should be and is not: then Report has something to do.
func (w *Work) Exports() bool { return w.telemetry != nil || w.noTelemetry != "" }

// Report sends what telemetry is left, and returns a line for a person if not all of it arrived, "" else. It waits
// for the receivers as long as ctx lasts. Call it once, after Close.
func (w *Work) Report(ctx context.Context) string {
	t, off := w.telemetry, w.noTelemetry
	w.telemetry, w.noTelemetry = nil, ""
	switch {
	case t == nil && off != "":
		return "telemetry is off: " + off
	case t == nil:
		return ""
	}
	lost := t.Close(ctx)
	switch {
	case lost.Items > 0:
		return fmt.Sprintf("telemetry: %d of %d items did not reach the receiver: %s", lost.Items, lost.Of, lost.Why)
	case off != "":
		return "a part of telemetry is off: " + off
	}
	return ""
}

// follows attaches telemetry to a session that was opened.
func (s sessions) follows(h *keeper.Handle, err error) (agent.Handle, error) {
	if err != nil {
		return nil, err
	}
	if s.t == nil {
		return h, nil
	}
	return followed{h, s.t.Follow(h.Session(), h)}, nil
}
