package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/telemetry"
)

// toldRounds is how many turns are measured of each way; the ways alternate, so that what disturbs one disturbs all.
const toldRounds = 5

// told measures what a step of the loop costs more when a receiver is told of it: one that answers, one that is not there,
// and one that takes connections and never answers.
func (r *run) told(ctx context.Context) (err error) {
	answers, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = io.Copy(io.Discard, req.Body)
	})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(answers)
	}()
	defer func() {
		_ = server.Close()
		<-served
	}()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts: the system does, and no answer comes
	if err != nil {
		return err
	}
	defer silent.Close()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := gone.Close(); err != nil {
		return err
	}

	type way struct {
		what string
		to   net.Listener // nil: telemetry is off
		l    *looper
		t    *telemetry.Telemetry
		took []time.Duration
	}
	ways := []*way{{what: "off"}, {what: "on", to: answers}, {what: "on, no receiver", to: gone}, {what: "on, no answer", to: silent}}
	for _, w := range ways {
		if w.to != nil {
			if w.t, err = tellTo("http://" + w.to.Addr().String()); err != nil {
				return err
			}
			defer w.t.Close(ended()) // again, if it was closed: nothing is left to do then
		}
		if w.l, err = r.looper(ctx, nil, w.t); err != nil {
			return err
		}
	}
	for range toldRounds {
		for _, w := range ways {
			begin := time.Now()
			if err := w.l.turn(ctx, r.Turns); err != nil {
				return err
			}
			w.took = append(w.took, time.Since(begin))
		}
	}
	var raw float64
	for _, w := range ways {
		slices.Sort(w.took)
		row := Row{Work: "step, telemetry " + w.what, Value: ms(w.took[toldRounds/2]) / float64(r.Turns), Unit: "ms", Raw: raw,
			Note: fmt.Sprintf("the median of %d turns of %d steps", toldRounds, r.Turns)}
		if err := w.l.agents.Close(ctx); err != nil {
			return err
		}
		if w.t == nil {
			raw = row.Value
		} else {
			until, cancel := context.WithTimeout(ctx, time.Second)
			lost := w.t.Close(until)
			cancel()
			row.Note = fmt.Sprintf("raw: off, in the same run; %d of %d items were not taken", lost.Items, lost.Of)
		}
		r.emit(row)
	}
	return nil
}

// ended returns a context that is over.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// tellTo begins to tell the receiver at url of everything but content.
func tellTo(url string) (*telemetry.Telemetry, error) {
	reg, err := session.NewRegistry(agent.Kinds())
	if err != nil {
		return nil, err
	}
	return telemetry.New(telemetry.Options{
		Traces: telemetry.Target{URL: url + "/v1/traces"}, Metrics: telemetry.Target{URL: url + "/v1/metrics"},
		Logs: telemetry.Target{URL: url + "/v1/logs"}, Service: "strandline", Instance: "bench", Registry: reg,
		Client: &http.Client{Transport: &http.Transport{}},
	})
}
