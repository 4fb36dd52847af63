// Package filestore keeps sessions in files: one directory per session, a header that is never
// replaced, and segments of one JSON record per line. docs/format.md describes every byte.
//
// The story of a session on disk. Create makes nothing; the first Append makes the session's
// directory under a temporary name, header and first segment in it, and renames it into place. Open
// takes the lease, an OS lock on session.json, reads the log once, and again writes nothing. The
// first Append of a life makes a new segment, whole, and links it to the name of its first seq;
// whoever finds that name taken was beaten to it. Later batches are single writes at its end. Flush
// is fdatasync and a look at the directory: only a writer that still finds its segment last, and the
// files it holds at their names, may acknowledge.
//
// Nothing is ever cut or overwritten, and nothing is moved but what repair sets aside. What a dead writer left behind the last good record
// stays where it is and the next life's segment begins at the seq that was due. A descriptor whose
// write or sync failed is never written again: the life goes on, from memory, in a new segment that
// starts behind the last synced record.
//
// Lock order: writer.op, then the file locks in the order session.json, last segment, store.lock,
// then writer.mu, then Store.mu.
//
// The files, in reading order:
//
//	layout.go    where things are; Open and its options
//	prepare.go   what is checked and made before the first write; how a file is made durable
//	packed.go    a packed segment: its format, its text by offset
//	scan.go      one segment: its good runs, its bad stretches
//	reader.go    one log: segments and spans put together, and what its bad stretches mean
//	lost.go      what stands in for records that loss of power took
//	verify.go    reading without trust
//	mend.go      what can be made of a damaged log: every seq, good or marked as lost
//	stray.go     records that stand where they do not count, proven by their links
//	salvage.go   that for readers, and a header made anew
//	repair.go    that for good
//	index.go     the Prefix that reads events from disk when they are asked for; ahead.go: long parts, by two
//	lease.go     the right to write
//	announce.go  who has it
//	segment.go   how a new segment, or a new session, comes to its name
//	writer.go    one life: append, flush, roll
//	join.go      many segments of ended lives become few, packed ones
//	encode.go    its events as records
//	fork.go      a session that begins with another's prefix
//	blob.go      long strings
//	pin.go       those that no record names yet
//	collect.go   those that nothing names any more
//	remove.go    into the trash and out of it
//	purge.go     for good
//	inherit.go   what forks are handed then
//	names.go     which blobs are needed
//	stat.go      one session, from the ends of its files
//	list.go      all of them
//	watch.go     one session, as it grows
//	survey.go    what there is, in numbers
package filestore
