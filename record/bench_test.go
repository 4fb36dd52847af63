package record

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/strandline-dev/strandline/session"
)

// mix is a realistic log: mostly chunks and small events, some messages and results.
func mix(n int) []session.Event {
	out := make([]session.Event, n)
	for i := range out {
		ev := session.Event{Seq: session.Seq(i), Time: 1700000000000 + int64(i)}
		switch k := i % 16; {
		case k == 0:
			ev.Type, ev.Op = "user/message", session.Append()
			ev.Data = jsontext.Value(fmt.Sprintf(`{"id":"m%d","role":"user","content":[{"type":"text","text":%q}],"source":{"kind":"user"}}`, i, strings.Repeat("word ", 20)))
		case k == 7:
			ev.Type, ev.Op = "tool/result", session.Append()
			ev.Data = jsontext.Value(fmt.Sprintf(`{"turn":%d,"step":1,"message":{"role":"user","content":[{"type":"tool-result","id":"c%d","content":[{"type":"text","text":%q}]}]}}`, i/16, i, strings.Repeat("line of a file\n", 60)))
		case k == 15:
			ev.Type, ev.Op, ev.Sources = "assistant/message", session.Append(), session.Sources{{First: session.Seq(i - 8), Last: session.Seq(i - 1)}}
			ev.Data = jsontext.Value(fmt.Sprintf(`{"turn":%d,"step":1,"message":{"role":"assistant","content":[{"type":"text","text":%q}]},"usage":{"inputTokens":1200,"outputTokens":30}}`, i/16, strings.Repeat("answer ", 30)))
		default:
			ev.Type = "assistant/chunk"
			ev.Data = jsontext.Value(fmt.Sprintf(`{"turn":%d,"step":1,"chunk":{"type":"text-delta","text":"some words that came"}}`, i/16))
		}
		out[i] = ev
	}
	return out
}

const benchN = 4096

func benchLog(mark bool) []byte {
	var log []byte
	var link session.Link
	for i, ev := range mix(benchN) {
		synced := session.None
		if mark {
			synced = session.Seq(i - 1)
		}
		log, link = Append(log, ev, link, synced)
	}
	return log
}

func perRecord(b *testing.B, bytes int) {
	b.SetBytes(int64(bytes))
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchN, "ns/record")
}

func BenchmarkAppend(b *testing.B) {
	evs := mix(benchN)
	buf := benchLog(false)
	b.ReportAllocs()
	for b.Loop() {
		var link session.Link
		buf = buf[:0]
		for _, ev := range evs {
			buf, link = Append(buf, ev, link, session.None)
		}
	}
	perRecord(b, len(buf))
}

func BenchmarkScan(b *testing.B) {
	for _, mark := range []bool{false, true} {
		b.Run(fmt.Sprintf("synced=%v", mark), func(b *testing.B) {
			log := benchLog(mark)
			b.ReportAllocs()
			for b.Loop() {
				var s Scanner
				s.Feed(log, true)
				for s.Next() == Good {
				}
			}
			perRecord(b, len(log))
		})
	}
}

// A million records through a Reader with a window of 256 KiB, as a load reads them.
func BenchmarkReaderMillion(b *testing.B) {
	log := benchLog(true)
	const times = 1_000_000/benchN + 1
	buf := make([]byte, 256<<10)
	b.ReportAllocs()
	for b.Loop() {
		parts := make([]io.Reader, times)
		for i := range parts {
			parts[i] = bytes.NewReader(log)
		}
		r := NewReader(io.MultiReader(parts...), 0, buf)
		n := 0
		for {
			t, err := r.Next()
			if err != nil || t == Broken {
				b.Fatal(t, err)
			}
			if t == End {
				break
			}
			n++
		}
		if n != times*benchN {
			b.Fatal(n)
		}
	}
	b.SetBytes(int64(times * len(log)))
}

func BenchmarkScanEvents(b *testing.B) {
	log := benchLog(false)
	b.ReportAllocs()
	for b.Loop() {
		var s Scanner
		s.Feed(log, true)
		for s.Next() == Good {
			sinkEvent = s.Raw.Event()
		}
	}
	perRecord(b, len(log))
}

func BenchmarkScanLinks(b *testing.B) {
	log := benchLog(false)
	b.ReportAllocs()
	for b.Loop() {
		var s Scanner
		var link session.Link
		s.Feed(log, true)
		for s.Next() == Good {
			var ok bool
			if link, ok = s.Raw.CheckLink(link); !ok {
				b.Fatal("link")
			}
		}
	}
	perRecord(b, len(log))
}

// The limits of the same work: moving the bytes, summing them per record, hashing them per record.
func BenchmarkRaw(b *testing.B) {
	log := benchLog(false)
	var lines [][]byte
	for rest := log; len(rest) > 0; {
		i := strings.IndexByte(string(rest[:min(len(rest), 4096)]), '\n') + 1
		lines, rest = append(lines, rest[:i]), rest[i:]
	}
	b.Run("memcpy", func(b *testing.B) {
		dst := make([]byte, len(log))
		for b.Loop() {
			for i, at := 0, 0; i < len(lines); i++ {
				at += copy(dst[at:], lines[i])
			}
		}
		perRecord(b, len(log))
	})
	b.Run("crc32c", func(b *testing.B) {
		for b.Loop() {
			for _, l := range lines {
				sinkSum = crc32.Checksum(l, castagnoli)
			}
		}
		perRecord(b, len(log))
	})
	b.Run("sha256", func(b *testing.B) {
		for b.Loop() {
			for _, l := range lines {
				sinkHash = sha256.Sum256(l)
			}
		}
		perRecord(b, len(log))
	})
}

func BenchmarkBlobFastPath(b *testing.B) {
	evs := mix(benchN)
	n := 0
	for _, ev := range evs {
		n += len(ev.Data)
	}
	for b.Loop() {
		for i := range evs {
			if _, err := Externalize(evs[i].Data, BlobLimit, nil); err != nil {
				b.Fatal(err)
			}
		}
	}
	perRecord(b, n)
}

var (
	sinkSum  uint32
	sinkHash [32]byte
)
