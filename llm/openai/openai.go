// Package openai is the driver for model services that speak the chat completions wire of OpenAI:
// OpenAI itself, DeepSeek, OpenRouter, Ollama, vLLM, llama.cpp and others. It runs on the official SDK,
// which carries the request; what is said on the wire is decided here.
//
//   - encode.go makes the body of a request. It is pure and never changes for a Dialect: the log keeps
//     the hash of each body, and an old request can be made again.
//   - stream.go and turn.go read the events of an answer, as the services send them and not only as they
//     are documented.
//   - errors.go makes one of a few codes of whatever goes wrong.
//
// Nothing is read from the environment and nothing is tried twice: both are for the caller to decide.
package openai

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/strandline-dev/strandline/llm"
)

// Options is what a Provider needs. Name, BaseURL, Client and Now are required.
type Options struct {
	Name    string // as in PROVIDER/MODEL
	BaseURL string // http or https, up to and without "/chat/completions"; no user, query or fragment
	Key     string // sent as a bearer token; "" for services without
	Dialect Dialect

	// Client carries the requests. Redirects are not followed, whatever it says: a key must not travel.
	Client *http.Client
	// Blobs reads an image by the name of its blob; nil: there are none.
	Blobs func(name string) ([]byte, error)
	// Models says what is known about models, by their own names.
	Models map[string]llm.ModelInfo
	// Now is the clock that an absolute Retry-After is compared with.
	Now func() time.Time
	// UserAgent is sent with each request; "" = the SDK's.
	UserAgent string
}

// Provider is a model service. It is safe for concurrent use.
type Provider struct {
	Encoding
	name   string
	client sdk.Client
	models map[string]llm.ModelInfo
	now    func() time.Time
	secret []string
}

var (
	_ llm.Provider = (*Provider)(nil)
	_ llm.Catalog  = (*Provider)(nil)
	_ llm.Encoder  = (*Provider)(nil)
)

// New returns a provider. It connects to nothing. No error holds the key.
func New(o Options) (*Provider, error) {
	if o.Name == "" || o.Client == nil || o.Now == nil {
		return nil, errors.New("openai: Name, Client and Now are required")
	}
	if err := CheckBaseURL(o.BaseURL); err != nil {
		return nil, err
	}
	key := strings.TrimSpace(o.Key)
	if strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, errors.New("the key holds signs that no key has: look at where it comes from")
	}
	enc, err := NewEncoding(o.Dialect, o.Blobs)
	if err != nil {
		return nil, err
	}
	carry := *o.Client
	carry.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	// Not sdk.NewClient, which reads the environment.
	opts := []option.RequestOption{
		option.WithBaseURL(o.BaseURL), option.WithHTTPClient(&carry), option.WithMaxRetries(0),
		option.WithHeader("Accept", "text/event-stream"), option.WithMiddleware(limitErrors),
	}
	if o.UserAgent != "" {
		opts = append(opts, option.WithHeader("User-Agent", o.UserAgent))
	}
	if key != "" {
		opts = append(opts, option.WithAPIKey(key))
	}
	return &Provider{
		Encoding: enc, name: o.Name, client: sdk.Client{Options: opts}, models: o.Models, now: o.Now, secret: []string{key},
	}, nil
}

// CheckBaseURL says why a base URL cannot be used.
func CheckBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("the base URL cannot be read") // its text may hold a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("the base URL is not of the form https://HOST/PATH")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("the base URL has a user, a query or a fragment: a key is given as key_env or key")
	}
	return nil
}

// Name returns the provider's name.
func (p *Provider) Name() string { return p.name }

// ModelInfo returns what the Options say about a model.
func (p *Provider) ModelInfo(model string) (llm.ModelInfo, bool) {
	info, ok := p.models[model]
	return info, ok
}
