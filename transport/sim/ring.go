package sim

// ring is a growing FIFO whose elements keep their sequence number: the queues
// of the simulator. Once it has grown to what a workload needs, it allocates
// nothing.
type ring[T any] struct {
	buf        []T // length is a power of two, or zero
	head, tail uint64
}

func (r *ring[T]) len() int { return int(r.tail - r.head) }

// at returns the element with a sequence number in [head, tail). The pointer is
// good until the next push.
func (r *ring[T]) at(seq uint64) *T { return &r.buf[seq&uint64(len(r.buf)-1)] }

// front returns the oldest element.
func (r *ring[T]) front() *T { return r.at(r.head) }

// push appends an element.
func (r *ring[T]) push(v T) {
	if r.len() == len(r.buf) {
		r.grow()
	}
	r.buf[r.tail&uint64(len(r.buf)-1)] = v
	r.tail++
}

// pop removes and returns the oldest element, and clears its place.
func (r *ring[T]) pop() T {
	var zero T
	p := r.front()
	v := *p
	*p = zero
	r.head++
	return v
}

func (r *ring[T]) grow() {
	buf := make([]T, max(8, 2*len(r.buf)))
	for seq := r.head; seq < r.tail; seq++ {
		buf[seq&uint64(len(buf)-1)] = *r.at(seq)
	}
	r.buf = buf
}
