// Package record turns events into lines and lines into events: one event, one line of JSON. It is
// pure: bytes in, bytes out.
//
// A record is written so that a reader finds everything it needs from both ends, without parsing the
// data in the middle:
//
//	{"seq":7,"time":1700000000000,"type":"tool/result","surfaceOp":"append","sourceEventSeqs":[[1,4],6],"ignorable":true,"data":{...},"synced":5,"chain":"<link><sum>"}
//
// There is no white space between tokens, the members have this order, optional ones are left out
// when they say nothing, and LF (nothing else) ends a record. In detail:
//
//   - seq is a canonical decimal from 0 to 2^53-1, time a canonical decimal that may be negative.
//   - type is 1 to 128 printable ASCII characters without space, quote and backslash.
//   - Members that this version does not know may stand between the optional ones and data. They are
//     kept, in their order, as Event.Extra.
//   - data is a compact JSON object: exactly the accepted bytes, except for blobs (see Externalize).
//   - synced follows data in the first record of a batch: the highest seq known to be synced then.
//   - Unknown members may also stand behind data and synced. Such a member's value never ends in a
//     brace (structured members belong before data). Therefore data ends at the brace directly before
//     `,"chain"`, or directly before `,"synced":<digits>,"chain"`, if there is a brace; only otherwise
//     a reader has to walk the data to find its end.
//   - chain is 22 characters of base64url (RFC 4648, no padding): 16 of link, 6 of sum.
//
// The sum is the CRC-32C (Castagnoli), 4 bytes big endian, of everything before the comma that
// precedes "chain". It proves one record by itself. The link is the first 12 bytes of the SHA-256 of
// the previous link (12 raw bytes) followed by the record from its first brace to the end of data. It
// proves order and completeness. So synced and what follows it are protected but not linked, and
// equal events have equal links in every store. The first record links to twelve zero bytes, the
// first own record of a fork to the parent's link at the fork point.
//
// A record whose sum is right and whose link is not, or is not even base64url, is a good record with
// a damaged link: Parse accepts it, CheckLink does not.
//
// The files, in reading order:
//
//	line.go     Append: an event becomes a line; Raw: a line that was read
//	parse.go    Parse: a line becomes a Raw
//	member.go   walking JSON without decoding it; members this version does not know
//	chain.go    sum and link
//	scan.go     Scanner and Reader: records of a file, bad stretches, resynchronisation
//	bad.go      what a bad stretch looks like
//	head.go     the first line of a segment, and the header file of a session
//	blob.go     long strings of data, kept elsewhere
package record
