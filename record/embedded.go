package record

import "bytes"

// maxTries bounds what Embedded does with a line of hostile bytes.
const maxTries = 1000

// Embedded calls f with the records that stand whole within a bad line: joined ones, and one that follows half of
// another. The sum proves their bytes, but not that they stand where they belong: data may hold the text of a
// record. The Raws lie in line.
func Embedded(line []byte, f func(*Raw)) {
	tries := maxTries
	for {
		i := bytes.Index(line, opening)
		if i < 0 || tries == 0 {
			return
		}
		line = line[i:]
		n := 0
		for at := 0; n == 0 && tries > 0; tries-- {
			k := bytes.Index(line[at:], []byte(kChain))
			if k < 0 || at+k+tailLen > len(line) {
				break
			}
			var r Raw
			if end := at + k + tailLen; r.parse(line[:end:end]) == nil {
				f(&r)
				n = end
			}
			at += k + 1
		}
		line = line[max(n, 1):]
	}
}
