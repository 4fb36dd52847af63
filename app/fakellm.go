package app

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/compact"
	"github.com/strandline-dev/strandline/llm"
	"github.com/strandline-dev/strandline/llm/fake"
	"github.com/strandline-dev/strandline/llm/script"
)

// FakeOptions says which script is served and where.
type FakeOptions struct {
	Script string // its file
	Listen string // an address of the loopback; port 0 chooses one
	Repeat bool   // begin the script again when it is used up
	Record string // file to which each request is appended; "" for none
	Served func(fake.Served)
}

// FakeLLM is a model service that plays a script.
type FakeLLM struct {
	BaseURL string // for the configuration of its clients
	listen  net.Listener
	server  *fake.Server
	record  *os.File
}

// OpenFakeLLM binds to the address. What is wrong with the options is a *UsageError. Call Serve on what it
// returns.
func OpenFakeLLM(ctx context.Context, o FakeOptions) (*FakeLLM, error) {
	s, err := script.Load(o.Script)
	if err != nil {
		return nil, &UsageError{"--script", strings.TrimPrefix(err.Error(), "script: "), "a script has one reply per line: {\"text\":\"..\"}"}
	}
	if o.Repeat {
		s.Repeat()
	}
	l, err := fake.Listen(ctx, o.Listen)
	if err != nil {
		return nil, &UsageError{"--listen", err.Error(), "for example --listen 127.0.0.1:0"}
	}
	f := &FakeLLM{BaseURL: fake.BaseURL(l), listen: l}
	var record io.Writer
	if o.Record != "" {
		if f.record, err = os.OpenFile(o.Record, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			l.Close()
			return nil, &UsageError{"--record", err.Error(), "name a file that can be written"}
		}
		record = f.record
	}
	f.server = fake.New(fake.Options{Script: s, Record: record, Served: o.Served, Sleep: sleep, Purpose: purposeOf})
	return f, nil
}

// purposeOf tells by its text what a request is for.
func purposeOf(req llm.Request) string {
	if agent.IsTitle(req) {
		return llm.PurposeTitle
	}
	return compact.PurposeOf(req)
}

// Serve answers requests until the end of ctx, which is no error.
func (f *FakeLLM) Serve(ctx context.Context) error {
	err := fake.Serve(ctx, f.listen, f.server)
	if f.record != nil {
		if cerr := f.record.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("the record: %w", cerr)
		}
	}
	return err
}
