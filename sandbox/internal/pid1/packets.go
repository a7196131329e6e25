package pid1

// #include "packets.h"
import "C"

import "encoding/binary"

// ZygoteArg makes this binary run as the zygote, if it is PID 1 (zygote.c).
const ZygoteArg = "skillrun-zygote"

// ZygoteMagic begins every packet of the zygote's socket. It holds the version of the
// protocol.
const ZygoteMagic = C.ZYGOTE_MAGIC

// A Packet is the kind of a message between the daemon and the zygote. packets.h has the
// numbers, and the layout of each packet.
type Packet uint32

// The packets.
const (
	PacketBegin Packet = C.PACKET_BEGIN
	PacketMake  Packet = C.PACKET_MAKE
	PacketSpawn Packet = C.PACKET_SPAWN
	PacketMade  Packet = C.PACKET_MADE // the only one from the zygote
)

// Sizes of packets, in bytes.
const (
	MakeBytes = int(C.sizeof_struct_make)
	MadeBytes = int(C.sizeof_struct_made)
)

// MaxPlaces bounds the mounts of one sandbox's root.
const MaxPlaces = C.MAX_PLACES

// PacketHeader returns the beginning of a packet, followed by words. All words are little-endian,
// as the structs of packets.h are on amd64 and arm64.
func PacketHeader(kind Packet, words ...uint32) []byte {
	b := binary.LittleEndian.AppendUint32(nil, ZygoteMagic)
	b = binary.LittleEndian.AppendUint32(b, uint32(kind))
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}
