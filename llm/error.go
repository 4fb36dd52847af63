package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code is the kind of a failure; callers decide by it.
type Code string

// The codes.
const (
	CodeAuth              Code = "AUTH"
	CodeQuota             Code = "QUOTA"
	CodeRateLimit         Code = "RATE_LIMIT"
	CodeContextWindow     Code = "CONTEXT_WINDOW_EXCEEDED"
	CodeInvalidRequest    Code = "INVALID_REQUEST"
	CodeServer            Code = "SERVER"
	CodeTransport         Code = "TRANSPORT"
	CodeTimeout           Code = "TIMEOUT"
	CodeStreamClosed      Code = "STREAM_CLOSED"
	CodeMalformedResponse Code = "MALFORMED_RESPONSE"
	CodeEmptyResponse     Code = "EMPTY_RESPONSE"
	CodeMissingCredential Code = "MISSING_CREDENTIAL"
	CodeAborted           Code = "ABORTED"
)

var codes = []Code{
	CodeAuth, CodeQuota, CodeRateLimit, CodeContextWindow, CodeInvalidRequest, CodeServer, CodeTransport,
	CodeTimeout, CodeStreamClosed, CodeMalformedResponse, CodeEmptyResponse, CodeMissingCredential, CodeAborted,
}

// Known reports whether c is one of the codes of this package.
func (c Code) Known() bool {
	for _, k := range codes {
		if c == k {
			return true
		}
	}
	return false
}

// Retryable reports whether the same request may succeed when it is sent again.
func (c Code) Retryable() bool {
	switch c {
	case CodeRateLimit, CodeServer, CodeTransport, CodeTimeout, CodeStreamClosed, CodeEmptyResponse:
		return true
	}
	return false
}

// Error is the failure of a request. It is logged and shown, so neither Message nor the text of Error
// holds a credential (see Redact); Err is for errors.Is and errors.As and is never printed.
type Error struct {
	Code       Code
	Message    string        // one sentence, for people; says what to do when that is known
	Status     int           // HTTP status; 0 when there was none
	RetryAfter time.Duration // what the service asked for; 0 when it did not
	Err        error         // the cause, or nil
}

// Errorf returns an error of a code with a formatted message; a %w verb sets Err.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("model: ")
	b.WriteString(string(e.Code))
	if e.Status != 0 {
		fmt.Fprintf(&b, " (HTTP %d)", e.Status)
	}
	if e.Message != "" {
		b.WriteString(": ")
		b.WriteString(e.Message)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same request may succeed when it is sent again.
func (e *Error) Retryable() bool { return e.Code.Retryable() }

// AsError makes an *Error of any error of a request that ran under ctx: an *Error in its chain stays
// what it is, the end of ctx is ABORTED (or TIMEOUT when it was a deadline), the rest is TRANSPORT.
// It returns nil for nil.
func AsError(ctx context.Context, err error) *Error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ended(ctx, err)
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Code: CodeTimeout, Message: "the request took too long", Err: err}
	}
	// The text of a foreign error may hold a URL with a key in it: only its kind is told.
	return &Error{Code: CodeTransport, Message: "the connection to the model failed", Err: err}
}

func ended(ctx context.Context, err error) *Error {
	var e *Error
	if errors.As(context.Cause(ctx), &e) {
		return e
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &Error{Code: CodeTimeout, Message: "the request took too long", Err: err}
	}
	return &Error{Code: CodeAborted, Message: "the request was cancelled", Err: err}
}

// CodeForStatus returns the code that fits an HTTP status when the body says nothing better.
func CodeForStatus(status int) Code {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return CodeAuth
	case status == http.StatusPaymentRequired:
		return CodeQuota
	case status == http.StatusTooManyRequests:
		return CodeRateLimit
	case status == http.StatusRequestTimeout:
		return CodeTimeout
	case status == http.StatusRequestEntityTooLarge:
		return CodeContextWindow
	case status >= 500:
		return CodeServer
	case status >= 400:
		return CodeInvalidRequest
	}
	return CodeMalformedResponse
}

// ParseRetryAfter reads a Retry-After header: seconds (a fraction is accepted) or an HTTP date seen
// from now. What it cannot read, or lies in the past, is 0.
func ParseRetryAfter(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if s, err := strconv.ParseFloat(header, 64); err == nil {
		if !(s > 0) {
			return 0
		}
		return time.Duration(min(s, 1e6) * float64(time.Second))
	}
	if t, err := http.ParseTime(header); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// Redact replaces each of the secrets in s. Drivers call it on every text of a service that they put
// into an Error: some services repeat the key that they refuse.
func Redact(s string, secrets ...string) string {
	for _, secret := range secrets {
		if len(secret) >= 4 {
			s = strings.ReplaceAll(s, secret, "[redacted]")
		}
	}
	return s
}
