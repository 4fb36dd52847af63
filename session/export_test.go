package session

import (
	"encoding/binary"
	"hash/crc32"
)

// Resum returns b, a checkpoint, with the sum that its bytes should have.
func Resum(b []byte) []byte {
	if len(b) < sumBytes {
		return b
	}
	b = b[: len(b)-sumBytes : len(b)-sumBytes]
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}
