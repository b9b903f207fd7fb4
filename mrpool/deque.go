package mrpool

// deque is a double-ended queue in a ring. It allocates only when it grows past
// its largest size so far.
type deque struct {
	ring []*MR // a power of two long
	head int
	n    int
}

func (d *deque) grow() {
	if d.n < len(d.ring) {
		return
	}
	ring := make([]*MR, max(8, 2*len(d.ring)))
	for i := range d.n {
		ring[i] = d.ring[(d.head+i)&(len(d.ring)-1)]
	}
	d.ring, d.head = ring, 0
}

func (d *deque) pushFront(m *MR) {
	d.grow()
	d.head = (d.head - 1) & (len(d.ring) - 1)
	d.ring[d.head] = m
	d.n++
}

func (d *deque) pushBack(m *MR) {
	d.grow()
	d.ring[(d.head+d.n)&(len(d.ring)-1)] = m
	d.n++
}

// popFront is not to be called on an empty deque. The ring may go on pointing to what
// was taken: an MR lives as long as its pool.
func (d *deque) popFront() *MR {
	m := d.ring[d.head]
	d.head = (d.head + 1) & (len(d.ring) - 1)
	d.n--
	return m
}
