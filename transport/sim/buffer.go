package sim

import "math/bits"

// buffers recycles the payloads of messages in flight, by powers of two.
//
// A payload is copied when it is sent and again when it lands, as on a wire:
// what a failed queue pair had sent before it failed still arrives, and what
// its owner does to the memory afterwards does not change it.
type buffers struct {
	free [33][][]byte
}

func (b *buffers) get(n int) []byte {
	if n == 0 {
		return nil
	}
	class := max(6, bits.Len(uint(n-1)))
	if list := b.free[class]; len(list) > 0 {
		buf := list[len(list)-1]
		b.free[class] = list[:len(list)-1]
		return buf[:n]
	}
	return make([]byte, n, 1<<class)
}

func (b *buffers) put(buf []byte) {
	if cap(buf) == 0 {
		return
	}
	class := bits.Len(uint(cap(buf) - 1))
	b.free[class] = append(b.free[class], buf)
}
