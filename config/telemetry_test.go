package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/strandline-dev/strandline/config"
)

func TestTelemetry(t *testing.T) {
	const base = "OTEL_EXPORTER_OTLP_"
	file := "[telemetry]\nendpoint = \"http://file:1/x/\"\nheaders = { authorization = \"" + key + "\" }\n"
	for _, c := range []struct {
		name, user                string
		env                       map[string]string
		traces, metrics, logs     string
		traceHeaders, metricHeads string
		why                       string
		content                   bool
	}{
		{name: "nothing", user: "-"},
		{name: "the general address", user: "-", env: map[string]string{base + "ENDPOINT": "http://h:4318/"},
			traces: "http://h:4318/v1/traces", metrics: "http://h:4318/v1/metrics", logs: "http://h:4318/v1/logs"},
		{name: "one signal", user: "-", env: map[string]string{base + "TRACES_ENDPOINT": "https://h/t"}, traces: "https://h/t"},
		{name: "one signal elsewhere, one off", user: "-", env: map[string]string{base + "ENDPOINT": "http://h", base + "TRACES_ENDPOINT": "http://t", "OTEL_LOGS_EXPORTER": "none"},
			traces: "http://t", metrics: "http://h/v1/metrics"},
		{name: "by the exporter", user: "-", env: map[string]string{"OTEL_LOGS_EXPORTER": "otlp"}, logs: "http://localhost:4318/v1/logs"},
		{name: "an exporter that is not known", user: "-", env: map[string]string{"OTEL_TRACES_EXPORTER": "console"}, why: "console"},
		{name: "an exporter that is not known, and an address", user: "-", env: map[string]string{base + "TRACES_ENDPOINT": "http://h", "OTEL_TRACES_EXPORTER": "zipkin"}, why: "zipkin"},
		{name: "disabled", user: file, env: map[string]string{"OTEL_SDK_DISABLED": "TRUE", base + "ENDPOINT": "http://h"}},
		{name: "grpc", user: "-", env: map[string]string{base + "ENDPOINT": "http://h", base + "PROTOCOL": "grpc"}, why: "http/protobuf"},
		{name: "grpc for one", user: "-", env: map[string]string{base + "ENDPOINT": "http://h", base + "LOGS_PROTOCOL": "grpc", "OTEL_METRICS_EXPORTER": "none"},
			traces: "http://h/v1/traces", why: "LOGS_PROTOCOL"},
		{name: "no address", user: "-", env: map[string]string{base + "ENDPOINT": "localhost:4318"}, why: base + "ENDPOINT"},
		{name: "headers", user: "-", env: map[string]string{base + "ENDPOINT": "http://h", base + "HEADERS": "a=b%20c, d=" + key, base + "METRICS_HEADERS": "x=y", "OTEL_LOGS_EXPORTER": "none"},
			traces: "http://h/v1/traces", metrics: "http://h/v1/metrics", traceHeaders: "map[a:b c d:" + key + "]", metricHeads: "map[x:y]"},
		{name: "bad headers", user: "-", env: map[string]string{base + "TRACES_ENDPOINT": "http://h", base + "HEADERS": "a=b%0d%0aEvil: " + key}, why: "HEADERS is not of the form"},
		{name: "bad time", user: "-", env: map[string]string{base + "TRACES_ENDPOINT": "http://h", base + "TIMEOUT": "10s"}, why: "milliseconds"},
		{name: "the file", user: file, traces: "http://file:1/x/v1/traces", metrics: "http://file:1/x/v1/metrics", logs: "http://file:1/x/v1/logs",
			traceHeaders: "map[authorization:" + key + "]", metricHeads: "map[authorization:" + key + "]"},
		{name: "the headers of the file go nowhere else", user: file, env: map[string]string{base + "TRACES_ENDPOINT": "http://other"}, traces: "http://other",
			metrics: "http://file:1/x/v1/metrics", logs: "http://file:1/x/v1/logs", metricHeads: "map[authorization:" + key + "]"},
		{name: "content by the file", user: "[telemetry]\ncontent = true", content: true},
		{name: "content by a variable", user: "[telemetry]\ncontent = true", env: map[string]string{"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "false"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := load(t, c.user, "-", c.env)
			if err != nil {
				t.Fatal(err)
			}
			got := cfg.Telemetry
			if got.Traces.Endpoint() != c.traces || got.Metrics.Endpoint() != c.metrics || got.Logs.Endpoint() != c.logs {
				t.Errorf("%q %q %q", got.Traces.Endpoint(), got.Metrics.Endpoint(), got.Logs.Endpoint())
			}
			heads := func(s config.Signal) string {
				if len(s.Headers()) == 0 {
					return ""
				}
				return fmt.Sprint(s.Headers())
			}
			if heads(got.Traces) != c.traceHeaders || heads(got.Metrics) != c.metricHeads {
				t.Errorf("headers %s, %s", heads(got.Traces), heads(got.Metrics))
			}
			if !strings.Contains(got.Why, c.why) || (c.why == "") != (got.Why == "") || got.Content.V != c.content {
				t.Errorf("why %q, content %v", got.Why, got.Content)
			}
			if text := fmt.Sprintf("%v %+v %#v %v %v", got, got, got, cfg.Settings(), cfg.Notes); strings.Contains(text, key) {
				t.Errorf("a header is printed: %s", text)
			}
		})
	}
}

func TestTelemetryIsTheUsersOwn(t *testing.T) {
	for _, c := range []struct{ user, project, want string }{
		{"-", "[telemetry]\nendpoint = \"http://evil\"\n", "project.toml:1: telemetry: a project may not set this"},
		{"-", "telemetry.content = true\n", "project.toml:1: telemetry.content: a project may not set this"},
		{"[telemetry]\nendpoint = \"h\"\n", "-", "telemetry.endpoint: it is no http or https address"},
		{"[telemetry]\nheaders = { a = \"b\" }\n", "-", "telemetry.headers: there is no endpoint beside it"},
		{"[telemetry]\nendpoint = \"http://h\"\nheaders = { \"a b\" = \"" + key + "\" }\n", "-", "telemetry.headers: a name or value is none of a header"},
		{"[telemetry]\non = true\n", "-", "user.toml:2: telemetry.on: there is no such key"},
	} {
		_, err := load(t, c.user, c.project, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), key) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	cfg, err := load(t, "-", "-", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:" + key + "@h/p?token=" + key})
	if err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(cfg.Settings()); strings.Contains(text, key) || !strings.Contains(text, "telemetry.traces http://h/p") {
		t.Error(text)
	}
	path := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(path, []byte("[telemetry]\nendpoint = \"http://h\"\nheaders = { a = \"b\" }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if cfg, err = config.Load(config.Options{User: path}); err != nil || !strings.Contains(fmt.Sprint(cfg.Notes), "others can read it") {
		t.Errorf("%v %v", cfg.Notes, err)
	}
}
