package config

import (
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Telemetry is where spans, metrics and log records go. Each signal is off unless it has an endpoint.
type Telemetry struct {
	Traces, Metrics, Logs Signal
	Content               Value[bool] // what people, models and tools said leaves too, redacted
	// Files of the OTEL_EXPORTER_OTLP_CERTIFICATE family, "" where they are not set.
	CA, ClientCert, ClientKey string
	// Why says why something that was asked for stays off; "" otherwise.
	Why string
}

// Signal is where one of them goes. Printing it shows no header, and no password of the address.
type Signal struct {
	endpoint Value[secret] // the whole address of the signal
	headers  Value[func() map[string]string]
	Timeout  time.Duration // of one batch; 0: the default
	Gzip     bool
}

// On reports whether the signal goes anywhere.
func (s Signal) On() bool { return s.endpoint.IsSet() }

// Endpoint returns the whole address, with a password if it has one; "" if the signal is off.
func (s Signal) Endpoint() string {
	if !s.On() {
		return ""
	}
	return s.endpoint.V()
}

// Headers returns what goes with each request: it may hold a credential.
func (s Signal) Headers() map[string]string {
	if !s.headers.IsSet() {
		return nil
	}
	return s.headers.V()
}

// On reports whether anything is exported.
func (t Telemetry) On() bool { return t.Traces.On() || t.Metrics.On() || t.Logs.On() }

// Place is the address without what stands before the host or behind the path, for people.
func (s Signal) Place() string {
	u, err := url.Parse(s.Endpoint())
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

type telemetryTable struct {
	Endpoint *string           `toml:"endpoint"`
	Headers  map[string]string `toml:"headers"`
	Content  *bool             `toml:"content"`
}

// signal is one of the three, as the variables name it.
type signal struct {
	to        *Signal
	name, own string // of the variables, and of the path
}

// readTelemetry takes over what a table says, and over it what the environment says: the standard variables
// (OTEL_SDK_DISABLED, OTEL_TRACES_EXPORTER .., OTEL_EXPORTER_OTLP_ENDPOINT ..). A signal is on if an address is given for it, or
// if otlp is named as its exporter. bad tells what is wrong with the table; a variable that makes no sense
// leaves its signals off and says so in Why.
func readTelemetry(t *telemetryTable, origin string, getenv func(string) string) (out Telemetry, key, bad string) {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	env := func(name string) string { return strings.TrimSpace(getenv(name)) }
	var file Value[string]
	headers := map[string]string{}
	if t != nil {
		set(&file, t.Endpoint, origin)
		set(&out.Content, t.Content, origin)
		for k, v := range t.Headers {
			if !headerName(k) || strings.ContainsAny(v, "\r\n\x00") {
				return out, "telemetry.headers", "a name or value is none of a header"
			}
			headers[k] = v
		}
		if file.IsSet() && !isAddress(file.V) {
			return out, "telemetry.endpoint", "it is no http or https address"
		}
		if len(headers) > 0 && !file.IsSet() {
			return out, "telemetry.headers", "there is no endpoint beside it, and it goes to no other"
		}
	}
	const captures = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
	if v := env(captures); v != "" {
		out.Content = Value[bool]{strings.EqualFold(v, "true"), "$" + captures}
	}
	if strings.EqualFold(env("OTEL_SDK_DISABLED"), "true") {
		return out, "", ""
	}
	why := func(format string, args ...any) {
		if out.Why == "" {
			out.Why = fmt.Sprintf(format, args...)
		}
	}
	out.CA, out.ClientCert, out.ClientKey = env("OTEL_EXPORTER_OTLP_CERTIFICATE"), env("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"), env("OTEL_EXPORTER_OTLP_CLIENT_KEY")
	for _, s := range []signal{{&out.Traces, "TRACES", "traces"}, {&out.Metrics, "METRICS", "metrics"}, {&out.Logs, "LOGS", "logs"}} {
		// first is the value of the signal's own variable, else of the general one, and which it was.
		first := func(what string) (value, name string) {
			for _, name := range []string{"OTEL_EXPORTER_OTLP_" + s.name + "_" + what, "OTEL_EXPORTER_OTLP_" + what} {
				if v := env(name); v != "" {
					return v, name
				}
			}
			return "", ""
		}
		kind := "OTEL_" + s.name + "_EXPORTER"
		wanted := env(kind)
		if wanted == "none" {
			continue
		}
		address, from := first("ENDPOINT")
		switch {
		case address != "" && !isAddress(address):
			why("$%s is no http or https address", from)
			continue
		case address != "" && from == "OTEL_EXPORTER_OTLP_ENDPOINT":
			address = strings.TrimRight(address, "/") + "/v1/" + s.own
			from = "$" + from
		case address != "":
			from = "$" + from
		case file.IsSet():
			address, from = strings.TrimRight(file.V, "/")+"/v1/"+s.own, file.Origin
		case wanted == "otlp":
			address, from = "http://localhost:4318/v1/"+s.own, "$"+kind
		default:
			if wanted != "" {
				why("$%s is %q, and only otlp and none are known", kind, wanted)
			}
			continue
		}
		if wanted != "" && wanted != "otlp" {
			why("$%s is %q, and only otlp and none are known", kind, wanted)
			continue
		}
		if p, name := first("PROTOCOL"); p != "" && p != "http/protobuf" {
			why("$%s is %q, and only http/protobuf is spoken", name, p)
			continue
		}
		hs := map[string]string{}
		if from == file.Origin { // what is meant for one address goes to no other
			hs = headers
		}
		if v, name := first("HEADERS"); v != "" {
			own, ok := parseHeaders(v)
			if !ok {
				why("$%s is not of the form name=value,name=value", name)
				continue
			}
			hs = own
		}
		if v, name := first("TIMEOUT"); v != "" {
			ms, err := strconv.ParseInt(v, 10, 32)
			if err != nil || ms <= 0 {
				why("$%s is no number of milliseconds above 0", name)
				continue
			}
			s.to.Timeout = time.Duration(ms) * time.Millisecond
		}
		if v, name := first("COMPRESSION"); v != "" && v != "gzip" && v != "none" {
			why("$%s is %q, and only gzip and none are known", name, v)
			continue
		} else {
			s.to.Gzip = v == "gzip"
		}
		s.to.endpoint = Value[secret]{func() string { return address }, from}
		if len(hs) > 0 {
			s.to.headers = Value[func() map[string]string]{func() map[string]string { return hs }, from}
		}
	}
	return out, "", ""
}

func isAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func headerName(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

// parseHeaders reads name=value,name=value, each percent-encoded.
func parseHeaders(s string) (map[string]string, bool) {
	out := map[string]string{}
	for pair := range strings.SplitSeq(s, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if name = strings.TrimSpace(name); !ok || err != nil || !headerName(name) || strings.ContainsAny(value, "\r\n\x00") {
			return nil, false
		}
		out[name] = value
	}
	return out, true
}

// settings lists what is in force.
func (t Telemetry) settings(add func(key, value, origin string)) {
	if !t.On() {
		value := "off"
		if t.Why != "" {
			value += ": " + t.Why
		}
		add("telemetry", value, BuiltIn)
		return
	}
	for _, s := range []struct {
		name string
		s    Signal
	}{{"traces", t.Traces}, {"metrics", t.Metrics}, {"logs", t.Logs}} {
		if !s.s.On() {
			continue
		}
		add("telemetry."+s.name, s.s.Place(), s.s.endpoint.Origin)
		if s.s.headers.IsSet() {
			add("telemetry."+s.name+".headers", "set, hidden", s.s.headers.Origin)
		}
	}
	origin := t.Content.Origin
	if origin == "" {
		origin = BuiltIn
	}
	add("telemetry.content", fmt.Sprint(t.Content.V), origin)
}

// telemetry takes over what the user's file and the environment say.
func (c *Config) telemetry(o Options, t *telemetryTable) error {
	var key, bad string
	if c.Telemetry, key, bad = readTelemetry(t, o.User, o.Getenv); bad != "" {
		return &Error{Path: o.User, Key: key, Why: bad, Hint: "for example endpoint = \"http://localhost:4318\""}
	}
	if c.Telemetry.Why != "" {
		c.Notes = append(c.Notes, "telemetry: "+c.Telemetry.Why+"; what it concerns is not exported")
	}
	if t != nil && len(t.Headers) > 0 {
		if fi, err := os.Stat(o.User); err == nil && fi.Mode().Perm()&0o077 != 0 {
			c.Notes = append(c.Notes, fmt.Sprintf("%s holds headers of telemetry and others can read it; chmod 600 it, or use $OTEL_EXPORTER_OTLP_HEADERS", o.User))
		}
	}
	return nil
}
