package record

import (
	"crypto/sha256"
	"encoding/base64"
	"hash/crc32"

	"github.com/strandline-dev/strandline/session"
)

const (
	linkLen = 16 // characters of a link
	sumLen  = 6  // characters of a sum
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

// sumText returns the six characters that prove b.
func sumText(b []byte) [sumLen]byte {
	c := crc32.Checksum(b, castagnoli)
	return [sumLen]byte{
		alphabet[c>>26], alphabet[c>>20&63], alphabet[c>>14&63],
		alphabet[c>>8&63], alphabet[c>>2&63], alphabet[c<<4&63],
	}
}

func linkText(l session.Link) (t [linkLen]byte) {
	base64.RawURLEncoding.Encode(t[:], l[:])
	return t
}

// parseLink reads the characters of a link. ok is false if they are not base64url.
func parseLink(text []byte) (l session.Link, ok bool) {
	n, err := base64.RawURLEncoding.Decode(l[:], text)
	if err != nil || n != len(l) {
		return session.Link{}, false
	}
	return l, true
}

// hashed returns the link of linked: the previous link and a record's body, side by side.
func hashed(linked []byte) session.Link {
	sum := sha256.Sum256(linked)
	return session.Link(sum[:len(session.Link{})])
}

// Next returns the link of the record with the given body (from its first brace to the end of data)
// behind the record that has link prev.
func Next(prev session.Link, body []byte) session.Link {
	// Small bodies are put together on the stack: the one-shot hash needs no allocation.
	var small [1024]byte
	if n := len(prev) + len(body); n <= len(small) {
		copy(small[:], prev[:])
		copy(small[len(prev):], body)
		return hashed(small[:n])
	}
	var sum [sha256.Size]byte
	h := sha256.New()
	h.Write(prev[:])
	h.Write(body)
	h.Sum(sum[:0])
	return session.Link(sum[:len(prev)])
}
