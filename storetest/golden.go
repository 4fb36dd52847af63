package storetest

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/session"
)

// golden are events with everything that a driver could spoil: number text, escapes, characters that
// some call line ends, names that look like blob references, the form of sources, unknown members,
// strings on both sides of the blob limit.
func golden() []session.Event {
	return []session.Event{
		{Seq: 0, Time: 1700000000000, Type: "turn/start", Data: jsontext.Value(`{"turn":0}`)},
		{Seq: 1, Time: 1699999999999, Type: "user/message", Op: session.Append(), Data: jsontext.Value(
			`{"id":"m\u00e4\/","role":"user","content":[{"type":"text","text":"` + "ä\u2028\u2029\u0085" + `\ud83d\ude00 \"}{\\"}],"source":{"kind":"user"}}`)},
		{Seq: 2, Time: -1, Type: "assistant/message", Op: session.Append(), Sources: session.Sources{},
			Data: jsontext.Value(`{"turn":0,"n":[9007199254740991,-0,1e400,1E+2,0.10,123456789012345678901234567890]}`)},
		{Seq: 3, Time: 0, Type: "x/later", Ignorable: true, Extra: []byte(`"hint":{"a":[1,"}"]},"n":1.50`), Data: jsontext.Value(`{}`)},
		{Seq: 4, Time: 1700000000001, Type: "user/message", Op: session.Replace(1, 2), Sources: session.Sources{{First: 1, Last: 1}, {First: 2, Last: 2}},
			Data: jsontext.Value(`{"$blob":"sha256-00","$$blob":{"\u0024blob":1},"bytes":5}`)},
		{Seq: 5, Time: 1700000000002, Type: "x/y", Op: session.Restore(4), Sources: session.Sources{{First: 0, Last: 3}, {First: 4, Last: 4}},
			Data: jsontext.Value(`{"":{"":[[],{},null,true,false]}}`)},
		{Seq: 6, Time: 1700000000003, Type: "x/limit", Data: jsontext.Value(
			`{"at":"` + strings.Repeat("a", 32766) + `","over":"` + strings.Repeat("b", 32767) + `"}`)},
		{Seq: 7, Time: 1700000000004, Type: "x/big", Data: jsontext.Value(
			`{"in":[{"deep":"` + strings.Repeat(`\n\u00e9`, 5000) + `"}],"mb":"` + strings.Repeat("0123456789abcdef", 131072) + `"}`)},
	}
}

// goldenLinks were computed by an independent implementation of the format (Python's hashlib).
var goldenLinks = []string{
	"9z7-WS9g-N9d27MU",
	"MfwMxD0btLJryL9A",
	"A3NFYY_2bcRSJ7zr",
	"InP6mXKKjKsTjPIG",
	"eHqvEIJNiqY6npTe",
	"pQsKMg7IZmGQjr9y",
	"adcTCkcKn-KNOzot",
	"M6f_Z71M__f6lHIs",
}
